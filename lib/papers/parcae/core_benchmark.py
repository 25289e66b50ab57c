"""001's downstream evaluation: CORE, Core-Extended, zero-shot tasks and perplexities of its runs.

It works on data frames with one row for each run and test-time depth. Scores are in points: a hundredth of the
accuracy, in CORE a hundredth of what lies between guessing and all right. Beside each score stands its ``stderr`` over
examples.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import pandas as pd

from lib.config import Label, RunConfig
from lib.papers.shared.scores import Contrast, accuracy_scores, contrast, labelled, suite_scores, text_scores
from lib.tasks.suites import CORE, CORE_EXTENDED, WIKITEXT, ZERO_SHOT, Task

SUITES: dict[str, tuple[Task, ...]] = {"Core": CORE, "Core-Extended": CORE_EXTENDED}
#: asked of runs in 001's Transformer set-up, and in its RDM set-up
IN_TRANSFORMER_SETUP, IN_RDM_SETUP = (*CORE_EXTENDED, WIKITEXT), (*ZERO_SHOT.values(), WIKITEXT)
PARCAE, TRANSFORMER, RDM = "parcae", "transformer", "residual-norm"
#: share of the gap to the next larger model that half the parameters have to close; 001 has .875, says "comparable"
CLOSED = 0.75


# ---- their scores ----------------------------------------------------------------------------------------------------


def transformer_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """``labelled`` runs of 001's Transformer set-up with their Core and Core-Extended, and of LAMBADA and WikiText the
    nats per token and the perplexities per token and per word. Core-Extended is nan where none of the tasks that it
    adds to Core was asked.

    table: ``evaluations.over_seeds``; names: of the parts of the runs' labels; found: key -> result."""
    core, extended = (suite_scores(table, name, tasks, "centred") for name, tasks in SUITES.items())
    more = extended.pop("tasks").gt(core.pop("tasks"))
    return labelled([core, extended.where(more), *text_scores(table)], runs, names, found)


def rdm_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """``labelled`` runs of 001's RDM set-up with the zero-shot tasks, their mean ``zero-shot``, and WikiText."""
    return labelled([*accuracy_scores(table, "zero-shot", ZERO_SHOT), *text_scores(table)[1:]], runs, names, found)


# ---- what the papers say of them -------------------------------------------------------------------------------------


def part_of_the_gap(runs: pd.DataFrame, values: Sequence[str], seeds: Sequence[int]) -> dict[str, Contrast]:
    """By how much Parcae lies above the Transformer of its width, and by how much below the next larger one. Where all
    are positive it closes a part of each gap."""
    found = {}
    for value, (small, large) in itertools.product(values, itertools.pairwise(sorted(runs["width"].unique()))):
        for side, weights in (
            (f"above d = {small}", {(PARCAE, small): 1.0, (TRANSFORMER, small): -1.0}),
            (f"below d = {large}", {(TRANSFORMER, large): 1.0, (PARCAE, small): -1.0}),
        ):
            found[f"{value}, {small}: {side}"] = contrast(runs, value, weights, ("architecture", "width"), seeds)
    return found


def half_the_parameters(runs: pd.DataFrame, seeds: Sequence[int]) -> Contrast:
    """How many points of Core Parcae at the second largest width has above the mark that lies CLOSED of the way from
    the Transformer of its width to the largest one."""
    small, large = sorted(runs["width"].unique())[-2:]
    weights = {(PARCAE, small): 1.0, (TRANSFORMER, large): -CLOSED, (TRANSFORMER, small): CLOSED - 1}
    return contrast(runs, "Core", weights, ("architecture", "width"), seeds)


def upper_third(runs: pd.DataFrame, seeds: Sequence[int]) -> dict[str, Contrast]:
    """By how much Core of the best looped runs lies above that of fixed depth, at each of the largest third of a
    size's budgets: there looping is ahead for both of 001's sizes. runs: ``frontier``'s, with columns which, width and
    budget."""
    found = {}
    for width, own in runs.groupby("width"):
        budgets = sorted(own["budget"].unique())
        for C in budgets[-max(1, len(budgets) // 3) :]:
            weights = {("looped", C): 1.0, ("fixed depth", C): -1.0}
            found[f"d = {width}, {C:g} FLOPs"] = contrast(own, "Core", weights, ("which", "budget"), seeds)
    return found

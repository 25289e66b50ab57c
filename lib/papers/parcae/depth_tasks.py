"""Models that are trained on generated questions whose answer takes steps: looped against plain at equal parameters and
at equal FLOPs, and with more loops than they were trained with. After Saunshi et al., *Reasoning with Latent Thoughts*,
and 000, App. H; the models are those of 001's Transformer set-up.

Works on data frames with one row a run, number of steps and test-time loops T.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lib.base.statistics import mean_and_interval
from lib.config import Label, ModelConfig, RunConfig
from lib.papers.parcae import transformer_setup
from lib.papers.parcae.parameters import DepthTasks
from lib.papers.shared.frames import with_labels
from lib.store.runs import RunStore
from lib.tasks.evaluations import Evaluation, Subject, evaluations, over_seeds, tabulate
from lib.tasks.primitives import BEYOND, graded
from lib.text.generated import TRAINED

PLAIN, DEEP, LOOPED, SAMPLED = "plain", "plain, as deep", "looped, fixed depth", "looped, Parcae"


def models(p: DepthTasks) -> dict[str, ModelConfig]:
    """PLAIN runs its three stacks once and has the parameters of the looped ones; DEEP has as many different layers as
    these run, and so their FLOPs forward. LOOPED runs mean_loops loops in every step, all of them with gradient;
    SAMPLED is Parcae as 001 trains it."""
    plain = transformer_setup.transformer(p)
    return {
        PLAIN: plain,
        DEEP: plain.replace(prelude=(2 + p.mean_loops) * p.layers),
        LOOPED: transformer_setup.model(p, p.mean_loops, depth="fixed", backprop_loops="all"),
        SAMPLED: transformer_setup.model(p, p.mean_loops),
    }


def runs(p: DepthTasks) -> dict[Label, RunConfig]:
    """(model, family, seed) -> run."""
    return {
        (name, family, seed): transformer_setup.run(p.of_family(family), cfg, p.steps, seed)
        for family in p.families
        for name, cfg in models(p).items()
        for seed in p.seeds
    }


def steps_of(family: str) -> tuple[int, ...]:
    """The steps that a family is asked for: those of its text, and more."""
    return (*TRAINED[family], *BEYOND[family])


def questions(
    p: DepthTasks, configs: dict[Label, RunConfig], store: RunStore, found: dict[str, Any] | None = None
) -> list[Evaluation]:
    """Every number of steps of its family asked of every run that finished, of looped ones after every T of p's depths.
    found: key -> result; None asks every run, before anything is known of it."""
    cases = []
    for (_, family, _), cfg in configs.items():
        if found is None or found[cfg.key].status == "finished":
            tasks = [graded(family, steps) for steps in steps_of(family)]
            depths = p.depths if cfg.model.recur else []
            cases += evaluations([Subject.of_run(cfg)], store, tasks, [0], "", p.limit, depths)
    return cases


def answers(
    cases: Sequence[Evaluation], found: Sequence[dict[str, Any]], configs: dict[Label, RunConfig]
) -> pd.DataFrame:
    """One row a run, steps and T: model, family, seed, steps, ``trained`` (whether its text has these steps), T,
    ``accuracy`` (of whole answers, in per cent) and ``loss`` of the answer in nats a token."""
    answered = over_seeds(tabulate(cases, found)).rename(columns={"subject": "key"})
    table = with_labels(answered, configs, ["model", "family", "seed"])
    steps = {graded(family, n).name: n for family in TRAINED for n in steps_of(family)}
    table["steps"] = table["task"].map(steps)
    table["trained"] = [n in TRAINED[family] for n, family in zip(table["steps"], table["family"], strict=True)]
    table["accuracy"] *= 100
    return table[["model", "family", "seed", "steps", "trained", "T", "accuracy", "loss"]]


def as_trained(table: pd.DataFrame, mean_loops: int) -> pd.DataFrame:
    """The rows of plain models, and of looped ones after as many loops as they were trained with."""
    return table[~table["model"].isin([LOOPED, SAMPLED]) | (table["T"] == mean_loops)]


def contrasts(table: pd.DataFrame, p: DepthTasks) -> pd.DataFrame:
    """By how many points of accuracy each looped model is ahead of PLAIN (equal parameters) and of DEEP (equal FLOPs),
    and what the largest T adds to mean_loops. One row a looped model, family and kind of steps, trained or not, whose
    mean is taken first; mean and 95 % interval over seeds, nan where a run is missing."""
    by = ["family", "trained", "seed"]
    own = as_trained(table, p.mean_loops).pivot_table(index=by, columns="model", values="accuracy")
    most = table[table["T"] == max(p.depths)].pivot_table(index=by, columns="model", values="accuracy")
    rows = []
    for name in (LOOPED, SAMPLED):
        margins = {
            "- plain": own[name] - own[PLAIN],
            "- as deep": own[name] - own[DEEP],
            f"T = {max(p.depths)} - {p.mean_loops}": most[name] - own[name],
        }
        for cell in dict.fromkeys((family, trained) for family, trained, _ in own.index):
            row = {"model": name, **dict(zip(by, cell, strict=False))}
            for contrast, values in margins.items():
                found = mean_and_interval(values.loc[cell].reindex(p.seeds))
                row |= {f"{contrast}{part}": x for part, x in zip(("", ", low", ", high"), found, strict=True)}
            rows.append(row)
    return pd.DataFrame(rows).set_index(["model", "family", "trained"])

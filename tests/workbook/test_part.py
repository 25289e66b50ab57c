"""A notebook that shall not train draws the seeds of which everything is there, and says how much that is."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from lib.base.errors import NotThere
from lib.figures import style
from lib.flops import run_flops
from lib.papers.isodepth.parameters import RecurrenceExponent
from lib.papers.nanochat.parameters import UsageWeighted
from lib.store.runs import RunStore
from lib.workbook import notebook, part, places, plans, report
from lib.workbook.parameters import of_profile
from tests.lines import one_line
from tests.runs import untrained

NAME = UsageWeighted.notebook


@pytest.fixture(scope="module")
def planned():
    """The runs of three seeds at the smallest size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "RECORDS", Path("no-records"))
        return plans.plan(NAME, "smoke", seeds=[1, 2, 3]).runs


@pytest.fixture(scope="module")
def outputs(tmp_path_factory, planned):
    """With all of the first and third seed, and all but one of the second."""
    folder = tmp_path_factory.mktemp("outputs")
    lacking = [cfg for cfg in planned if cfg.train.seed == 2][-1]
    for cfg in planned:
        if cfg.key != lacking.key:
            untrained(cfg, RunStore(folder / "runs"))
    return folder


def asked(outputs, **changes):
    return UsageWeighted(**{**of_profile("smoke", NAME), "train": False, "outputs": str(outputs), **changes})


def test_seeds_that_are_not_whole_are_left_out(planned, outputs):
    p, note = part.there(asked(outputs, seeds=[1, 2, 3]))
    assert p == asked(outputs, seeds=[1, 3])
    lacking = run_flops([cfg for cfg in planned if cfg.train.seed == 2][-1])
    assert note == f"{100 * (1 - lacking / sum(map(run_flops, planned))):.0f} % of its plan"
    assert part.there(asked(outputs, seeds=[1, 3])) == (asked(outputs, seeds=[1, 3]), "")


def test_without_a_whole_seed_there_is_nothing_to_draw(outputs):
    with one_line("no seed is whole; -p train true makes them", "or -p profile cpu", starts="train: "):
        part.there(asked(outputs, seeds=[2]))
    with pytest.raises(NotThere):  # which make does not take for a failure
        part.there(asked(outputs, seeds=[2]))


def test_the_largest_part_that_is_there_is_drawn(tmp_path, capsys, monkeypatch, style):
    """Of three budgets two have their runs, and the third all but one."""
    name, own = RecurrenceExponent.notebook, {"resamples": 1, "seeds": [1], "noise_seeds": [1], "recurrences": [1, 2]}
    own |= {"budgets": [1.5e8, 3e8, 6e8], "widths": {1.5e8: [4, 8], 3e8: [4, 8], 6e8: [4, 8]}, "train": False}
    outputs = tmp_path / "outputs"
    runs = plans.plan(name, "smoke", **own).runs
    dear = max(runs, key=run_flops)
    p = RecurrenceExponent(**{**of_profile("smoke", name), **own, "outputs": str(outputs)})
    with pytest.raises(NotThere):
        part.there(p)
    for cfg in runs:
        if cfg.key != dear.key:
            untrained(cfg, RunStore(outputs / "runs"))
    share = f"{100 * (1 - run_flops(dear) / sum(map(run_flops, runs))):.0f} % of its plan"
    assert part.there(p) == (p.replace(budgets=[1.5e8, 3e8]), share)
    monkeypatch.chdir(places.ROOT)
    nb = notebook.start(RecurrenceExponent, p.model_dump())
    assert nb.part == share and nb.cut_from == {"budgets": own["budgets"]}
    assert capsys.readouterr().out.endswith(f"\n{share} is there, drawn with budgets [150000000.0, 300000000.0]\n")


@pytest.mark.usefixtures("style")
def test_a_notebook_starts_with_what_is_there_and_trains_nothing(planned, outputs, monkeypatch):
    monkeypatch.chdir(places.ROOT)
    namespace = asked(outputs, seeds=[1, 2, 3]).model_dump()
    nb = notebook.start(UsageWeighted, namespace)
    assert namespace["seeds"] == [1, 3]
    assert re.fullmatch(r"smoke, \d+ % of its plan", style._profile)
    nb.save_table(pd.DataFrame({"x": [1]}), "a")
    made = json.loads((outputs / "tables" / "smoke" / "a.json").read_text())
    assert made["parameters"]["seeds"] == [1, 3] and made["cut_from"] == {"seeds": [1, 2, 3]}
    assert report.command(NAME, "smoke", made).endswith("-y '{seeds: [1, 2, 3], train: false}'")
    there = [cfg for cfg in planned if cfg.train.seed != 2]
    assert [run.key for run in nb.sweep(there).results] == [cfg.key for cfg in there]
    with one_line("set it to true", starts="train: 1 runs are missing, "):
        nb.sweep(planned)


def test_a_plan_is_of_everything_also_where_nothing_shall_be_trained(planned):
    assert plans.plan(NAME, "smoke", seeds=[1, 2, 3], train=False).runs == planned

"""What a notebook would train is found from its own cells without training, a network or a text; and one that shall not
train draws the seeds of which everything is there, and says how much that is."""

import json
import os
import re
import socket
import time
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest

from lib.base.errors import NotThere
from lib.config import DataConfig, ModelConfig, RunConfig
from lib.flops import run_flops
from lib.papers.isodepth.parameters import RecurrenceExponent
from lib.papers.nanochat.parameters import UsageWeighted
from lib.store.runs import RunStore
from lib.workbook import notebook, places, plans, report
from lib.workbook.plans import read_plan
from tests.given import of_profile
from tests.lines import one_line
from tests.runs import untrained
from tests.workbooks import a_notebook


@pytest.mark.parametrize(
    ("name", "runs", "measures"),
    [
        ("instability", 6, ["lib.text.ngram_limit"]),
        ("residual_scaling_beyond", 45, ["lib.growth.first_steps"]),
        ("residual_scaling_init", 0, ["lib.growth.initial_increments", "lib.growth.first_steps"]),
    ],
)
def test_a_plan_is_found_without_training(name, runs, measures, tmp_path):
    """That it is the one of the executed notebook is seen in test_make and test_smoke, where they are executed."""
    plan = plans.plan(name, "smoke", outputs=str(tmp_path))
    noted = read_plan(tmp_path / "plans" / "smoke" / f"{name}.json")
    assert plan == plans.Plan(
        [RunConfig(**fields) for fields in noted.get("runs", {}).values()], noted.get("measurements", {})
    )
    assert len(plan.runs) == len({cfg.key for cfg in plan.runs}) == runs
    assert [*plan.measurements] == measures
    assert {one.key for one in plan.asked} == {key for keys in plan.measurements.values() for key in keys}
    assert all(flops > 0 for cases in plan.measurements.values() for flops in cases.values())
    assert [path.name for path in tmp_path.iterdir()] == ["plans"]


@pytest.mark.parametrize("name", ["downstream_axes", "downstream_core", "end_to_end"])
def test_what_a_notebook_chooses_from_is_asked_of_every_run_that_finished(name):
    plan = plans.plan(name, "smoke")
    assert not plan.measurements and all(one.of_finished for one in plan.asked)
    assert {one.run for one in plan.asked} == {cfg.key for cfg in plan.runs}


@pytest.mark.parametrize("profile", ["gpu", "paper"])
def test_large_profiles_are_planned_in_no_time_without_a_network_or_a_text(profile, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *args: pytest.fail("asked the network"))
    begin = time.process_time()
    names = ("instability", "isodepth_isoflop", "moe_isoflop")
    runs = [cfg for name in names for cfg in plans.plan(name, profile).runs]
    assert len(runs) > 100 and time.process_time() - begin < 60


def test_planning_leaves_the_process_as_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with mpl.rc_context({"font.size": 3.0}):
        plans.plan("instability", "smoke")
        assert mpl.rcParams["font.size"] == 3.0
    assert os.getcwd() == str(tmp_path)
    assert capsys.readouterr().out == "" and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "profile", "changes", "says"),
    [
        ("nothing", "smoke", {}, "name: there is no notebook 'nothing', use one of"),
        ("instability", "huge", {}, "profile: 'huge' has no params/huge/instability.yaml"),
        ("instability", "smoke", {"lrz": 1}, "lrz: is not a parameter of instability, did you mean 'lrs'?"),
    ],
)
def test_what_cannot_be_planned_is_one_line(name, profile, changes, says):
    with one_line(starts=says):
        plans.plan(name, profile, **changes)


@pytest.mark.precision
def test_a_plan_that_cannot_be_read_is_set_aside_and_written_anew(tmp_path, capsys):
    data = DataConfig(context=32, content="text")
    cfg = RunConfig(model=ModelConfig(vocab_size=256, width=16, heads=2, mlp_width=32, context=32), data=data)
    folder = tmp_path / "plans" / "cpu"
    folder.mkdir(parents=True)
    for name in ("a", "b"):  # without checksums
        (folder / f"{name}.json").write_text(json.dumps([cfg.key]))
    assert read_plan(folder / "a.json") == {} == read_plan(folder / "none.json")
    a_notebook("b", tmp_path).plan({("x",): cfg})
    assert [RunConfig(**fields) for fields in read_plan(folder / "b.json")["runs"].values()] == [cfg]
    assert capsys.readouterr().out.count("its notebook writes it anew") == 2


# ---- how much of a plan is there -------------------------------------------------------------------------------------

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
    p, note = plans.there(asked(outputs, seeds=[1, 2, 3]))
    assert p == asked(outputs, seeds=[1, 3])
    lacking = run_flops([cfg for cfg in planned if cfg.train.seed == 2][-1])
    assert note == f"{100 * (1 - lacking / sum(map(run_flops, planned))):.0f} % of its plan"
    assert plans.there(asked(outputs, seeds=[1, 3])) == (asked(outputs, seeds=[1, 3]), "")


def test_without_a_whole_seed_there_is_nothing_to_draw(outputs):
    """Which make does not take for a failure."""
    with pytest.raises(NotThere, match=r"^train: .* no seed is whole; -p train true makes them, .* or -p profile cpu"):
        plans.there(asked(outputs, seeds=[2]))


def test_the_largest_part_that_is_there_is_drawn(tmp_path, capsys, monkeypatch, style):
    """Of three budgets two have their runs, and the third all but one."""
    name, own = RecurrenceExponent.notebook, {"resamples": 1, "seeds": [1], "noise_seeds": [1], "recurrences": [1, 2]}
    own |= {"budgets": [1.5e8, 3e8, 6e8], "widths": {1.5e8: [4, 8], 3e8: [4, 8], 6e8: [4, 8]}, "train": False}
    outputs = tmp_path / "outputs"
    runs = plans.plan(name, "smoke", **own).runs
    dear = max(runs, key=run_flops)
    p = RecurrenceExponent(**{**of_profile("smoke", name), **own, "outputs": str(outputs)})
    with pytest.raises(NotThere):
        plans.there(p)
    for cfg in runs:
        if cfg.key != dear.key:
            untrained(cfg, RunStore(outputs / "runs"))
    share = f"{100 * (1 - run_flops(dear) / sum(map(run_flops, runs))):.0f} % of its plan"
    assert plans.there(p) == (p.replace(budgets=[1.5e8, 3e8]), share)
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
    assert re.fullmatch(r"profile: smoke, \d+ % of its plan, changed: seeds", nb.printed())
    nb.save_table(pd.DataFrame({"x": [1]}), "a")
    made = json.loads((outputs / "tables" / "smoke" / "a.json").read_text())
    assert made["parameters"]["seeds"] == [1, 3] and made["cut_from"] == {"seeds": [1, 2, 3]}
    assert report.command(NAME, "smoke", made).endswith("-y '{seeds: [1, 2, 3], train: false}'")
    there = [cfg for cfg in planned if cfg.train.seed != 2]
    assert [run.key for run in nb.sweep(there).results] == [cfg.key for cfg in there]
    with one_line("set it to true", starts="train: 1 runs are missing, "):
        nb.sweep(planned)
    assert plans.plan(NAME, "smoke", seeds=[1, 2, 3], train=False).runs == planned  # also what is not to be trained

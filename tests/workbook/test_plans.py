"""What a notebook would train is found from its own cells without training, a network or a text."""

import json
import os
import socket
import time

import matplotlib as mpl
import pytest

from lib.config import DataConfig, ModelConfig, RunConfig
from lib.figures import style
from lib.workbook import plans
from lib.workbook.plans import read_plan
from tests.lines import one_line
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
    style.use_style("cpu")
    with mpl.rc_context({"font.size": 3.0}):
        plans.plan("instability", "smoke")
        assert mpl.rcParams["font.size"] == 3.0
    assert os.getcwd() == str(tmp_path) and style._profile == "cpu"
    assert capsys.readouterr().out == "" and not list(tmp_path.iterdir())


def test_a_plan_can_be_of_other_parameters():
    one = plans.plan("instability", "smoke", seeds=[5], lrs=[0.5], architectures=["parcae"]).runs
    assert [(cfg.train.seed, cfg.optim.lr) for cfg in one] == [(5, 0.5)]


@pytest.mark.parametrize(
    ("name", "profile", "changes", "says"),
    [
        ("nothing", "smoke", {}, "name: there is no notebook 'nothing', use one of"),
        ("instability", "huge", {}, "profile: 'huge' has no params/huge/instability.yaml"),
        ("instability", "smoke", {"lrz": 1}, "lrz: is not a parameter of instability, did you mean 'lrs'?"),
        ("instability", "smoke", {"steps": "many"}, "steps: input should be a valid integer"),
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
    assert capsys.readouterr().out.count("has changed since it was written") == 2

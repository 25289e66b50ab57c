"""What has been trained once and is committed stays what it was: the keys of the runs and measurements of desk, of its
addendum and of the second text, and the first losses of one run of each of desk's notebooks.

``tests/frozen_desk.json`` was written before the first run was trained; what is added to the profile later is added to
it (``python -m tests.test_desk NOTEBOOK PROFILE/NOTEBOOK``), and nothing in it changes.
"""

import contextlib
import hashlib
import json
import sys
from pathlib import Path

import pytest

from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.sweep import measurements
from lib.train.loop import train
from lib.workbook import plans

FROZEN = Path(__file__).with_name("frozen_desk.json")
STEPS = 4  # whose losses are held
ADDED = [f"{profile}/{name}" for profile in ("addendum", "second-text") for name in plans.names(profile)]


class _Enough(Exception):
    pass


def keys(name: str, profile: str = "desk") -> dict[str, list[int | str]]:
    """How many runs and measurements a notebook plans, at desk or as PROFILE/NOTEBOOK, each with a hash of all of their
    keys."""
    at, _, name = name.rpartition("/")
    plan = plans.plan(name, at or profile)
    asked = {f"{measurements.name(one.function)} {one.key}" for one in plan.asked}
    found = {"runs": {cfg.key for cfg in plan.runs}, "measurements": asked}
    return {of: [len(some), hashlib.sha256("\n".join(sorted(some)).encode()).hexdigest()] for of, some in found.items()}


def first_losses(cfg: RunConfig, folder: Path) -> list[float]:
    """Of the first steps of a run."""
    losses: list[float] = []

    def watch(step: int, loss: float) -> None:
        losses.append(loss)
        if step == STEPS:
            raise _Enough

    with contextlib.suppress(_Enough), pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: False)  # as committed runs were trained
        train(cfg, RunStore(folder / "runs"), progress=watch)
    return losses


def cheapest(name: str) -> RunConfig | None:
    return min(plans.plan(name, "desk").runs, key=lambda cfg: (run_flops(cfg), cfg.key), default=None)


def held() -> dict[str, dict[str, list[float]]]:
    return json.loads(FROZEN.read_text())


@pytest.mark.parametrize("name", plans.names("desk") + ADDED)
def test_the_keys_of_runs_and_measurements_stay(name, plans_once):
    assert keys(name) == {what: held()[name][what] for what in ("runs", "measurements")}


@pytest.mark.parametrize("name", ["early_exit", "test_time_saturation"])
def test_a_machine_with_a_gpu_asks_for_the_same_runs(name, monkeypatch, plans_once):
    here = plans.plan(name, "desk")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: True)
    there = plans.plan(name, "desk", jobs=1)  # with a change, or it would be read as it was planned here
    assert [cfg.key for cfg in there.runs] == [cfg.key for cfg in here.runs]
    assert {one.key for one in there.asked} == {one.key for one in here.asked}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The folder of all runs, whose texts become tokens once."""
    return tmp_path_factory.mktemp("texts")


@pytest.mark.parametrize("name", [name for name in plans.names() if "losses" in held().get(name, {})])
def test_the_first_losses_stay(name, texts, plans_once):
    """To 1e-4, as another machine has them."""
    assert first_losses(cheapest(name), texts) == pytest.approx(held()[name]["losses"], rel=1e-4)


if __name__ == "__main__":
    import tempfile

    every = held() if FROZEN.exists() else {}
    for name in sys.argv[1:] or plans.names("desk") + ADDED:
        every[name] = keys(name)
        if name not in ADDED and (cfg := cheapest(name)):
            with tempfile.TemporaryDirectory() as folder:
                every[name]["losses"] = first_losses(cfg, Path(folder))
    lines = [f" {json.dumps(name)}: {json.dumps(every[name])}" for name in sorted(every)]
    FROZEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")

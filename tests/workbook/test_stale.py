"""A notebook is stale when what its result depends on has changed, and not when anything else has."""

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest
import yaml

from lib.store import records
from lib.workbook import places
from lib.workbook.stale import Now
from tests.runs import small_run
from tests.store.test_records import a_measurement, a_run
from tests.workbooks import moved, own_environment

NAMES = ["downstream_axes", "early_exit", "published_runs", "recurrence_exponent", "usage_weighted"]
#: marks all as run, then says for each change of a file which are stale with it at each profile, and takes it back
STALE = """
import json, sys
from pathlib import Path
from lib.workbook import made_from
from lib.workbook.stale import Now
names, changes = json.loads(sys.argv[1])
outputs = Path("outputs")

def stale(profile):
    now = Now(profile, names, outputs)
    return [name for name in names if not now.fresh(name)]

for profile in {change[0] for change in changes}:
    marked = Now(profile, names, outputs)
    for name in names:
        marked.done(name)
    assert stale(profile) == []
found = []
for profile, file, old, new in changes:
    before = Path(file).read_text()
    assert old in before, (file, old)
    Path(file).write_text(before.replace(old, new, 1) if old else before + new)
    made_from.packages_of.cache_clear()  # which stay as they are while make runs
    found.append(stale(profile))
    Path(file).write_text(before)
made_from.packages_of.cache_clear()
assert stale(profile) == []
print(json.dumps(found))
"""


def stale(workbook, changes: Iterable[tuple[str, str, str, str]]) -> dict:
    """Change, with the profile that is asked -> the notebooks that it makes stale."""
    command = [sys.executable, "-c", STALE, json.dumps([NAMES, [*changes]])]
    done = subprocess.run(command, cwd=workbook, env=own_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(changes, json.loads(done.stdout), strict=True))


def line(file: str) -> tuple[str, str, str]:
    return file, "", "\n# more\n"


def test_it_is_stale_where_something_that_counts_has_changed_and_nowhere_else(workbook):
    """What only training needs counts where something is trained."""
    own_rule = "notebook: usage_weighted"
    entry = next(
        e for e in yaml.safe_load((workbook / "params/claims.yaml").read_text()) if own_rule[10:] == e["notebook"]
    )
    expected = {
        line("lib/papers/nanochat/usage_weighted.py"): ["usage_weighted"],
        line("lib/papers/others/data/growth_loops.csv"): ["published_runs"],  # a table that a module reads
        line("lib/fit/__init__.py"): NAMES,  # the face of a package
        line("lib/base/statistics.py"): NAMES,  # not directly
        line("lib/workbook/part.py"): NAMES,  # inside a function
        line("lib/workbook/report.py"): [],
        line("lib/workbook/execute.py"): [],
        ("notebooks/usage_weighted.ipynb", "", "\n"): ["usage_weighted"],
        line("params/desk/usage_weighted.yaml"): ["usage_weighted"],
        line("params/desk/recurrence_exponent.yaml"): ["downstream_axes", "recurrence_exponent"],  # which one reads
        line("params/cpu/usage_weighted.yaml"): [],
        line("params/claims.yaml"): [],
        ("params/claims.yaml", entry["statement"], f"{entry['statement'][:-1]}, so to speak."): ["usage_weighted"],
        ("locks/packages.txt", "numpy==", "no-numpy=="): NAMES,
    }
    at_desk = {("desk", *change): names for change, names in expected.items()}
    training = ("lib/train/loop.py", "lib/kernels/kernels.c", "lib/sweep/cost.py")
    at_both = [(profile, *line(file)) for profile in ("desk", "cpu") for file in training]
    found = stale(workbook, [*at_desk, *at_both])
    assert {change: found[change] for change in at_desk} == at_desk
    desk_loop, desk_kernels, desk_cost, cpu_loop, cpu_kernels, cpu_cost = (found[change] for change in at_both)
    assert desk_loop == [] and "usage_weighted" not in desk_kernels and "early_exit" in desk_kernels
    assert cpu_loop == cpu_kernels == [name for name in NAMES if name != "published_runs"]
    assert desk_cost == cpu_cost == NAMES  # a sweep asks it what is missing


def test_who_opens_a_run_counts_what_computes_with_it():
    """``lib.sweep`` imports that for nothing where nothing is trained; so whoever has a model of it imports more."""
    names = sorted(path.stem for path in places.NOTEBOOKS.glob("*.ipynb"))
    now = Now("desk", names, places.ROOT / "none")
    for name in names:
        if any(f"lib.sweep.finished.{opens}" in now.imports[name] for opens in ("run_model", "trained_model")):
            assert {"lib.model.looped", "lib.kernels.functions", "lib.data.rows"} <= now.modules(name), name


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Records of two runs; a notebook that drew from one of them; what asks whether it is fresh."""
    moved(monkeypatch, tmp_path)
    monkeypatch.setattr(places, "RECORDS", tmp_path / "records")
    for folder in ("notebooks", "params/smoke"):
        (tmp_path / folder).mkdir(parents=True)
    parameters = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": ["train: bool = False"]}
    (tmp_path / "notebooks/some.ipynb").write_text(json.dumps({"cells": [parameters]}))
    (tmp_path / "params/smoke/some.yaml").write_text("{}")
    (tmp_path / "params/claims.yaml").write_text("[]")
    one, other = (a_run(small_run(train={"seed": seed})) for seed in (1, 2))
    records.add(tmp_path / "records/smoke", [one, other], [a_measurement("k", x=1.0), a_measurement("l", x=2.0)])

    def planned(**more):
        path = tmp_path / "outputs/plans/smoke/some.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"runs": {one.key: {}}, "measurements": {"tests.f": {"k": 1}}, **more}))
        now().done("some")

    def now():
        return Now("smoke", ["some"], tmp_path / "outputs")

    planned()
    assert now().fresh("some")
    return tmp_path / "records/smoke", planned, lambda: now().fresh("some")


def test_records_of_others_are_no_matter_and_its_own_are(drawn):
    folder, planned, fresh = drawn
    third = a_run(small_run(train={"seed": 3}))
    records.add(folder, [third], [a_measurement("m", x=3.0)])
    assert fresh()
    planned(measurements={"tests.f": {"k": 1, "n": 1}})
    assert fresh()
    records.add(folder, [], [a_measurement("n", x=3.0)])  # which it had planned, and measured itself
    assert not fresh()


def test_a_part_that_cannot_be_read_is_one_that_went(drawn):
    folder, planned, fresh = drawn
    (part,) = (folder / "runs.parquet").iterdir()
    part.write_text("no table")
    planned()
    assert fresh()


def test_a_run_that_says_something_else_is_noticed(drawn):
    folder, _, fresh = drawn
    for path in folder.glob("*.parquet/*"):
        path.unlink()
    runs = [a_run(small_run(train={"seed": 1}), val_loss=0.5), a_run(small_run(train={"seed": 2}))]
    records.write(folder, runs, [a_measurement("k", x=1.0)])
    assert not fresh()


def test_any_record_may_complete_what_was_drawn_in_part(drawn):
    folder, planned, fresh = drawn
    planned(part="50 % of its plan")
    assert fresh()
    records.add(folder, [a_run(small_run(train={"seed": 3}))], [])
    assert not fresh()


def test_weights_that_are_kept_later_are_noticed(drawn):
    folder, _, fresh = drawn
    (folder / "weights").mkdir()
    (folder / "weights" / f"{small_run(train={'seed': 2}).planned.key}-0123.safetensors").write_text("")
    assert fresh()
    (folder / "weights" / f"{small_run(train={'seed': 1}).planned.key}-0123.safetensors").write_text("")
    assert not fresh()

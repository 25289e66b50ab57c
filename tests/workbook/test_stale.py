"""A mark tells whether what was made, or what it was made from, has changed, by content, whatever the dates; a notebook
is stale when what its result depends on has changed, and not when anything else has."""

import json
import os
import subprocess
import sys

import numpy
import pytest

from lib.store import records
from lib.workbook import places, stale
from lib.workbook.stale import Now
from tests.runs import made_up, small_run
from tests.store.test_records import a_measurement
from tests.workbooks import moved, own_environment

# ---- marks


def unchanged(at, *beside: str) -> bool:
    return stale.unchanged(at / ".made.from", stale.checksum([at / "from"], *beside), [at / "made.html"])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "deep" / "a.json").write_text("a")
    (tmp_path / "from" / ".a.done").touch()
    (tmp_path / "made.html").write_text("page")
    stale.note(tmp_path / ".made.from", stale.checksum([tmp_path / "from"]), [tmp_path / "made.html"])
    assert unchanged(tmp_path) and not unchanged(tmp_path, "another profile")
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        lambda at: (at / "from" / "deep" / "a.json").write_text("b"),
        lambda at: (at / "from" / "deep" / "a.json").rename(at / "from" / "deep" / "b.json"),
        lambda at: (at / "from" / "deep" / "a.json").rename(at / "from" / "a.json"),
        lambda at: (at / "from" / "deep" / "b.json").touch(),
        lambda at: (at / "from" / ".a.done").unlink(),
        lambda at: (at / "made.html").write_text("other"),
        lambda at: (at / "made.html").unlink(),
        lambda at: (at / ".made.from").unlink(),
        lambda at: (at / ".made.from").write_text("damaged"),
    ],
)
def test_a_change_is_seen(folder, change):
    change(folder)
    assert not unchanged(folder)


def test_dates_locks_and_half_written_files_are_no_change(folder):
    for when in (1, 2**32):
        os.utime(folder / "from" / "deep" / "a.json", (when, when))
        assert unchanged(folder)
    (folder / "from" / "__pycache__").mkdir()
    for name in (".lock", ".a.lock", ".a.json.host-1.tmp", "__pycache__/a.pyc.1234", ".a.from"):
        (folder / "from" / name).touch()
    assert unchanged(folder)


def test_two_files_are_not_one_of_both_contents(tmp_path):
    found = set()
    for texts in ({"a": "xy", "b": ""}, {"a": "x", "b": "y"}):
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        found.add(stale.checksum([tmp_path]))
    assert len(found) == 2


def test_the_packages_have_their_versions():
    assert f"numpy-{numpy.__version__}" in stale.packages().split()


# ---- notebooks

NAMES = ["downstream_axes", "early_exit", "other_groups", "recurrence_exponent", "usage_weighted"]
#: marks all as run, then says for each change of a file which are stale with it, and takes it back
STALE = """
import json, sys
from pathlib import Path
from lib.workbook.stale import Now
names, changed = json.loads(sys.argv[1])

def stale():
    now = Now("desk", names, Path("outputs"))
    return [name for name in names if not now.fresh(name)]

marked = Now("desk", names, Path("outputs"))
for name in names:
    marked.done(name)
assert stale() == []
found = []
for file in changed:
    before = Path(file).read_text()
    Path(file).write_text(before + "\\n")
    found.append(stale())
    Path(file).write_text(before)
assert stale() == []
print(json.dumps(found))
"""


def test_it_is_stale_where_something_that_counts_has_changed_and_nowhere_else(workbook):
    expected = {
        "lib/papers/nanochat/parameters.py": ["usage_weighted"],
        "lib/papers/others/data/growth_loops.csv": ["other_groups"],  # a table that a module reads
        "lib/fit/__init__.py": [name for name in NAMES if name != "early_exit"],  # the face of a package
        "lib/base/statistics.py": NAMES,  # not directly
        "lib/train/loop.py": NAMES,  # inside a function
        "lib/kernels/kernels.c": NAMES,
        "lib/workbook/report.py": [],
        "lib/workbook/make_notebooks.py": [],
        "notebooks/usage_weighted.ipynb": ["usage_weighted"],
        "params/desk/usage_weighted.yaml": ["usage_weighted"],
        "params/desk/recurrence_exponent.yaml": ["downstream_axes", "recurrence_exponent"],  # which one reads
        "params/cpu/usage_weighted.yaml": [],
        "params/claims.yaml": NAMES,
    }
    command = [sys.executable, "-c", STALE, json.dumps([NAMES, [*expected]])]
    done = subprocess.run(command, cwd=workbook, env=own_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert dict(zip(expected, json.loads(done.stdout), strict=True)) == expected


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Asks whether a notebook is fresh that drew from the records of a run."""
    moved(monkeypatch, tmp_path)
    monkeypatch.setattr(places, "RECORDS", tmp_path / "records")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/some.ipynb").write_text(json.dumps({"cells": []}))
    records.add(tmp_path / "records/smoke", [made_up(small_run())], [])

    first = Now("smoke", ["some"], tmp_path / "outputs")
    assert not first.fresh("some")
    first.done("some")
    assert first.fresh("some")
    return lambda: Now("smoke", ["some"], tmp_path / "outputs").fresh("some")


def test_what_the_records_have_counts(fresh, tmp_path):
    (tmp_path / "records/cpu/runs.parquet").mkdir(parents=True)
    (tmp_path / "records/cpu/runs.parquet/other.parquet").touch()
    (tmp_path / "records/smoke/verdicts.json").touch()  # written from what notebooks found
    assert fresh()
    records.add(tmp_path / "records/smoke", [made_up(small_run(train={"seed": 2}))], [a_measurement("k", x=1.0)])
    assert not fresh()


@pytest.mark.parametrize("place", ["records/smoke/weights", "records/smoke/measured.parquet"])
def test_what_is_kept_of_a_run_later_counts(fresh, tmp_path, place):
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "some.more").touch()
    assert not fresh()


def test_what_had_nothing_to_draw_is_asked_again_and_where_the_mark_is_damaged(fresh, tmp_path):
    Now("smoke", ["some"], tmp_path / "outputs").done("some", drawn=False)
    assert not fresh()
    (tmp_path / "outputs/notebooks/smoke/.some.done").write_text("damaged")
    assert not fresh()

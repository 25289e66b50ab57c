"""The reference is read as it was written, and its times are scaled to the speed and cores of a machine."""

import json

import pytest

from lib.base import processes
from lib.workbook import reference
from lib.workbook.reference import Entry, Reference

KNOWN = Reference(
    flops_per_second=2e9,
    cores=2,
    whole={"cpu": 95.0},
    entries={"cpu": {name: Entry(seconds=s, verdicts={}, made_from=0) for name, s in {"a": 60.0, "b": 30.0}.items()}},
)


def test_it_is_read_as_it_was_written(tmp_path):
    reference.write(KNOWN, tmp_path / "reference.json")
    assert reference.read(tmp_path / "reference.json") == KNOWN
    assert json.loads((tmp_path / "reference.json").read_text())["cores"] == 2


def test_without_a_file_nothing_was_timed(tmp_path):
    assert reference.read(tmp_path / "reference.json").seconds(["a"], "cpu") == 0


def test_notebooks_take_their_sum_and_unknown_ones_nothing():
    assert KNOWN.seconds(["a", "b"], "cpu") == 90
    assert KNOWN.seconds(["a", "new"], "cpu") == 60
    assert KNOWN.seconds(["a"], "gpu") == 0


@pytest.mark.parametrize(
    ("rate", "cores", "times"), [(2e9, 2, 1.0), (1e9, 2, 2.0), (2e9, 1, 2.0), (0.5e9, 1, 8.0), (4e9, 16, 0.5)]
)
def test_slower_and_fewer_cores_take_longer(monkeypatch, rate, cores, times):
    monkeypatch.setattr(reference, "yardstick", lambda: rate)
    monkeypatch.setattr(processes, "cores", lambda: cores)
    assert KNOWN.slowdown() == times


@pytest.mark.precision
def test_the_yardstick_is_the_rate_of_training():
    """A model of 64 is trained at more than a hundredth of a GFLOP/s, and at less than a core's peak."""
    assert 1e7 < reference.yardstick() < 1e12


def test_times_are_spelled_in_what_one_plans_with():
    assert [reference.spell(s) for s in (9.4, 99.0, 101.0, 5400.0)] == ["9 s", "99 s", "2 min", "90 min"]

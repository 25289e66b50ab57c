"""Parameters are typed, frozen and of known names, and what they refuse is one line with the field."""

from typing import ClassVar

import pytest

from lib.base.parameters import Computing, Positive, Training
from tests.lines import one_line


class Some(Computing):
    notebook: ClassVar[str] = "some"

    lrs: list[float]
    depths: list[Positive]
    widths: dict[float, list[int]]
    widths_at: dict[int, list[int]]

    in_part = ("lrs", "widths")


SOME = Some(profile="cpu", lrs=[0.1], depths=[4, 8], widths={1e9: [8]}, widths_at={})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"profile": "huge"}, "profile: 'huge' is not known, use one of smoke, cpu, desk, gpu, paper"),
        ({"lrz": [0.1]}, "lrz: unknown name, remove it or correct its spelling"),
        ({"lrs": []}, "lrs: [] is empty or names something twice, list each once"),
        ({"lrs": [float("nan")]}, "lrs.0: input should be a finite number"),
        ({"depths": [4, 0]}, "depths.1: input should be greater than or equal to 1 (got 0)"),
        ({"widths": {}}, "widths: {} is empty"),
        ({"widths_at": {8: [8, 8]}}, "widths_at: {8: [8, 8]} is empty or names something twice"),
        ({"jobs": -1}, "jobs: input should be greater than or equal to 0 (got -1)"),
    ],
)
def test_what_is_refused_is_one_line_that_names_the_field(changes, says):
    with one_line(starts=says):
        SOME.replace(**changes)


@pytest.mark.parametrize(("field", "value"), [("vocab_size", -1), ("context", 0), ("batch", 0), ("batch", -1)])
def test_what_a_run_has_some_of_is_positive_everywhere(field, value):
    """These are divided by and taken logarithms of before any config is made."""
    with one_line(starts=f"{field}: input should be greater than or equal to 1 (got {value})"):
        Training(profile="cpu", **{field: value})


def test_parts_have_the_first_values_of_lists_and_tables():
    p = SOME.replace(lrs=[0.1, 0.2, 0.3], widths={1e9: [8], 2e9: [8, 16]})
    first = {"lrs": [0.1], "widths": {1e9: [8]}}
    assert p.parts() == [first, {"lrs": [0.1, 0.2], "widths": p.widths}] and SOME.parts() == []
    assert p.replace(**first).widths == {1e9: [8]}


def test_lists_of_seeds_are_known_by_their_names():
    class Tuned(Computing):
        notebook: ClassVar[str] = "tuned"

        seeds: list[int]
        tuning_seeds: list[int]
        seeds_at: dict[int, list[int]]

    own = {"seeds": [1, 2], "tuning_seeds": [7]}
    assert Tuned(profile="cpu", seeds_at={8: [1]}, **own).seed_lists() == own

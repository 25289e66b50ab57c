"""What somebody fills in is frozen, of known names, and refused in one line."""

import pytest

from lib.base.checked import Checked
from tests.lines import one_line


class Part(Checked):
    lr: float = 0.1


class Whole(Checked):
    part: Part = Part()
    steps: int = 3


def test_a_copy_is_checked_keeps_its_parts_and_nothing_is_set():
    whole = Whole()
    again = whole.replace(steps=4)
    assert (again.steps, whole.steps) == (4, 3) and again.part is whole.part
    with one_line(starts="steps: input should be a valid integer"):
        whole.replace(steps="many")
    with one_line(starts="part: stpes: unknown name, remove it or correct its spelling"):
        Whole(part={"stpes": 3})
    with pytest.raises(ValueError, match="frozen"):
        whole.steps = 5

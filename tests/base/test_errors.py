"""A complaint about bad input is one line with every field, in IPython and at the end of a command alike."""

import pytest

from lib.base import errors
from lib.base.errors import Checked
from tests.lines import one_line


def test_ipython_shows_the_line_alone_and_a_command_ends_in_it(capsys):
    def raises(error):
        raise error

    assert errors.InputError("lr: wrong, mend it")._render_traceback_() == ["InputError: lr: wrong, mend it"]
    errors.in_one_line(print, "fine")
    for error in (errors.InputError("lr: mend it"), OSError("gone")):
        with pytest.raises(SystemExit) as ended:
            errors.in_one_line(raises, error)
        assert ended.value.code == error.args[0]
    with pytest.raises(SystemExit, match="no package x: run make env"):
        errors.in_one_line(raises, ModuleNotFoundError("no package x"))
    secret = OSError("no answer from http://me:secret@host/a\nand more")
    assert errors.first_line(secret) == "no answer from http://host/a"
    with pytest.raises(SystemExit) as ended:
        errors.in_one_line(raises, KeyboardInterrupt(), stopped="to be continued")
    assert ended.value.code == 130 and capsys.readouterr().err == "to be continued\n"
    with pytest.raises(ZeroDivisionError):
        errors.in_one_line(raises, ZeroDivisionError())


class Part(Checked):
    lr: float = 0.1


class Needs(Checked):
    lr: float
    steps: int


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
    with one_line("; steps: is required", "; stepps: unknown name", starts="lr: input should be a valid number, "):
        Needs(lr="fast", stepps=3)
    with pytest.raises(ValueError, match="frozen"):
        whole.steps = 5

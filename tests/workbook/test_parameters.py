"""Parameters are those of a cell with a profile's over them, and become what their class says or are refused."""

import json
import types
from typing import ClassVar

import pytest

from lib.base.errors import InputError
from lib.base.parameters import Computing
from lib.workbook.parameters import checked, of_cell, of_profile
from tests.lines import one_line
from tests.workbooks import moved


class X(Computing):
    notebook: ClassVar[str] = "x"

    lrs: list[float]
    steps: int
    names: list[str]
    tied: bool
    widths: dict[float, list[int]]
    backprop: int | str


CELL = """# Parameters
profile: str = "cpu"  # smoke, cpu, desk, gpu or paper
lrs: list[float] = [1e-3]  # a comment = 3
steps: int = 3
names: list[str] = ["a"]
tied: bool = False
widths: dict[float, list[int]] = {1e9: [8]}
backprop: int | str = "half"
outputs: str = "outputs"
train: bool = True
jobs: int = 0
max_hours: float = 0.5
"""
VALUES = {
    "profile": "cpu",
    "lrs": [1e-3],
    "steps": 3,
    "names": ["a"],
    "tied": False,
    "widths": {1e9: [8]},
    "backprop": "half",
    "outputs": "outputs",
    "train": True,
    "jobs": 0,
    "max_hours": 0.5,
}

# ---- as files have them ----------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A workbook of one notebook, x, with a file for smoke."""
    moved(monkeypatch, tmp_path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "params" / "smoke").mkdir(parents=True)
    write_notebook(tmp_path, CELL)
    (tmp_path / "params" / "smoke" / "x.yaml").write_text("# seconds\nprofile: smoke\nlrs: [0.25]\nmax_hours: 1\n")
    return tmp_path


def write_notebook(root, source):
    others = [{"cell_type": "markdown", "metadata": {}, "source": ["# X"]}]
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": source.splitlines(keepends=True)}
    (root / "notebooks" / "x.ipynb").write_text(json.dumps({"cells": [*others, cell]}))


def test_a_profile_is_laid_over_the_notebooks_own_cell(root):
    assert of_cell("x") == VALUES
    assert of_profile("smoke", "x") == {**VALUES, "profile": "smoke", "lrs": [0.25], "max_hours": 1}
    assert [*of_profile("smoke", "x")] == [*VALUES]  # in the order of the cell


@pytest.mark.parametrize(
    ("profile", "text", "says"),
    [
        ("smoke", "stepz: 3", "stepz: is not a parameter of x, did you mean 'steps'?"),
        ("smoke", "profile: smoke\nqqq: 3", "qqq: is not a parameter of x, use one of profile, lrs, steps, names"),
        ("smoke", "x = print(1); steps: 3", "x = print(1); steps: is not a parameter of x"),  # papermill would run it
        ("smoke", "? [1, 2]\n: 3", "profile: "),
        ("smoke", "1: 3", "1: is not a parameter of x"),
        ("smoke", "", "profile: "),
        ("smoke", "[1", "profile: "),
        *(("smoke", text, "profile: ") for text in ("steps: 010", "lrs: [1:30.5]", "lrs: &a [*a]", "steps: -0_7")),
        ("smoke", "steps: 1\nlrs: [1]\nsteps: 2", "steps: stands twice"),
        ("gpu", None, "profile: params/gpu/x.yaml does not exist, use one of smoke, cpu, desk, gpu, paper"),
    ],
)
def test_a_bad_file_of_a_profile_is_one_line(root, profile, text, says):
    if text is not None:
        (root / "params" / profile / "x.yaml").write_text(text)
    with one_line(starts=says):
        of_profile(profile, "x")


# ---- as a kernel has them --------------------------------------------------------------------------------------------


def read(**injected) -> X:
    return checked(X, {**VALUES, **injected}, fresh=True)


@pytest.mark.parametrize(
    ("injected", "expected"),
    [
        ({"lrs": "[1e-3, 2]"}, {"lrs": [1e-3, 2.0]}),  # papermill -p lrs '[1e-3, 2]'
        ({"lrs": ["3e-4", "1e-3"]}, {"lrs": [3e-4, 1e-3]}),  # YAML reads 3e-4 as text
        ({"max_hours": "2e-1"}, {"max_hours": 0.2}),
        ({"max_hours": 2}, {"max_hours": 2.0}),
        ({"steps": "12"}, {"steps": 12}),
        ({"names": "[b, c]"}, {"names": ["b", "c"]}),
        ({"outputs": "123"}, {"outputs": "123"}),
        ({"tied": "yes"}, {"tied": True}),
        ({"tied": 1}, {"tied": True}),
        ({"widths": "{1e9: [8, 16]}"}, {"widths": {1e9: [8, 16]}}),
        ({"backprop": "all"}, {"backprop": "all"}),
        ({"backprop": 4}, {"backprop": 4}),
    ],
)
def test_text_from_papermill_and_yaml_becomes_what_the_class_says(injected, expected):
    found = read(**injected)
    for name, value in expected.items():
        assert getattr(found, name) == value and type(getattr(found, name)) is type(value)


@pytest.mark.parametrize(
    ("injected", "says"),
    [
        ({"stepz": 3}, "stepz: is not a parameter of x, did you mean 'steps'?"),
        ({"qqq": 3}, "qqq: is not a parameter of x, use one of"),
        ({"qqq": None}, "qqq: is not a parameter of x, use one of"),
        ({"steps": 2.5}, "steps: input should be a valid integer"),
        ({"steps": "many"}, "steps: input should be a valid integer"),
        ({"steps": "[1"}, "steps: input should be a valid integer"),
        ({"lrs": 0.1}, "lrs: input should be a valid list"),
        ({"lrs": ["fast"]}, "lrs.0: input should be a valid number"),
        ({"lrs": []}, "lrs: [] is empty or names something twice"),
        ({"lrs": [0.1, 0.1]}, "lrs: [0.1, 0.1] is empty or names something twice"),
        ({"steps": None}, "steps: input should be a valid integer (got None)"),
        ({"steps": True}, "steps: takes no true or false (got True), give it as int"),
        ({"lrs": "[on]"}, "lrs: takes no true or false (got [True])"),
        ({"max_hours": float("nan")}, "max_hours: input should be a finite number (got nan)"),
        ({"outputs": 7}, "outputs: input should be text (got 7), papermill's -r"),
        ({"widths": {}}, "widths: {} is empty"),
        ({"widths": {1e9: [8, 8]}}, "widths: {1000000000.0: [8, 8]} is empty or names something twice"),
        ({"widths": {1e9: []}}, "widths: {1000000000.0: []} is empty"),
        ({"widths": {True: [8]}}, "widths: takes no true or false"),
        ({"outputs": "~/x"}, "outputs: '~/x' would be a folder called ~, write the whole path"),
        ({"profile": "huge"}, "profile: 'huge' is not known, use one of smoke, cpu, desk, gpu, paper"),
    ],
)
def test_a_bad_parameter_is_one_line(injected, says):
    with one_line(starts=says):
        read(**injected)


def test_a_missing_parameter_is_named():
    with pytest.raises(InputError, match="steps: is not set"):
        checked(X, {name: value for name, value in VALUES.items() if name != "steps"}, fresh=True)


def test_what_a_kernel_has_of_its_own_is_no_parameter():
    """IPython's, what is imported, constants, and, where it is not fresh, all that cells have made."""
    own = {"In": ["", "x"], "Out": {}, "_": 3, "__doc__": "text", "CASES": [1], "json": json, "Computing": Computing}
    assert read(**own, exit=types.SimpleNamespace()) == X(**VALUES)
    assert checked(X, {**VALUES, "frame": 3}, fresh=False) == X(**VALUES)
    with one_line("frame: is not a parameter of x"):
        read(frame=3)


def kernel_of(source: str, **made) -> dict:
    """The namespace of a kernel that ran a parameters cell, and what else was made in it."""
    namespace = {**made}
    exec(source, namespace)
    return namespace


MISSPELT = CELL.replace("steps: int = 3", "steps: int = 3\nstepz: int = 4\nqqq: int = 5")


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_name_in_the_parameters_cell_is_refused_at_every_start_until_it_is_corrected(fresh, by_hand):
    namespace = kernel_of(CELL)
    assert checked(X, namespace, fresh=True, by_hand=by_hand) == X(**VALUES)
    exec(MISSPELT, namespace)
    for _ in range(2):  # not corrected yet
        with one_line(starts="stepz: is not a parameter of x, did you mean 'steps'?"):
            checked(X, namespace, fresh, by_hand)
        exec(MISSPELT, namespace)
    with one_line(starts="stepz: "):
        checked(X, namespace, fresh, by_hand)
    exec(CELL, namespace)
    assert checked(X, namespace, fresh, by_hand) == X(**VALUES)


def test_what_somebody_makes_by_hand_is_no_parameter_unless_it_is_close_to_one():
    namespace = kernel_of(CELL, scratch=3)
    assert checked(X, namespace, fresh=True, by_hand=True) == X(**VALUES) and namespace["scratch"] == 3
    namespace["lrss"] = [0.5]
    with one_line(starts="lrss: is not a parameter of x, did you mean 'lrs'?"):
        checked(X, namespace, fresh=True, by_hand=True)
    assert checked(X, namespace, fresh=True, by_hand=True) == X(**VALUES)
    namespace["step"] = 3  # of a loop in a later cell
    assert checked(X, namespace, fresh=False, by_hand=True) == X(**VALUES) and namespace["step"] == 3

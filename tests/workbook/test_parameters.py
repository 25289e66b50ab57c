"""Parameters are those of a class, with desk's and a profile's over them, and what somebody gives over all."""

import json
import types
from typing import ClassVar

import numpy as np
import pytest

from lib.base.parameters import Training
from lib.workbook.parameters import Filled, given, of_cell, told
from tests.given import of_profile
from tests.lines import one_line
from tests.workbooks import moved


class X(Training):
    notebook: ClassVar[str] = "x"

    lrs: list[float]
    steps: int
    names: list[str]
    tied: bool
    widths: dict[float, list[int]]
    backprop: int | str
    head_dim: int = 8


CELL = """# Parameters
profile: str = "desk"  # smoke, cpu, desk, gpu or paper
lrs: list[float] = [1e-3]  # a comment = 3
steps: int = 3
names: list[str] = ["a"]
tied: bool = False
widths: dict[float, list[int]] = {1e9: [8]}
backprop: int | str = "half"
"""
CHECK = f"from {__name__} import X\nfrom lib.workbook import notebook\nnb = notebook.start(X, globals())"
DESK = "profile: desk\nlrs: [1.0e-3]\nsteps: 3\nnames: [a]\ntied: false\nwidths: {1.0e+9: [8]}\nbackprop: half\n"
FILES = {
    "desk/x": DESK,
    "desk/shared": "train: false\n",
    "smoke/shared": "max_hours: 0.05\ncontext: 32\n",
    "smoke/x": "# seconds\nprofile: smoke\nlrs: [0.25]\nmax_hours: 1\nhead_dim: 4\n",
    "addendum/x": "profile: addendum\nsteps: 5\n",
}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """A workbook of one notebook, x."""
    moved(monkeypatch, tmp_path)
    (tmp_path / "notebooks").mkdir()
    for name, text in FILES.items():
        path = tmp_path / "params" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    cells = [
        {"cell_type": "code", "metadata": {"tags": [tag]}, "source": source.splitlines(keepends=True)}
        for tag, source in (("parameters", CELL), ("check", CHECK))
    ]
    (tmp_path / "notebooks" / "x.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


# ---- as the workbook has them ----------------------------------------------------------------------------------------


def at(profile: str, **changes) -> X:
    return X(**{**of_profile(profile, "x"), **changes})


def test_a_profile_lies_over_desk_and_desk_over_the_class():
    desk = dict(lrs=[1e-3], steps=3, names=["a"], tied=False, widths={1e9: [8]}, backprop="half")
    assert of_cell("x") == {"profile": "desk", **desk}
    assert at("desk") == X(profile="desk", train=False, **desk)
    assert at("smoke") == X(profile="smoke", max_hours=1, context=32, **{**desk, "lrs": [0.25], "head_dim": 4})
    assert at("addendum") == at("desk", steps=5).replace(profile="addendum")


def test_the_table_of_tokens_is_the_tokenizers_unless_somebody_says_how_large():
    assert at("desk").vocab_size == 256 and at("desk", tokenizer="bpe-512").vocab_size == 512
    assert at("desk", tokenizer="bpe-512", vocab_size=1024).vocab_size == 1024
    with one_line(starts="tokenizer: 'mine' is not bytes, bpe-SIZE or a tokenizer.json"):
        at("desk", tokenizer="mine")


@pytest.mark.parametrize(
    ("profile", "text", "says"),
    [
        ("smoke", "stepz: 3", "stepz: is not a parameter of x.yaml, did you mean 'steps'?"),
        ("smoke", "profile: smoke\nqqq: 3", "qqq: is not a parameter of x.yaml, use one of profile, outputs, "),
        ("smoke", "x = print(1); steps: 3", "x = print(1); steps: is not a parameter"),  # papermill would run it
        ("smoke", "? [1, 2]\n: 3", "profile: "),
        ("smoke", "", "profile: "),
        ("smoke", "[1", "profile: "),
        ("smoke", "- steps\n- 3", "profile: "),
        ("smoke", "steps: !!python/object/apply:os.system ['false']", "profile: "),
        *(("smoke", text, "profile: ") for text in ("steps: 010", "lrs: [1:30.5]", "lrs: &a [*a]", "steps: -0_7")),
        ("smoke", "steps: 1\nlrs: [1]\nsteps: 2", "steps: stands twice"),
        ("smoke/shared", "steps: 3", "steps: is not a parameter of shared.yaml, use one of"),
        ("gpu", None, "profile: 'gpu' has no params/gpu/x.yaml, use one of smoke, cpu, desk, gpu, paper"),
    ],
)
def test_a_bad_file_of_a_profile_is_one_line(root, profile, text, says):
    if text is not None:
        (root / "params" / f"{profile if '/' in profile else f'{profile}/x'}.yaml").write_text(text)
    with one_line(starts=says):
        of_profile(profile.split("/")[0], "x")


# ---- as somebody gives them ------------------------------------------------------------------------------------------


def kernel_of(source: str = CELL, **made) -> dict:
    """The namespace of a kernel that ran a parameters cell, and what else was made in it."""
    namespace = {**made, "In": ["", source]}
    exec(source, namespace)
    return namespace


def inject(namespace: dict, **values) -> dict:
    """Papermill's cell behind it."""
    namespace["In"].append("\n".join(["# Parameters", *(f"{name} = {value!r}" for name, value in values.items())]))
    namespace.update(values)
    return namespace


def held(namespace: dict, fresh: bool = True, by_hand: bool = False) -> X:
    """The parameters that a start comes to."""
    found = given(X, namespace, fresh, by_hand)
    return X(**{**of_profile(found.get("profile", "desk"), "x"), **found})


def read(**injected) -> X:
    return held(inject(kernel_of(), **injected))


def test_nothing_given_is_desk_and_a_profile_brings_its_values():
    assert held(kernel_of()) == at("desk")
    assert held(kernel_of(CELL.replace("desk", "smoke", 1))) == read(profile="smoke") == at("smoke")


def test_what_is_injected_holds_also_where_it_is_desks_value():
    assert read(profile="smoke", lrs=[1e-3], head_dim=8, batch=2) == at("smoke", lrs=[1e-3], head_dim=8, batch=2)


def test_what_is_edited_in_the_cell_holds_and_an_edit_to_desks_value_cannot_be_seen():
    edited = CELL.replace("desk", "smoke", 1).replace("steps: int = 3", "steps: int = 4")
    assert held(kernel_of(edited)) == at("smoke", steps=4)
    assert held(kernel_of(CELL.replace("desk", "smoke", 1) + "batch: int = 2\n")) == at("smoke", batch=2)
    assert "lrs [0.25], steps 4 (changed)" in told(at("smoke", steps=4), at("smoke"))
    assert told(at("desk"), at("desk")) == "desk: all parameters as above"


def test_a_cell_that_was_run_again_after_an_injection_undoes_it():
    namespace = inject(kernel_of(), profile="smoke", steps=3)
    namespace["In"].append(CELL)
    exec(CELL, namespace)
    assert held(namespace) == at("desk")


def test_what_a_start_filled_in_is_no_edit_at_the_next():
    namespace = kernel_of(CELL.replace("desk", "smoke", 1).replace("steps: int = 3", "steps: int = 4"))

    def start() -> X:
        found = held(namespace, fresh=False)
        starts.append(Filled.into(namespace, found.model_dump()))
        return found

    starts: list[Filled] = []
    first = start()
    assert namespace["lrs"] == [0.25] and namespace["batch"] == 8
    starts[-1].take_out(namespace)
    assert namespace["lrs"] == [1e-3] and namespace["steps"] == 4 and "batch" not in namespace
    assert start() == first
    starts[-1].take_out(namespace)
    namespace["In"].append("batch = 2")  # somebody sets it in a cell of their own
    namespace.update(batch=2, profile="desk")
    assert start() == at("desk", steps=4, batch=2)
    starts[-1].take_out(namespace)
    assert start() == at("desk", steps=4, batch=2)
    namespace["In"].append(CELL + "batch: int = 4\n")
    exec(namespace["In"][-1], namespace)
    starts[-1].take_out(namespace)
    assert start() == at("desk", batch=4)
    namespace["In"].append(CELL)  # without that line again
    exec(CELL, namespace)
    namespace["tied"] = np.zeros(2)  # of a loop by hand
    starts[-1].take_out(namespace)
    assert namespace.pop("tied").shape == (2,) and start() == at("desk")


@pytest.mark.parametrize(
    ("injected", "expected"),
    [
        ({"lrs": "[1e-3, 2]"}, {"lrs": [1e-3, 2.0]}),  # papermill -p lrs '[1e-3, 2]'
        ({"lrs": ["3e-4", "1e-3"]}, {"lrs": [3e-4, 1e-3]}),  # YAML reads 3e-4 as text
        ({"max_hours": "2e-1"}, {"max_hours": 0.2}),
        ({"steps": "12"}, {"steps": 12}),
        ({"names": "[b, c]"}, {"names": ["b", "c"]}),
        ({"outputs": "123"}, {"outputs": "123"}),
        ({"tied": "yes"}, {"tied": True}),
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
        ({"steps": "[1"}, "steps: input should be a valid integer"),
        ({"lrs": 0.1}, "lrs: input should be a valid list"),
        ({"steps": True}, "steps: takes no true or false (got True), give it as int"),
        ({"lrs": "[on]"}, "lrs: takes no true or false (got [True])"),
        ({"outputs": 7}, "outputs: input should be text (got 7), papermill's -r"),
        ({"widths": {1e9: []}}, "widths: {1000000000.0: []} is empty"),
        ({"widths": {True: [8]}}, "widths: takes no true or false"),
        ({"outputs": "~/x"}, "outputs: '~/x' would be a folder called ~, write the whole path"),
        ({"profile": "huge"}, "profile: 'huge' has no params/huge/x.yaml, use one of smoke, cpu, desk, gpu, paper"),
    ],
)
def test_a_bad_parameter_is_one_line(injected, says):
    with one_line(starts=says):
        read(**injected)


def test_what_a_kernel_has_of_its_own_is_no_parameter():
    """IPython's, what is imported, constants, and, where it is not fresh, all that cells have made."""
    own = {"Out": {}, "_": 3, "__doc__": "text", "CASES": [1], "json": json, "Training": Training}
    assert held(kernel_of(**own, exit=types.SimpleNamespace())) == at("desk")
    assert held(kernel_of(frame=3), fresh=False) == at("desk")
    with one_line("frame: is not a parameter of x"):
        held(kernel_of(frame=3))


MISSPELT = CELL.replace("steps: int = 3", "steps: int = 3\nstepz: int = 4\nqqq: int = 5")


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_name_in_the_parameters_cell_is_refused_at_every_start_until_it_is_corrected(fresh, by_hand):
    namespace = kernel_of()
    assert held(namespace, by_hand=by_hand) == at("desk")
    exec(MISSPELT, namespace)
    for _ in range(2):  # not corrected yet
        with one_line(starts="stepz: is not a parameter of x, did you mean 'steps'?"):
            held(namespace, fresh, by_hand)
        exec(MISSPELT, namespace)
    with one_line(starts="stepz: "):
        held(namespace, fresh, by_hand)
    exec(CELL, namespace)
    assert held(namespace, fresh, by_hand) == at("desk")


def test_what_somebody_makes_by_hand_is_no_parameter_unless_it_is_close_to_one():
    namespace = kernel_of(scratch=3)
    assert held(namespace, by_hand=True) == at("desk") and namespace["scratch"] == 3
    namespace["lrss"] = [0.5]
    with one_line(starts="lrss: is not a parameter of x, did you mean 'lrs'?"):
        held(namespace, by_hand=True)
    assert held(namespace, by_hand=True) == at("desk")
    namespace["step"] = 3  # of a loop in a later cell
    assert held(namespace, fresh=False, by_hand=True) == at("desk") and namespace["step"] == 3

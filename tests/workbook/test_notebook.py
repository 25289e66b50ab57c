"""Parameters become what their annotations say or are refused in one line, and figures carry their provenance."""

import json

import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig
from lib.figures import style
from lib.sweep.cost import run_flops
from lib.workbook import notebook
from tests.lines import one_line
from tests.workbooks import ROOT

TYPES = {
    "profile": str,
    "lrs": list[float],
    "steps": int,
    "jobs": int,
    "max_hours": float,
    "outputs": str,
    "names": list[str],
    "tied": bool,
    "widths": dict[float, list[int]],
}
VALUES = {
    "profile": "cpu",
    "lrs": [1e-3],
    "steps": 3,
    "jobs": 0,
    "max_hours": 0.5,
    "outputs": "outputs",
    "names": ["a"],
    "tied": False,
    "widths": {1e9: [8]},
}


@pytest.fixture(autouse=True)
def a_notebook(monkeypatch):
    """A notebook named x with the parameters above, in a fresh kernel."""
    read = notebook.read_parameters
    monkeypatch.setattr(notebook, "read_parameters", lambda p, name: dict(VALUES) if name == "x" else read(p, name))
    monkeypatch.setattr(notebook, "_cells_seen", 0)
    monkeypatch.chdir(ROOT)


def start(*cells, **injected):
    """Runs a parameters cell and an injected one, then the check."""
    namespace = {"__annotations__": TYPES, **VALUES, **injected}
    source = "# Parameters\n" + "\n".join(f"{k} = {v!r}" for k, v in injected.items())
    namespace["In"] = ["", *cells, source]
    notebook.start("x", namespace)
    return namespace


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
        ({"tied": 1}, {"tied": True}),
        ({"widths": "{1e9: [8, 16]}"}, {"widths": {1e9: [8, 16]}}),
    ],
)
def test_text_from_papermill_and_yaml_becomes_what_the_annotation_says(injected, expected):
    namespace = start(**injected)
    for name, value in expected.items():
        assert namespace[name] == value and type(namespace[name]) is type(value)


@pytest.mark.parametrize(
    ("injected", "says"),
    [
        ({"stepz": 3}, "stepz: is not a parameter of x, did you mean 'steps'?"),
        ({"qqq": 3}, "qqq: is not a parameter of x, use one of"),
        ({"steps": 2.5}, "steps: input should be a valid integer"),
        ({"steps": "many"}, "steps: input should be a valid integer"),
        ({"lrs": 0.1}, "lrs: input should be a valid list"),
        ({"lrs": ["fast"]}, "lrs.0: input should be a valid number"),
        ({"lrs": []}, "lrs: [] is empty or names something twice"),
        ({"lrs": [0.1, 0.1]}, "lrs: [0.1, 0.1] is empty or names something twice"),
        ({"steps": None}, "steps: input should be a valid integer (got None)"),
        ({"steps": True}, "steps: takes no true or false (got True)"),
        ({"lrs": "[on]"}, "lrs: takes no true or false (got [True])"),
        ({"max_hours": float("nan")}, "max_hours: input should be a finite number (got nan)"),
        ({"outputs": 7}, "outputs: input should be text (got 7), papermill's -r"),
        ({"widths": {}}, "widths: {} is empty"),
        ({"widths": {1e9: [8, 8]}}, "widths: {1000000000.0: [8, 8]} is empty or names something twice"),
        ({"widths": {1e9: []}}, "widths: {1000000000.0: []} is empty"),
        ({"profile": "huge"}, "profile: 'huge' is not known, use one of smoke, cpu, gpu, paper"),
    ],
)
def test_a_bad_parameter_is_one_line(injected, says):
    with one_line(starts=says):
        start(**injected)


def test_an_edited_cell_is_checked_too():
    with pytest.raises(InputError, match="lrz: is not a parameter of x, did you mean 'lrs'"):
        start("# Parameters\nlrz: list[float] = [1.0]  # typo")


def test_names_that_later_cells_make_are_not_parameters():
    namespace = start()
    namespace["frame"] = 3
    namespace["In"] += ["frame = 3", "# Parameters\nsteps = 4"]
    namespace["steps"] = 4
    notebook.start("x", namespace)
    assert namespace["steps"] == 4


def test_a_missing_parameter_is_named():
    with pytest.raises(InputError, match="steps: is not set"):
        notebook.start("x", {"__annotations__": TYPES, **{k: v for k, v in VALUES.items() if k != "steps"}, "In": []})


def test_figures_and_claims_carry_their_provenance(tmp_path):
    import matplotlib.pyplot as plt

    nb = notebook.Notebook("instability", {"profile": "cpu", "steps": 3}, tmp_path)
    figure, _ = plt.subplots()
    nb.save(figure, "a_figure")
    stamp = json.loads((tmp_path / "figures" / "cpu" / "a_figure.json").read_text())
    assert not plt.fignum_exists(figure.number)  # it has been shown, and would be again at the end of the cell
    assert stamp["parameters"] == {"profile": "cpu", "steps": 3} and stamp["notebook"] == "instability"
    assert {"commit", "torch", "device", "python"} <= set(stamp)
    finding = nb.claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades")
    assert finding.provenance["parameters"] == {"profile": "cpu", "steps": 3} and "commit" in finding.provenance
    assert finding.verdict == "reproduced" and (tmp_path / "claims" / "cpu" / "001-base-state-explodes.json").exists()
    with pytest.raises(InputError, match=r"is not in params/claims.yaml"):
        nb.claim("001-no-such-claim", [1.0], [1], "")


def test_a_plan_says_which_notebooks_share_its_runs(tmp_path):
    model = ModelConfig(vocab_size=256, width=16, heads=2, mlp_width=32, context=32)
    data = DataConfig(context=32, content="text")
    runs = {lr: RunConfig(model=model, data=data, optim=OptimConfig(lr=lr)) for lr in (1e-3, 2e-3, 4e-3)}
    a, b = (notebook.Notebook(name, {"profile": "cpu"}, tmp_path) for name in ("a", "b"))
    first = a.plan({("slow", lr): runs[lr] for lr in (1e-3, 2e-3)})
    assert first["shared with"].tolist() == [""]
    assert first["FLOPs"].tolist() == pytest.approx([sum(run_flops(runs[lr]) for lr in (1e-3, 2e-3))])
    second = b.plan({("slow", 2e-3): runs[2e-3], ("fast", 4e-3): runs[4e-3], ("again", 4e-3): runs[4e-3]})
    assert second["shared with"].to_dict() == {"slow": "a (1)", "fast": "", "again": ""}
    assert a.plan({("slow", 2e-3): runs[2e-3]})["shared with"].tolist() == ["b (1)"]
    assert b.plan({("fast", 4e-3): runs[4e-3], ("fast", "twice"): runs[4e-3]})["runs"].tolist() == [1]
    tokens = runs[1e-3].tokens
    assert first["tokens per run"].tolist() == [tokens]  # all of a group's, or the least and the most
    longer = runs[1e-3].replace(train=runs[1e-3].train.replace(steps=3 * runs[1e-3].train.steps))
    mixed = a.plan({("slow", 1): runs[1e-3], ("slow", 3): longer})["tokens per run"].tolist()
    assert mixed == [f"{style.short(tokens)} to {style.short(3 * tokens)}"]


def test_a_table_lies_in_its_profiles_folder_with_its_provenance(tmp_path):
    table = pd.DataFrame({"share": [1 / 3, 2 / 3]}, index=pd.Index(["a", "b"], name="of"))
    assert notebook.Notebook("x", {"profile": "cpu"}, tmp_path).save_table(table, "shares", digits=2) is table
    folder = tmp_path / "tables" / "cpu"
    assert (folder / "shares.csv").read_text().split() == ["of,share", "a,0.33", "b,0.67"]
    assert json.loads((folder / "shares.json").read_text())["notebook"] == "x"


def test_counts_below_one_are_refused_by_name():
    nb = notebook.Notebook("x", {"depths": [4, 0], "rounds": 0, "steps": 1}, ROOT)
    nb.need_positive("steps")
    with pytest.raises(InputError, match=r"depths: \[4, 0\] is too small, use at least 1"):
        nb.need_positive("steps", "depths")
    with pytest.raises(InputError, match="rounds: 0 is too small"):
        nb.need_positive("rounds")

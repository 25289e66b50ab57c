"""A notebook starts with checked parameters, plans without training, and stamps all that it writes with provenance."""

import json
import os
from typing import ClassVar

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from jupyter_client.manager import start_new_kernel

from lib.base.errors import InputError
from lib.base.parameters import Computing
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig
from lib.figures import style
from lib.flops import run_flops
from lib.papers.isodepth.parameters import PublishedRuns
from lib.papers.looped_moe.parameters import Generate
from lib.workbook import claims, documents, notebook, report
from tests.lines import one_line
from tests.workbooks import ROOT, a_notebook


class X(Computing):
    notebook: ClassVar[str] = "x"

    lrs: list[float]
    steps: int


VALUES = {"profile": "cpu", "outputs": "outputs", "lrs": [1e-3], "steps": 3, "train": True, "jobs": 0, "max_hours": 0.5}


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(cwd=ROOT)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture(autouse=True)
def somewhere(monkeypatch, tmp_path, style):
    """Not in the workbook; where a notebook is started, goes back after the test."""
    monkeypatch.chdir(tmp_path)


def start(**injected):
    """The namespace of a kernel that ran a parameters cell, an injected one, and the check."""
    namespace = {**VALUES, **injected}
    namespace["nb"] = notebook.start(X, namespace)
    return namespace


def test_a_notebook_starts_at_the_root_with_what_its_parameters_came_to():
    namespace = start(lrs="[1e-3, 2]", max_hours="2e-1")  # as papermill -p passes them
    nb = namespace["nb"]
    assert nb.parameters == X(**VALUES).replace(lrs=[1e-3, 2.0], max_hours=0.2)
    assert (namespace["lrs"], namespace["max_hours"]) == ([1e-3, 2.0], 0.2)
    assert (nb.name, nb.profile, nb.outputs) == ("x", "cpu", ROOT / "outputs")
    assert os.getcwd() == str(ROOT) and nb.changed == []


def test_a_folder_that_cannot_be_written_to_is_one_line_and_changes_nothing():
    here = os.getcwd()
    with one_line(starts=f"outputs: {ROOT}/Makefile/x cannot be written to, choose another place"):
        start(outputs="Makefile/x")
    assert os.getcwd() == here


PARAMETERS = 'profile: str = "cpu"\noutputs: str = {outputs!r}\nlrs: list[float] = [0.5]\n'
CHECK = "from tests.workbooks import Few\nfrom lib.workbook import notebook\nnb = notebook.start(Few, globals())"


@pytest.mark.parametrize("somebody", [True, False])
def test_a_corrected_cell_is_started_in_the_same_kernel(kernel, somebody, tmp_path):
    """As JupyterLab sends cells, and as papermill does."""

    def says(cell: str) -> str:
        """The last line of what is raised; empty where nothing is."""
        done = kernel.execute_interactive(cell, timeout=240, allow_stdin=somebody, output_hook=lambda message: None)
        return done["content"].get("evalue", "")

    cell = PARAMETERS.format(outputs=str(tmp_path))
    assert says("%reset -f") == says("scratch = 3") == says(cell + "lrss = [0.1]") == ""
    unknown = "lrss" if somebody else "scratch"
    assert says(CHECK).startswith(f"{unknown}: is not a parameter of few")
    assert says(cell) == says(CHECK) == says("lr = 0.1  # of a loop") == says(CHECK) == ""
    assert says(cell + "learning_rates: list[float] = [0.1]") == ""
    assert says(CHECK).startswith("learning_rates: is not a parameter of few")
    assert says(cell) == says(CHECK) == ""
    assert says("assert lr == 0.1" + (" and scratch == 3" if somebody else "")) == ""


def test_a_claim_on_the_papers_own_runs_is_judged_at_the_papers_scale(tmp_path):
    """A value that no profile but the paper's compares; smoke judges nothing, and leaves what was judged."""
    given = ("000-phi", [0.46], (0.43, 0.49), "phi", "a note")
    for profile, folder, verdict in (
        ("cpu", "published", "reproduced"),
        ("smoke", "smoke/published", "not judged at this profile"),
    ):
        nb = a_notebook("published_runs", tmp_path, profile)
        finding = nb.claim_of_published(*given)
        assert (finding.verdict, finding.seeds, finding.provenance["notebook"]) == (verdict, [], "published_runs")
        assert claims.read(tmp_path / "claims" / folder / "000-phi.json") == finding
    assert claims.read(tmp_path / "claims" / "published" / "000-phi.json").verdict == "reproduced"
    with one_line("claim 001-base-state-explodes: is not marked published in params/claims.yaml, mark it"):
        nb.claim_of_published("001-base-state-explodes", [1.0], (0.5, 1.5), "decades")
    with one_line("claim: '000-psi' is not in params/claims.yaml"):
        nb.claim_of_published("000-psi", [1.0], (0.5, 1.5), "psi")


def test_a_figure_says_which_parameters_were_changed_or_that_it_draws_others_runs(tmp_path):
    def stamp(kind, **changes):
        return notebook.start(kind, {"profile": "desk", "outputs": str(tmp_path), **changes}).printed()

    assert stamp(PublishedRuns) == "published runs"
    assert stamp(PublishedRuns, accounting="loop") == "published runs, changed: accounting"
    given = {"run": "a", "prompt": "b", "draw": 3, "top_k": 4, "top_p": 0.5, "temperature": 0.1, "max_hours": 3.0}
    named = "run, prompt, temperature, top_k and 2 more"
    assert stamp(Generate, train=True, **given) == f"profile: desk, changed: {named}"


def test_verdicts_are_lines_and_the_reasons_of_what_desk_contradicts(tmp_path, capsys):
    """As docs/explanations.md tells them of desk; at another profile the reasons are others."""
    low = ("001-looping-beats-fixed-depth-loss", [-0.02, -0.021, -0.022], [1, 2, 3], "nats")
    none = ("001-isoflop-optimum-above-one", [float("nan")] * 3, [1, 2, 3], "octaves")
    reason = documents.reason(low[0])
    assert reason and "cpu, 2026" in documents.explanations()[low[0]] and "cpu, 2026" not in reason
    for profile in ("desk", "cpu"):
        nb = a_notebook("looping_isoflop", tmp_path, profile)
        shown = nb.verdicts([nb.claim(*one) for one in (low, none)])
        first, second = capsys.readouterr().out.splitlines()
        assert first.startswith(f"contradicted   {low[0]}: -0.021 [") and second == f"not measured   {none[0]}"
        assert (reason in shown.data) == (profile == "desk")
    nb = a_notebook("usage_weighted", tmp_path, "desk")
    nb.verdicts([nb.claim("003-table-of-sizes", [7], [], "rows")])
    assert capsys.readouterr().out == "reproduced     003-table-of-sizes: 7 rows (at desk, counted)\n"


def test_figures_and_claims_carry_their_provenance(tmp_path):
    nb = a_notebook("instability", tmp_path, lrs=[3.0])
    given = {"profile": "cpu", "outputs": "outputs", "lrs": [3.0]}
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    axis.set(xlabel="step", ylabel="loss")
    assert nb._saved(figure, "a_figure", "Loss falls", "2 points").alt == "Loss against step."
    stamp = json.loads((tmp_path / "figures" / "cpu" / "a_figure.json").read_text())
    assert not plt.fignum_exists(figure.number)  # it has been shown, and would be again at the end of the cell
    assert stamp["parameters"] == given and stamp["notebook"] == "instability" and stamp["alt"] == "Loss against step."
    assert (stamp["heading"], stamp["n"]) == ("Loss falls", "2 points")
    assert {"commit", "torch", "device", "python"} <= set(stamp)
    finding = nb.claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades")
    assert finding.provenance["parameters"] == given and "commit" in finding.provenance
    assert finding.verdict == "reproduced" and (tmp_path / "claims" / "cpu" / "001-base-state-explodes.json").exists()
    with pytest.raises(InputError, match=r"is not in params/claims.yaml"):
        nb.claim("001-no-such-claim", [1.0], [1], "")


@pytest.mark.precision
def test_a_plan_counts_a_run_once_and_says_what_it_costs(tmp_path):
    model = ModelConfig(vocab_size=256, width=16, heads=2, mlp_width=32, context=32)
    data = DataConfig(context=32, content="text")
    slow, fast = (RunConfig(model=model, data=data, optim=OptimConfig(lr=lr)) for lr in (1e-3, 4e-3))
    longer = slow.replace(train=slow.train.replace(steps=3 * slow.train.steps))
    table = a_notebook("a", tmp_path).plan(
        {("slow", 1): slow, ("slow", 3): longer, ("fast", "once"): fast, ("fast", "twice"): fast}
    )
    assert table["runs"].tolist() == table["missing"].tolist() == [2, 1]
    assert table["FLOPs"].tolist() == pytest.approx([run_flops(slow) + run_flops(longer), run_flops(fast)])
    tokens = slow.tokens  # of all of a group's, or the least and the most
    assert table["tokens per run"].tolist() == [f"{style.short(tokens)} to {style.short(3 * tokens)}", tokens]


def test_a_table_lies_in_its_profiles_folder_with_its_provenance(tmp_path):
    table = pd.DataFrame({"share": [1 / 3, 2 / 3]}, index=pd.Index(["a", "b"], name="of"))
    assert a_notebook("x", tmp_path).save_table(table, "shares", digits=2) is table
    folder = tmp_path / "tables" / "cpu"
    assert (folder / "shares.csv").read_text().split() == ["of,share", "a,0.33", "b,0.67"]
    assert json.loads((folder / "shares.json").read_text())["notebook"] == "x"
    odd = pd.DataFrame({"@x": ["=1+1", "+a", "a=b"]}, index=pd.Index(["-x", "-1", "b"], name="of"))
    a_notebook("x", tmp_path).save_table(odd.assign(n=[-1.0, 2.0, 3.0]), "odd")
    assert (folder / "odd.csv").read_text().split() == ["of,'@x,n", "'-x,'=1+1,-1", "-1,'+a,2", "b,a=b,3"]
    shown = report._content(folder / "odd.csv")
    assert shown == [["of", "@x", "n"], ["-x", "=1+1", "-1"], ["-1", "+a", "2"], ["b", "a=b", "3"]]


TWO_SLIDERS = """
import matplotlib.pyplot as plt, pathlib
from tests.workbooks import a_notebook

def draw(height, loops):
    figure, axis = plt.subplots()
    axis.bar([0], [height * loops])
    return figure

nb = a_notebook("instability", pathlib.Path(FOLDER), "smoke")
nb.slide(draw, "bar", height=(0.5, 0.0, 1.0, 0.1), loops=(4, 1, 8, 1))
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("somebody", [True, False])
def test_sliders_are_for_somebody_who_can_move_them(kernel, somebody, tmp_path):
    """As JupyterLab sends a cell, and as papermill and nbconvert do."""
    seen = []
    code = TWO_SLIDERS.replace("FOLDER", repr(str(tmp_path)))
    done = kernel.execute_interactive(code, timeout=240, allow_stdin=somebody, output_hook=seen.append)
    assert done["content"]["status"] == "ok", done["content"]
    *for_widgets, shown = [message["content"]["data"] for message in seen if message["msg_type"] == "display_data"]
    assert (WIDGET if somebody else "image/png") in shown and bool(for_widgets) == somebody
    assert (tmp_path / "figures" / "smoke" / "bar.png").exists()


def test_moving_a_slider_draws_anew_and_bad_input_is_one_line(capsys):
    drawn, others = [], plt.get_fignums()
    assert not notebook.somebody_is_there()  # outside a kernel

    def draw(height, loops):
        if loops == 8:
            raise InputError("loops: 8 are too many, use 7 at most")
        drawn.append((height, loops))
        return plt.figure()

    height, loops, output = notebook.sliders(draw, height=(0.5, 0.0, 1.0, 0.1), loops=(4, 1, 8, 1)).children
    assert (height.description, height.max, loops.min, loops.max) == ("height", 1.0, 1, 8)
    height.value = 0.7
    loops.value = 2
    assert drawn == [(0.5, 4), (0.7, 4), (0.7, 2)] and plt.get_fignums() == others
    loops.value = 8
    shown = capsys.readouterr().out + "".join(part.get("text", "") for part in output.outputs)
    assert "loops: 8 are too many, use 7 at most" in shown

"""The notebooks: clean as committed, run at the smoke profile, planned at the paper's, refused with bad parameters."""

import ast
import base64
import csv
import json
import re
import shutil
import subprocess
import sys
import typing

import click.testing
import nbformat
import PIL.Image
import pytest
import safetensors.torch
import torch
import yaml
from papermill.cli import papermill as papermill_cli

from lib import isodepth, plans, presets, residual, sparse
from lib import notebook as notebooks
from lib.claims import ledger
from lib.config import ModelConfig
from lib.store import RunStore
from tests.conftest import ROOT, make
from tests.test_layouts import official_parcae

NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PROFILES = ("smoke", "cpu", "gpu", "paper")


def read(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def cells(name, tag=None):
    code = [cell for cell in read(name).cells if cell.cell_type == "code"]
    return [cell for cell in code if tag in cell.metadata.get("tags", [])] if tag else code


def defaults(name) -> dict:
    (parameters,) = cells(name, "parameters")
    return {node.target.id: ast.literal_eval(node.value) for node in ast.parse(parameters.source).body}


def papermill(name, output, *arguments):
    command = [
        sys.executable,
        "-m",
        "papermill",
        "--no-progress-bar",
        f"notebooks/{name}.ipynb",
        str(output),
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", NAMES)
def test_committed_notebooks_are_clean(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert not any(cell.outputs or cell.execution_count for cell in cells(name))
    assert len(cells(name, "parameters")) == len(cells(name, "check")) == len(cells(name, "plan")) == 1
    assert len(cells(name)) <= 10 and sum(cell.source.count("\n") + 1 for cell in cells(name)) <= 160
    text = (ROOT / "notebooks" / f"{name}.ipynb").read_text()
    assert not re.search(r"[\"' (](/[A-Za-z]+){2,}|[A-Z]:\\\\", text), "an absolute path"
    for cell in cells(name):
        parameters = "parameters" in cell.metadata.get("tags", [])  # each on a line with its comment, for papermill
        assert parameters or max(map(len, cell.source.splitlines())) <= 120
        functions = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.FunctionDef)]
        assert all(len(ast.unparse(f).splitlines()) <= 5 for f in functions)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebooks_own_defaults_are_the_cpu_profile(name):
    assert defaults(name) == yaml.safe_load((ROOT / "params" / "cpu" / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_sets_the_notebooks_parameters_and_no_others(name, profile):
    parameters = yaml.safe_load((ROOT / "params" / profile / f"{name}.yaml").read_text())
    assert parameters.keys() == defaults(name).keys() and parameters["profile"] == profile
    for key, value in defaults(name).items():
        same = isinstance(parameters[key], type(value)) or (type(value) is float and type(parameters[key]) is int)
        assert same, key


#: parameters that take some of a few names, and where these stand
CHOICES = {
    "profile": [notebooks.PROFILES], "architectures": [sparse.LOOK, presets.INSTABILITY],
    "injections": [isodepth.INJECTIONS], "models": [residual.INJECTIONS], "precision": [("fp32", "bf16", "bf16-mixed")],
    "mlp": [typing.get_args(ModelConfig.model_fields["mlp"].annotation)], "tokenizer": [("bytes", "bpe-", ".json")],
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_papermill_documents_every_parameter(name):
    """With its type, its default, and at least three words: what it is, in which unit, what it may be."""
    path = ROOT / "notebooks" / f"{name}.ipynb"
    done = click.testing.CliRunner().invoke(papermill_cli, ["--help-notebook", str(path)])
    # a long line is broken before its last part
    line = re.compile(r"^  (\w+): (.+?) \(default (.+?)\)\s+(\S.*)$", re.M)
    shown = {found[1]: found for found in line.finditer(done.stdout)}
    (parameters,) = cells(name, "parameters")
    types = {node.target.id: ast.unparse(node.annotation) for node in ast.parse(parameters.source).body}
    assert shown.keys() == defaults(name).keys()
    for parameter, value in defaults(name).items():
        _, kind, default, text = shown[parameter].groups()
        assert kind == types[parameter] and ast.literal_eval(default) == value
        assert len(text.split()) >= 3 and text.lower() != parameter, f"{parameter}: {text}"
        known = CHOICES.get(parameter)
        assert not known or any(all(choice in text for choice in choices) for choices in known), f"{parameter}: {text}"


@pytest.fixture(scope="module")
def outputs_folder(tmp_path_factory):
    """Empty at first; notebooks share their runs through it, as a user's do."""
    return tmp_path_factory.mktemp("outputs")


@pytest.mark.parametrize("name", NAMES)
def test_the_smoke_profile_runs(name, outputs_folder):
    out = outputs_folder / f"{name}.ipynb"
    done = papermill(name, out, "-f", f"params/smoke/{name}.yaml", "-p", "outputs", str(outputs_folder))
    assert done.returncode == 0, done.stderr[-2000:]
    folder = outputs_folder / "figures" / "smoke"
    stamps = [path for path in folder.glob("*.json") if json.loads(path.read_text())["notebook"] == name]
    assert stamps
    assert all(path.with_suffix(kind).exists() for path in stamps for kind in (".png", ".pdf"))
    given = {claim.id for claim in ledger(ROOT / "params" / "claims.yaml").values() if claim.notebook == name}
    found = {path.stem for path in (outputs_folder / "claims" / "smoke").glob("*.json")}
    assert given <= found, given - found
    outputs = [o for cell in nbformat.read(out, 4).cells for o in cell.get("outputs", [])]
    shown = sum("image/png" in o.get("data", {}) for o in outputs)
    assert shown == len(stamps), f"{shown} figures are shown, {len(stamps)} written"
    streams = "".join(o.text for o in outputs if o.output_type == "stream")
    trains = any("nb.sweep(" in cell.source for cell in cells(name))
    assert ("ended as diverged" in streams) == trains and "FLOP/s" not in streams  # one line, not the bar's many
    executed, plan = plans.read(outputs_folder / "plans" / "smoke" / f"{name}.json"), plans.plan(name, "smoke")
    assert [cfg.key for cfg in plan.runs] == [cfg.key for cfg in executed.runs]
    for function, cases in plan.measurements.items():  # others are known only when the runs are there
        assert cases.items() <= executed.measurements[function].items()
        kept = {path.stem for path in (outputs_folder / "measured" / function).glob("*.json")}
        assert executed.measurements[function].keys() <= kept


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profiles_plan_builds_and_counts(name, profile, tmp_path, monkeypatch):
    """The cells up to the plan, without a network and without the text."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(notebooks.Notebook, "store", RunStore(tmp_path / "runs"))  # as if there were no records
    parameters = yaml.safe_load((ROOT / "params" / profile / f"{name}.yaml").read_text())
    namespace = {}
    exec(cells(name, "parameters")[0].source, namespace)
    namespace |= {**parameters, "outputs": str(tmp_path)}
    exec(cells(name, "check")[0].source, namespace)
    *_, last = ast.parse(plan := cells(name, "plan")[0].source).body
    exec(plan, namespace)
    table = eval(ast.unparse(last), namespace)
    assert (table["missing"] == table["runs"]).all() and (table["FLOPs"] > 0).all()
    if profile == "paper" and name == "instability":
        # the table of RDM models, to the parameter; Base lacks the norms of the sandwich
        assert table.loc["residual-norm", "parameters"] == 114_242_560
        assert table.loc["parcae-rdm", "parameters"] == 113_189_888
        assert table.loc["base", "parameters"] == 114_242_560 - 3 * 2 * 1024
        assert table["tokens per run"].iloc[0] == pytest.approx(10 * 114_242_560, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-p", "lrz", "0.1"], "lrz: is not a parameter of instability, did you mean 'lrs'?"),
        (["-p", "steps", "many"], "steps: input should be a valid integer"),
        (["-p", "width", "65"], "width: 65 is not divisible by heads 2"),
        (["-p", "architectures", "[base, rnn]"], "architectures: 'rnn' is not known"),
        (["-p", "vocab_size", "5000000000"], "vocab_size: 5000000000 entries are too many to count tokens of"),
        (["-p", "source", "no/such/file.txt"], "data.source: no/such/file.txt does not exist"),
    ],
)
def test_bad_parameters_stop_the_notebook_with_one_line(tmp_path, arguments, says):
    out = tmp_path / "out.ipynb"
    done = papermill("instability", out, "-p", "outputs", str(tmp_path), *arguments)
    assert done.returncode != 0
    errors = [o for cell in nbformat.read(out, 4).cells for o in cell.get("outputs", []) if o.output_type == "error"]
    assert len(errors) == 1 and len(errors[0].traceback) == 1
    assert says in errors[0].traceback[0] and "\n" not in errors[0].traceback[0]
    assert says in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_bad_params_file_stops_the_notebook_with_one_line(tmp_path):
    (tmp_path / "mine.yaml").write_text("lrs: [1e-3, quick]\n")
    done = papermill("instability", tmp_path / "out.ipynb", "-f", str(tmp_path / "mine.yaml"))
    assert done.returncode != 0 and "lrs.1: input should be a valid number" in done.stderr


#: values of each kind, and how every option of papermill is given them
VALUES = {"architectures": ["parcae"], "lrs": [3e-3], "qk_norm": False, "warmup_steps": 2, "max_state_rms": 2e4}
AS_TEXT = {
    "architectures": "[parcae]", "lrs": "[3e-3]", "qk_norm": "False", "warmup_steps": "2", "max_state_rms": "2e4"
}  # fmt: skip
FILE = "architectures: [parcae]\nlrs: [3e-3]\nqk_norm: no\nwarmup_steps: '2'\nmax_state_rms: 2e4\n"


def test_every_way_to_give_parameters_gives_the_same(tmp_path):
    """A list, a float in scientific notation (text to YAML), a boolean, an integer, and a path, which is the outputs';
    that one run was trained in all shows that all gave the same."""
    (tmp_path / "mine.yaml").write_text(FILE)
    smoke = yaml.safe_load((ROOT / "params" / "smoke" / "instability.yaml").read_text())
    ways = {
        "-p": [word for name, text in AS_TEXT.items() for word in ("-p", name, text)],
        "-r": [word for name, text in AS_TEXT.items() for word in ("-r", name, text)],
        "-f": ["-f", str(tmp_path / "mine.yaml")],
        "-y": ["-y", "{architectures: [parcae], lrs: [3e-3], qk_norm: false, warmup_steps: 2, max_state_rms: 2e4}"],
        "-b": ["-b", base64.b64encode(yaml.safe_dump(smoke | yaml.safe_load(FILE)).encode()).decode()],
    }
    for way, arguments in ways.items():
        first = [] if way == "-b" else ["-f", "params/smoke/instability.yaml"]  # a file goes before base64
        first += ["-p", "outputs", str(tmp_path)]
        done = papermill("instability", tmp_path / f"out{way}.ipynb", *first, *arguments)
        assert done.returncode == 0, (way, done.stderr[-2000:])
        note = tmp_path / "tables" / "smoke" / "instability_outcomes.json"
        given = json.loads(note.read_text())["parameters"]
        assert {name: given[name] for name in VALUES} == VALUES and given["outputs"] == str(tmp_path), way
        assert all(type(given[name]) is type(value) for name, value in VALUES.items()), way
        note.unlink()
    (cfg,) = (result.config for result in RunStore(tmp_path / "runs").runs())
    assert (cfg.optim.lr, cfg.model.qk_norm, cfg.train.max_state_rms) == (3e-3, False, 2e4)


def test_notebooks_run_at_the_same_time_do_not_disturb_each_other(tmp_path):
    """Twice with the same parameters and once with others, all into the same outputs."""
    others = {"a": "[4e-3]", "b": "[4e-3]", "c": "[2e-3]"}
    running = {}
    for name, lrs in others.items():
        command = [sys.executable, "-m", "papermill", "--no-progress-bar", "notebooks/instability.ipynb"]
        command += [str(tmp_path / f"{name}.ipynb"), "-f", "params/smoke/instability.yaml"]
        command += ["-p", "steps", "4", "-p", "lrs", lrs, "-p", "jobs", "1", "-p", "outputs", str(tmp_path)]
        running[name] = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    for name, process in running.items():
        said = process.communicate(timeout=600)[1]
        assert process.returncode == 0, (name, said[-2000:])
    assert len(RunStore(tmp_path / "runs").runs()) == 6  # three architectures at two rates
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".tmp", ".partial") or "corrupt" in path.name]
    for path in (tmp_path / "figures" / "smoke").glob("*.png"):
        stamp = json.loads(path.with_suffix(".json").read_text())
        assert json.loads(PIL.Image.open(path).text["Description"]) == stamp, path.name
        drawn = float(re.search(rb"/Subject (.*)", path.with_suffix(".pdf").read_bytes())[1].split(b'"lrs": ')[1][1:6])
        assert [drawn] == stamp["parameters"]["lrs"], path.name
    for path in (tmp_path / "claims" / "smoke").glob("*.json"):
        assert json.loads(path.read_text())["provenance"]["parameters"]["lrs"] in ([4e-3], [2e-3])
    planned = plans.read(tmp_path / "plans" / "smoke" / "instability.json").runs
    assert {cfg.optim.lr for cfg in planned} in ({4e-3}, {2e-3}) and len(planned) == 3


# ---- make


def test_make_reports_a_failed_notebook_and_runs_the_others(workbook):
    broken = read("instability")
    broken.cells[3].source = "raise RuntimeError('on purpose')"
    nbformat.write(broken, workbook / "notebooks" / "broken.ipynb")
    shutil.copy(workbook / "params/smoke/instability.yaml", workbook / "params/smoke/broken.yaml")
    both = "ONLY=broken instability"
    done = make(workbook, "-j4", "reproduce-figures", "PROFILE=smoke", "JOBS=1", both)
    assert done.returncode != 0
    assert "failed     broken" in done.stdout and "outputs/report/index.html" in done.stdout
    made = workbook / "outputs" / "notebooks" / "smoke"
    names = {"broken.ipynb", ".broken.lock", "instability.ipynb", ".instability.lock", ".instability.done"}
    assert {path.name for path in made.iterdir()} == names
    assert "on purpose" in (made / "broken.ipynb").read_text()
    assert (workbook / "outputs" / "report" / "index.html").exists()
    again = make(workbook, "reproduce-figures", "PROFILE=smoke", "ONLY=instability")
    assert again.returncode == 0 and "notebook   instability" in done.stdout
    assert "notebook   instability" not in again.stdout


def test_a_notebook_runs_from_records_alone(workbook):
    arguments = ["PROFILE=smoke", "ONLY=instability", "JOBS=1"]
    done = make(workbook, "records", *arguments, "MINUTES=4")
    assert done.returncode == 0 and "6 runs finished, 0 are left" in done.stdout, done.stderr[-2000:]
    shutil.rmtree(workbook / "outputs" / "runs")
    again = make(workbook, "reproduce-figures", *arguments)
    assert again.returncode == 0, again.stdout[-1000:]
    assert not [path for path in (workbook / "outputs" / "runs").iterdir() if not path.name.startswith(".")]
    assert (workbook / "outputs" / "figures" / "smoke" / "instability_curves.png").exists()


def test_make_runs_a_notebook_that_trains_nothing(workbook):
    done = make(workbook, "reproduce-figures", "PROFILE=smoke", "JOBS=1", "ONLY=tokenizer_compression")
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    assert (workbook / "outputs" / "claims" / "smoke" / "001-tokenizer-compression.json").exists()


def test_clean_keeps_trained_runs_and_distclean_keeps_records(workbook):
    for name in ("runs/abc", "tokens", "notebooks", "figures", "report", "records/gpu"):
        (workbook / "outputs" / name).mkdir(parents=True)
    make(workbook, "clean")
    assert sorted(p.name for p in (workbook / "outputs").iterdir()) == ["records", "runs", "tokens"]
    make(workbook, "distclean")
    assert [p.name for p in (workbook / "outputs").iterdir()] == ["records"] and not (workbook / ".venv").exists()


def test_the_published_law_is_drawn_without_training(tmp_path):
    done = papermill("recurrence_exponent", tmp_path / "out.ipynb", "-p", "published", "True", "-p", "resamples", "8",
                     "-p", "outputs", str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list((tmp_path / "runs").glob("*")) and not (tmp_path / "claims").exists()
    with (tmp_path / "tables" / "cpu" / "recurrence_exponent_equivalences.csv").open() as file:
        rows = {row["r"]: row for row in csv.DictReader(file)}
    # 410M looped, worth 580M, at the cost of 1B
    assert [round(float(rows["4"][name]), 2) for name in ("unique", "worth", "cost")] == [0.41, 0.59, 1.02]


def test_a_checkpoint_is_measured_instead_of_training(tmp_path):
    """A small random one in the official layout; its vocabulary is that of bytes."""
    tensors = official_parcae()
    for name in [name for name in tensors if "wte" in name or "value_embeds" in name]:
        tensors[name] = torch.randn(256, tensors[name].shape[1]) * 0.1
    safetensors.torch.save_file(tensors, tmp_path / "official.safetensors")
    arguments = ["-f", "params/smoke/test_time_saturation.yaml", "-p", "outputs", str(tmp_path)]
    arguments += [
        "-p",
        "checkpoint",
        str(tmp_path / "official.safetensors"),
        "-p",
        "context",
        "16",
        "-p",
        "deepest",
        "12",
    ]
    done = papermill("test_time_saturation", tmp_path / "out.ipynb", *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list((tmp_path / "runs").glob("*")) and not (tmp_path / "claims").exists()
    with (tmp_path / "tables" / "smoke" / "test_time_saturation.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["size"] == "official.safetensors" and row["mean_loops"] == "8" and float(row["at mean_loops"]) > 4
    assert (tmp_path / "figures" / "smoke" / "test_time_saturation_forms.png").exists()

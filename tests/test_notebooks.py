"""Notebooks are clean as committed, plan at every profile, and take parameters in every way or refuse in one line."""

import ast
import concurrent.futures
import csv
import functools
import importlib
import json
import re
import symtable
import typing

import click.testing
import nbformat
import PIL.Image
import pytest
import safetensors.torch
import torch
import yaml
from papermill.cli import papermill as papermill_cli

from lib.base.parameters import PROFILES, Training
from lib.store.runs import RunStore
from lib.workbook import parameters, plans, stale
from lib.workbook.parameters import at_profile, kind_of, of_cell
from lib.workbook.plans import read_plan
from tests.given import of_profile
from tests.made import NAMES, cells, read
from tests.models import official_parcae
from tests.workbooks import ROOT, papermill


@pytest.mark.parametrize("name", NAMES)
def test_committed_notebooks_are_clean(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert not any(cell.outputs or cell.execution_count for cell in cells(name))
    assert len(cells(name, "parameters")) == len(cells(name, "check")) == len(cells(name, "plan")) == 1
    shown = [cell for cell in cells(name) if "parameters" not in cell.metadata.get("tags", [])]
    assert len(shown) <= 14 and len([line for cell in shown for line in cell.source.split("\n") if line.strip()]) <= 150
    text = (ROOT / "notebooks" / f"{name}.ipynb").read_text()
    assert not re.search(r"[\"' (](/[A-Za-z]+){2,}|[A-Z]:\\\\", text), "an absolute path"
    for cell in cells(name):
        parameters = "parameters" in cell.metadata.get("tags", [])  # each on a line with its comment, for papermill
        assert parameters or max(map(len, cell.source.splitlines())) <= 120
        typed = any(isinstance(node, ast.AnnAssign) for node in ast.parse(cell.source).body)
        assert typed == parameters, "what has a type is a parameter"
        functions = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.FunctionDef)]
        assert all(len(ast.unparse(f).splitlines()) <= 25 for f in functions)


def of_file(profile, name) -> dict:
    return yaml.safe_load((ROOT / "params" / profile / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_notebooks_cell_has_what_its_class_has_no_default_for(name):
    """The same names with the same types, 14 at most besides the profile; what a class refuses beyond them
    (``Positive``) is not part of a type."""
    kind = kind_of(name)
    (cell,) = cells(name, "parameters")
    annotated = {node.target.id: eval(ast.unparse(node.annotation)) for node in ast.parse(cell.source).body}
    types = typing.get_type_hints(kind)
    assert kind.notebook == name and len(annotated) <= 15 and next(iter(annotated)) == "profile"
    assert annotated == {field: types[field] for field, about in kind.model_fields.items() if about.is_required()}


def scopes(table):
    """A table of symbols, and those inside it."""
    yield table
    for inner in table.get_children():
        yield from scopes(inner)


@pytest.mark.parametrize("name", NAMES)
def test_cells_read_parameters_from_the_notebook_alone_and_name_nothing_like_them(name):
    """A name of the kernel that a cell sets would be one that somebody gave, at the next start."""
    for cell in (cell for cell in cells(name) if "parameters" not in cell.metadata.get("tags", [])):
        whole = symtable.symtable(cell.source, name, "exec")
        seen = [symbol for one in scopes(whole) for symbol in one.get_symbols() if one is whole or symbol.is_global()]
        assert not {symbol.get_name() for symbol in seen} & kind_of(name).model_fields.keys()


def unless(left_out, read, path, *rest) -> dict:
    """What a file of parameters says, unless it is the one that is left out."""
    return {} if path == left_out else read(path, *rest)


@pytest.mark.parametrize("name", NAMES)
def test_the_cell_shows_desk_and_every_profile_sets_what_differs_from_what_lies_below(name, monkeypatch):
    assert of_file("desk", name) == of_cell(name)
    for profile in (one for one in PROFILES if name in plans.names(one) and one != "desk"):
        at_profile(kind_of(name), profile)
        own = of_file(profile, name)
        assert own.pop("profile") == profile
        with monkeypatch.context() as without:
            read = parameters.of_file
            rest = functools.partial(unless, ROOT / "params" / profile / f"{name}.yaml", read)
            without.setattr(parameters, "of_file", rest)
            below = of_profile(profile, name)
        for key, value in own.items():
            assert value != below[key], f"{profile}, {key}: it has this value already"
            assert isinstance(value, type(below[key])) or (type(below[key]) is float and type(value) is int), key


def test_what_a_profile_has_alike_is_plumbing_that_notebooks_have():
    known = {field for name in NAMES for field in kind_of(name).model_fields}
    for path in (ROOT / "params").glob("*/shared.yaml"):
        shared = yaml.safe_load(path.read_text())
        assert shared and shared.keys() <= known & Training.model_fields.keys(), path


def test_it_is_known_whose_parameters_a_notebook_reads():
    """They count where it is asked whether it is stale: those of the classes that it imports."""
    for name in NAMES:
        nodes = [node for cell in cells(name) for node in ast.walk(ast.parse(cell.source))]
        imported = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module.endswith("parameters")]
        found = {getattr(importlib.import_module(node.module), one.name) for node in imported for one in node.names}
        read = {getattr(each, "notebook", name) for each in found} & {*NAMES}
        assert (stale.others(stale.imports(ROOT / "notebooks" / f"{name}.ipynb")) & {*NAMES}) | {name} == read, name


# ---- papermill -------------------------------------------------------------------------------------------------------


def test_a_bad_parameter_stops_the_notebook_with_one_line(tmp_path, clean_workbook):
    """As papermill passes it; what else is refused is tried in test_bad_parameters, by the function that checks it."""
    out = tmp_path / "out.ipynb"
    command = ["--no-progress-bar", str(clean_workbook / "notebooks" / "instability.ipynb"), str(out)]
    given = ["--cwd", str(clean_workbook), "-p", "outputs", str(tmp_path), "-p", "lrz", "0.1"]
    done = click.testing.CliRunner().invoke(papermill_cli, command + given)
    assert done.exit_code != 0
    errors = [o for cell in nbformat.read(out, 4).cells for o in cell.get("outputs", []) if o.output_type == "error"]
    says = "lrz: is not a parameter of instability, did you mean 'lrs'?"
    assert len(errors) == 1 and len(errors[0].traceback) == 1
    assert says in errors[0].traceback[0] and "\n" not in errors[0].traceback[0]
    assert says in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["out.ipynb"]


#: parameter -> by which option of papermill it is given, after a file with the profile, as which text, and its value
WAYS = {
    "architectures": ("-p", "[parcae]", ["parcae"]),
    "lrs": ("-r", "[3e-3]", [3e-3]),
    "qk_norm": ("-r", "False", False),
    "warmup_steps": ("-p", "2", 2),
    "max_state_rms": ("-r", "2e4", 2e4),
}


def test_every_way_to_give_parameters_gives_the_same(tmp_path, clean_workbook):
    """A list, a float in scientific notation (text to YAML), a boolean, an integer, and a path, which is the outputs';
    to a notebook's own first cells, and then one that says what they came to and which run was planned."""
    cut = read("instability")
    last = next(i for i, cell in enumerate(cut.cells) if "plan" in cell.metadata.get("tags", []))
    cut.cells[last + 1 :] = [nbformat.v4.new_code_cell("print(nb.parameters.model_dump_json())")]
    nbformat.write(cut, tmp_path / "cut.ipynb")
    first = ["-f", str(clean_workbook / "params/smoke/instability.yaml")]
    given = [word for name, (option, text, _) in WAYS.items() for word in (option, name, text)]
    command = ["--no-progress-bar", *(str(tmp_path / f"{name}.ipynb") for name in ("cut", "out"))]
    command += ["--cwd", str(clean_workbook), *first, "-p", "outputs", str(tmp_path / "o"), *given]
    done = click.testing.CliRunner().invoke(papermill_cli, command)
    assert done.exit_code == 0, done.output
    *_, cell = nbformat.read(tmp_path / "out.ipynb", 4).cells
    found = json.loads(cell.outputs[0].text)
    assert found["outputs"] == str(tmp_path / "o")
    for name, (*_, value) in WAYS.items():
        assert found[name] == value and type(found[name]) is type(value)
    (cfg,) = read_plan(tmp_path / "o" / "plans" / "smoke" / "instability.json")["runs"].values()
    assert (cfg["optim"]["lr"], cfg["model"]["qk_norm"], cfg["train"]["max_state_rms"]) == (3e-3, False, 2e4)


def execute(workbook, name, outputs, copy="out", **given) -> str:
    """What a notebook that papermill runs at smoke with some parameters says wrong."""
    given = {"outputs": outputs, **given}
    arguments = [word for parameter, value in given.items() for word in ("-p", parameter, str(value))]
    file = ["-f", f"params/smoke/{name}.yaml"]
    done = papermill(workbook, name, outputs / f"{copy}.ipynb", *file, *arguments, timeout=600)
    return done.stderr[-2000:] if done.returncode else ""


@pytest.mark.long
def test_notebooks_run_at_the_same_time_do_not_disturb_each_other(tmp_path, clean_workbook):
    """Twice with the same parameters and once with others, all into the same outputs."""
    run = functools.partial(execute, clean_workbook, "instability", tmp_path, steps=4, jobs=1)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        rates = {"a": "[4e-3]", "b": "[4e-3]", "c": "[2e-3]"}
        assert [*pool.map(lambda copy: run(copy=copy, lrs=rates[copy]), rates)] == [""] * 3
    assert len(RunStore(tmp_path / "runs").runs()) == 6  # three architectures at two rates
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".tmp", ".partial") or "corrupt" in path.name]
    for path in (tmp_path / "figures" / "smoke").glob("*.png"):
        stamp = json.loads(path.with_suffix(".json").read_text())
        assert json.loads(PIL.Image.open(path).text["Description"]) == stamp, path.name
        drawn = float(re.search(rb"/Subject (.*)", path.with_suffix(".pdf").read_bytes())[1].split(b'"lrs": ')[1][1:6])
        assert [drawn] == stamp["parameters"]["lrs"], path.name
    for path in (tmp_path / "claims" / "smoke").glob("*.json"):
        assert json.loads(path.read_text())["provenance"]["parameters"]["lrs"] in ([4e-3], [2e-3])
    planned = read_plan(tmp_path / "plans" / "smoke" / "instability.json")["runs"].values()
    assert {cfg["optim"]["lr"] for cfg in planned} in ({4e-3}, {2e-3}) and len(planned) == 3


@pytest.mark.long
def test_a_checkpoint_is_measured_instead_of_training(tmp_path, clean_workbook):
    """A small random one in the official layout; its vocabulary is that of bytes."""
    tensors = official_parcae()
    for name in [name for name in tensors if "wte" in name or "value_embeds" in name]:
        tensors[name] = torch.randn(256, tensors[name].shape[1]) * 0.1
    safetensors.torch.save_file(tensors, tmp_path / "official.safetensors")
    given = {"checkpoint": tmp_path / "official.safetensors", "context": 16, "deepest": 12}
    assert execute(clean_workbook, "test_time_saturation", tmp_path, **given) == ""
    assert not list((tmp_path / "runs").glob("*")) and not (tmp_path / "claims").exists()
    with (tmp_path / "tables" / "smoke" / "test_time_saturation.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["size"] == "official.safetensors" and row["mean_loops"] == "8" and float(row["at mean_loops"]) > 4
    assert (tmp_path / "figures" / "smoke" / "test_time_saturation_forms.png").exists()

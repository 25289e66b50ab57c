"""Binder gets the environment of the locks and desk's notebooks, and one of them draws there without training."""

import ast
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml

from lib.workbook import places
from lib.workbook.parameters import of_profile
from lib.workbook.plans import names
from tests.made import named
from tests.workbooks import ROOT, lend_environment, own_environment, papermill, published_at

BINDER = ROOT / ".binder"
(PYTHON,) = re.findall(r"- python=(\S+)", (ROOT / "environment.yml").read_text())
NAME = "instability"  # all of it is read from records, in seconds


def opened(name: str, monkeypatch, tmp_path) -> str:
    """The file of the repository that a badge asks Binder for, where the workbook is published."""
    published_at("https://github.com/a/b", monkeypatch, tmp_path)
    (path,) = parse_qs(urlsplit(places.binder(name)).query)["labpath"]
    return path


def post_build(workbook: Path, path: str) -> subprocess.CompletedProcess:
    """As Binder runs it, with its folder for kernels beside the workbook."""
    given = {**own_environment(), "NB_PYTHON_PREFIX": str(workbook.parent / "prefix"), "PATH": path}
    command = ["./.binder/postBuild"]
    return subprocess.run(command, cwd=workbook, env=given, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory):
    """What postBuild reads and leaves, with the environment of these tests, and in the place of make what only notes
    how it was called."""
    place = tmp_path_factory.mktemp("stubbed") / "workbook"
    for folder in (".binder", "params/desk", "notebooks"):
        shutil.copytree(ROOT / folder, place / folder)
    lend_environment(place)
    ended = post_build(place, with_make(place, 'echo "$*" >> called'))
    assert ended.returncode == 0, ended.stderr
    return place


def with_make(workbook: Path, does: str) -> str:
    """A PATH on which make is a line of a shell."""
    command = workbook / "bin" / "make"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!/bin/bash\n{does}\n")
    command.chmod(0o755)
    return f"{command.parent}{os.pathsep}{os.environ['PATH']}"


def test_the_environment_is_that_of_make_env_on_the_pinned_python(stubbed):
    """tests/test_locks.py holds make env to the locks."""
    assert (BINDER / "runtime.txt").read_text() == f"python-{PYTHON}\n"
    assert (stubbed / "called").read_text() == "env TORCH=cpu\n"


def test_a_notebook_runs_in_that_environment(stubbed):
    """Its kernel has the name of Binder's own, python3, which every notebook asks for."""
    (entry,) = (stubbed.parent / "prefix").rglob("kernel.json")
    assert str(entry.parent).endswith("/prefix/share/jupyter/kernels/python3")
    assert Path(json.loads(entry.read_text())["argv"][0]) == stubbed / ".venv" / "bin" / "python"
    for path in (stubbed / "desk").iterdir():
        assert nbformat.read(path, 4).metadata.kernelspec.name == "python3"


def test_every_badge_opens_a_notebook_that_is_made_there(stubbed, monkeypatch, tmp_path):
    made = {str(path.relative_to(stubbed)) for path in (stubbed / "desk").iterdir()}
    assert made == {opened(name, monkeypatch, tmp_path) for name in names()} and len(made) > 30


def test_it_has_desks_parameters_which_train_nothing_and_its_other_cells_as_they_are(stubbed):
    for name in names():
        source = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4).cells
        cells = nbformat.read(stubbed / "desk" / f"{name}.ipynb", 4).cells
        (given,) = [cell for cell in cells if "injected-parameters" in cell.metadata.tags]
        assert [cell.source for cell in cells if cell is not given] == [cell.source for cell in source], name
        tree = ast.parse(given.source).body
        values = {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in tree}
        desks = yaml.safe_load((ROOT / "params" / "desk" / f"{name}.yaml").read_text())
        assert values == json.loads(json.dumps(desks)), name  # papermill makes text of keys, which are read as numbers
        assert values["profile"] == "desk" and of_profile("desk", name).get("train", False) is False


def test_a_step_that_fails_fails_the_build(tmp_path):
    place = tmp_path / "workbook"
    shutil.copytree(BINDER, place / ".binder")
    assert post_build(place, with_make(place, "exit 3")).returncode == 3 and not (place / "desk").exists()


@pytest.mark.long
def test_what_a_badge_opens_draws_desks_figures_and_trains_nothing(monkeypatch, tmp_path):
    """In a fresh clone, with the environment of these tests, so that make env has nothing to fetch. Started in its own
    folder, as JupyterLab does, by the kernel that Binder finds. PYTHONPATH stands for the entry by which make env
    installs the workbook that it is run in."""
    place = tmp_path / "workbook"
    subprocess.run(["git", "clone", "--quiet", ROOT.as_uri(), place], check=True)
    lend_environment(place)
    assert post_build(place, os.environ["PATH"]).returncode == 0
    notebook = place / opened(NAME, monkeypatch, tmp_path)
    kernels = str(tmp_path / "prefix" / "share" / "jupyter")
    environment = {**own_environment(), "JUPYTER_PATH": kernels, "PYTHONPATH": str(place)}
    ended = papermill(place, notebook, tmp_path / "executed.ipynb", "--cwd", str(notebook.parent), env=environment)
    assert ended.returncode == 0, ended.stderr
    stamps = [json.loads(path.read_text()) for path in (place / "outputs" / "figures" / "desk").glob("*.json")]
    assert len(stamps) == len(named(NAME)["figures"]) > 0
    assert {stamp["parameters"]["profile"] for stamp in stamps} == {"desk"}
    assert not [*(place / "outputs").glob("runs/*/*")]

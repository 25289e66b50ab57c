"""Binder gets the environment of the locks, and a notebook that it opens draws there without training."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from lib.workbook import places
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
    shutil.copytree(ROOT / ".binder", place / ".binder")
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


def test_a_notebook_runs_in_the_environment_of_make_env_on_the_pinned_python(stubbed):
    """tests/test_locks.py holds make env to the locks. The kernel has the name of Binder's own, python3, which every
    notebook asks for."""
    assert (BINDER / "runtime.txt").read_text() == f"python-{PYTHON}\n"
    assert (stubbed / "called").read_text() == "env TORCH=cpu\n"
    (entry,) = (stubbed.parent / "prefix").rglob("kernel.json")
    assert str(entry.parent).endswith("/prefix/share/jupyter/kernels/python3")
    assert Path(json.loads(entry.read_text())["argv"][0]) == stubbed / ".venv" / "bin" / "python"


def test_every_badge_opens_a_notebook(monkeypatch, tmp_path):
    assert all((ROOT / opened(name, monkeypatch, tmp_path)).is_file() for name in names()) and len(names()) > 30


def test_a_step_that_fails_fails_the_build(tmp_path):
    place = tmp_path / "workbook"
    shutil.copytree(BINDER, place / ".binder")
    assert post_build(place, with_make(place, "exit 3")).returncode == 3


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

"""Copies of the workbook and the commands of a user in them; notebooks and workbooks that only tests have."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lib.base.parameters import Parameters
from lib.workbook import places

if TYPE_CHECKING:
    from lib.workbook.notebook import Notebook

ROOT = Path(__file__).parent.parent
WATCHED = ROOT / "tests" / "watched"  # sitecustomize of the processes that tests start
ODD = "Größe и 模型 run"  # a folder of somebody


class Few(Parameters):
    """The parameters of a notebook that only tests have."""

    notebook: ClassVar[str] = "few"

    lrs: list[float]


def a_notebook(name: str, outputs: Path, profile: str = "cpu", **values) -> "Notebook":
    """A notebook that was started with few parameters, and whose results go to a folder."""
    from lib.workbook.notebook import Notebook  # imports pandas and matplotlib, which few processes of tests need

    given = {"profile": profile, "outputs": "outputs", "lrs": [0.5, 0.25], **values}
    return Notebook(name, Few(**given), outputs)


def a_row(claim: str, verdict: str, profile: str = "desk", **changes) -> dict:
    """A verdict as data, from a notebook of its own, which fresh draws would give again."""
    numbers = {"mean": 1.0, "low": 0.5, "high": 1.5, "unit": "", "measured": {"": [1.0]}, "seeds": [1], "again": 1.0}
    opinions = {"verdict": verdict, "first": verdict, "second": "too few seeds", "replicates": "seeds"}
    return {"claim": claim, "kind": "ordering", "profile": profile, "notebook": claim} | numbers | opinions | changes


def moved(monkeypatch, root: Path) -> None:
    """The library finds notebooks, parameters and claims under another root."""
    monkeypatch.setattr(places, "ROOT", root)
    monkeypatch.setattr(places, "NOTEBOOKS", root / "notebooks")
    monkeypatch.setattr(places, "PARAMS", root / "params")
    monkeypatch.setattr(places, "LEDGER", root / "params" / "claims.yaml")


def published_at(place: str, monkeypatch, folder: Path) -> None:
    """pyproject.toml says that the workbook is published there; "" for nowhere."""
    own = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(re.sub('(?m)^repository = ".*"', f'repository = "{place}"', own))
    monkeypatch.setattr(places, "PYPROJECT", folder / "pyproject.toml")


def copied(place: Path) -> Path:
    """A copy of the workbook with the environment of this one and nothing made yet."""
    skip = shutil.ignore_patterns("outputs", ".venv", ".git", "__pycache__", "*.egg-info", ".pytest_cache")
    shutil.copytree(ROOT, place, ignore=skip)
    lend_environment(place)
    return place


def lend_environment(workbook: Path) -> None:
    """The environment of this workbook becomes that of another, which has nothing to install then."""
    venv = workbook / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith((".ready", ".with")):
            (venv / entry.name).symlink_to(entry)
    for name in (".ready-cpu", ".with-tasks", ".with-dev"):
        (venv / name).touch()


def own_environment() -> dict[str, str]:
    """That of a shell, which leads to no library but the one of the folder that it is in."""
    return {**os.environ, "PYTHONPATH": str(WATCHED)}


def papermill(workbook: Path, name: str | Path, output: Path, *arguments: str, timeout: float = 300, **options):
    """papermill in a shell, at the root of a workbook, with one of its notebooks or any file."""
    source = name if isinstance(name, Path) else f"notebooks/{name}.ipynb"
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", str(source), str(output)]
    options = {"cwd": workbook, "env": own_environment(), "capture_output": True, "text": True, **options}
    return subprocess.run([*command, *arguments], timeout=timeout, **options)


def make(workbook: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess:
    torch = [] if any(argument.startswith("TORCH") for argument in arguments) else ["TORCH=cpu"]
    options = {"cwd": workbook, "env": own_environment(), "capture_output": True, "text": True}
    return subprocess.run(["make", *arguments, *torch], timeout=timeout, **options)

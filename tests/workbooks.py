"""Copies of the workbook, and the commands of a user in them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def copied(place: Path) -> Path:
    """A copy of the workbook with the environment of this one and nothing made yet."""
    skip = shutil.ignore_patterns("outputs", ".venv", ".git", "__pycache__", "*.egg-info", ".pytest_cache")
    shutil.copytree(ROOT, place, ignore=skip)
    venv = place / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith(".ready"):
            (venv / entry.name).symlink_to(entry)
    (venv / ".ready-cpu").touch()
    return place


def own_environment() -> dict[str, str]:
    """That of a shell, which leads to no library but the one of the folder that it is in; and to what ``auto`` is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    forced = {"PYTHONPATH": str(ROOT / "tests" / "forced")} if os.environ.get("AUTO_PRECISION") else {}
    return environment | forced


def papermill(workbook: Path, name: str, output: Path, *arguments: str, timeout: float = 300, **options):
    """papermill in a shell, with this notebook of a workbook."""
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", f"notebooks/{name}.ipynb", str(output)]
    options = {"cwd": workbook, "env": own_environment(), "capture_output": True, "text": True, **options}
    return subprocess.run([*command, *arguments], timeout=timeout, **options)


def make(workbook: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess:
    torch = [] if any(argument.startswith("TORCH") for argument in arguments) else ["TORCH=cpu"]
    return subprocess.run(
        ["make", *arguments, *torch], cwd=workbook, env=own_environment(), capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip

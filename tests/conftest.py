"""What many tests need: a small run on real text, and a store to keep it in."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.store import RunStore

ROOT = Path(__file__).parent.parent

# make tells a make inside it to print the folders it enters; those that tests start are nobody's
for told in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SINCE"):
    os.environ.pop(told, None)

SMALL = dict(width=32, heads=2, mlp_width=64, context=32, mean_loops=4, backprop_loops=2, depth="poisson")


def small_run(model=None, data=None, optim=None, train=None) -> RunConfig:
    """A run of a few steps on the first 300 kB of the default text; the arguments change fields."""
    return RunConfig(
        model=ModelConfig(**{**SMALL, **(model or {})}),
        data=DataConfig(**{"context": 32, "val_rows": 16, "max_bytes": 300_000, **(data or {})}),
        optim=OptimConfig(**{"lr": 4e-3, **(optim or {})}),
        train=TrainConfig(**{"steps": 6, "batch": 4, **(train or {})}),
    )


def text_config(**changes) -> DataConfig:
    """The first 300 kB of the default text in short rows; the arguments change fields."""
    return DataConfig(**{"context": 32, "val_rows": 8, "max_bytes": 300_000, **changes})


@pytest.fixture
def letters(tmp_path) -> Path:
    """A text of 40 documents, each a run of one letter of its own length."""
    path = tmp_path / "letters.txt"
    path.write_text("\n\n".join(chr(65 + i) * (3 * i + 1) for i in range(40)))
    return path


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "runs")


def python(code: str, **options) -> subprocess.Popen:
    """A fresh interpreter running ``code``, as another user's process would."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **options)


@pytest.fixture
def style():
    """The look of figures, and none of them left open."""
    from matplotlib import pyplot

    from lib import plots

    plots.use_style("smoke")
    yield
    pyplot.close("all")


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


@pytest.fixture
def workbook(tmp_path) -> Path:
    return copied(tmp_path / "workbook")


def own_environment() -> dict[str, str]:
    """That of a shell, which leads to no library but the one of the folder that it is in."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for long to be noticed."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def make(workbook: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess:
    torch = [] if any(argument.startswith("TORCH") for argument in arguments) else ["TORCH=cpu"]
    return subprocess.run(
        ["make", *arguments, *torch], cwd=workbook, env=own_environment(), capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip


class SmallDisk:
    """A file system of four megabytes at ``path``."""

    def __init__(self, path: Path):
        self.path = path

    @contextlib.contextmanager
    def full(self, leave: int = 0):
        """All of it is taken but ``leave`` bytes."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        with filler.open("r+b") as file:
            file.truncate(filler.stat().st_size - leave)
        try:
            yield
        finally:
            filler.unlink()

    @contextlib.contextmanager
    def read_only(self):
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.path], check=True)


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield SmallDisk(path)
    subprocess.run(["umount", "--lazy", path], check=True)  # mapped files hold on to it

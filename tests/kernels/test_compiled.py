"""The C is compiled once, and where it cannot be there are the same numbers."""

import os
import subprocess
import sys

import pytest
import torch

from lib.base.machine import compiler
from lib.kernels import compiled, door


def test_without_a_compiler_there_are_the_same_numbers():
    program = (
        "import torch; from lib.kernels import compiled; from lib.model.looped import LoopedLM; "
        "from lib.config import ModelConfig; torch.manual_seed(0); "
        "number = LoopedLM(ModelConfig()).eval()(torch.arange(9)[None])[0, -1, 5].item()"
    )
    command = [sys.executable, "-c", f"{program}; print(compiled.library(torch.float32), number)"]
    done = subprocess.run(command, env={**os.environ, "PATH": ""}, capture_output=True, text=True)
    there, (what, number) = {}, done.stdout.split()
    exec(program, there)
    assert what == "None" and there["number"] == pytest.approx(float(number), rel=1e-4)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A home where nothing has been compiled yet, and the folder in it where that goes."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    compiled.library.cache_clear()
    yield tmp_path / ".cache" / "looped-lm"
    compiled.library.cache_clear()


def source(monkeypatch, path, text):
    path.write_text(text)
    monkeypatch.setattr(compiled, "SOURCE", path)


def test_it_is_compiled_once_and_anew_where_home_cannot_be_written(cache, tmp_path, monkeypatch):
    source(monkeypatch, tmp_path / "tiny.c", "int one(void) { return 1; }")
    made = set()
    for _ in range(2):
        assert compiled._loaded([compiler(), *compiled.FLAGS]).one() == 1
        made |= {path.stat().st_mtime_ns for path in cache.glob("*.so")}
    assert len(made) == 1
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "tiny.c")  # where no folder can be
    assert compiled._loaded([compiler(), *compiled.FLAGS]).one() == 1


def test_what_does_not_compile_is_left_out_and_said(cache, tmp_path, monkeypatch):
    source(monkeypatch, tmp_path / "kernels.c", "no C")
    with pytest.warns(UserWarning, match="no C compiler works here .*error"):
        assert compiled.library(torch.float32) is None and not door.serve(torch.ones(3))
    assert not [*cache.glob("*.so")]

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


def path_in(cache):
    compiled._loaded([compiler(), *compiled.FLAGS])
    (path,) = cache.glob("*.so")
    return path


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A source that compiles in no time."""
    monkeypatch.setattr(compiled, "SOURCE", tmp_path / "tiny.c")
    compiled.SOURCE.write_text("int one(void) { return 1; }")


def test_it_is_compiled_once(cache, tiny):
    path = path_in(cache)
    made = path.stat().st_mtime_ns
    assert path_in(cache).stat().st_mtime_ns == made


def test_a_home_that_cannot_be_written_costs_a_compilation(cache, tiny):
    cache.parent.write_text("a file where the folder should be")
    assert compiled._loaded([compiler(), *compiled.FLAGS]).one() == 1


def test_what_does_not_compile_is_left_out_and_said(cache, tmp_path, monkeypatch):
    source = tmp_path / "kernels.c"
    source.write_text("no C")
    monkeypatch.setattr(compiled, "SOURCE", source)
    with pytest.warns(UserWarning, match="no C compiler works here .*error"):
        assert compiled.library(torch.float32) is None and not door.serve(torch.ones(3))
    assert not [*cache.glob("*.so")]

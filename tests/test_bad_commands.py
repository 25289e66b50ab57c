"""A bad variable of make is refused in one line with a remedy, and no shell reads it."""

import os
import shutil
import subprocess

import pytest

from tests.lines import in_one_line
from tests.workbooks import ROOT


@pytest.fixture
def bare(tmp_path):
    """The files that make reads, in a folder where all else is missing: what is refused makes nothing there."""
    for name in ("Makefile", "notebooks", "params", "lib"):
        (tmp_path / name).symlink_to(ROOT / name)
    yield tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "lib", "notebooks", "params"]


@pytest.mark.parametrize("value", ["$(shell touch made)", '1; `touch made` | touch made > made "#*\\'])
def test_a_value_for_make_reaches_no_shell(bare, value):
    given = [f"{variable}={value}" for variable in ("PROFILE", "ONLY", "JOBS", "MINUTES", "ENGINE", "TORCH")]
    done = subprocess.run(["make", "records", *given], cwd=bare, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2 and not done.stdout
    in_one_line(done.stderr.strip(), "PROFILE: ", "use ")


def test_make_says_where_there_is_no_python(bare):
    (bare / "bin").mkdir()
    try:
        environment = {**os.environ, "PATH": str(bare / "bin")}
        make = shutil.which("make")
        done = subprocess.run([make, "help", "TORCH=cpu"], cwd=bare, env=environment, capture_output=True, text=True)
    finally:
        (bare / "bin").rmdir()
    assert done.returncode == 2
    in_one_line(done.stderr.strip(), "PYTHON: '' does not run", "pass PYTHON=/path/to/python3.11")

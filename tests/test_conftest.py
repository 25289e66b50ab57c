"""What a test does to the workbook's outputs, or asks of the machine's precision, is said of it and of nobody else."""

import re
import subprocess
import sys

import pytest

from lib.config import native_precision
from tests.processes import until

#: as tests of a workbook, in which another process writes to the outputs meanwhile
TESTS = """
import os, subprocess, sys, time
from pathlib import Path
import pytest
from lib.config import TrainConfig, native_precision
from tests.processes import python, until

OUTPUTS = Path(__file__).parents[1] / "outputs"
ASKS = "from lib.config import TrainConfig; print(TrainConfig().precision)"

def said(code):
    return python(code).communicate(timeout=240)[0]

def test_fine():
    (OUTPUTS.parent / "begun").touch()
    until(lambda: os.path.exists(OUTPUTS.parent / "written"))
    assert TrainConfig(precision="fp32").precision == "fp32"

def test_its_child_writes():
    assert "RuntimeError" in said(f"open({str(OUTPUTS / 'a')!r}, 'w')")

def test_its_child_moves():
    Path("mine").touch()
    assert "RuntimeError" in said(f"import os; os.replace('mine', {str(OUTPUTS / 'a')!r})")

def test_its_child_reads():
    assert said(f"print(open({str(OUTPUTS / 'other')!r}).read())") == "written\\n"

def test_it_reads():
    (OUTPUTS / "other").read_text()

@pytest.fixture(scope="module")
def found():
    return TrainConfig().precision

def test_asks():
    native_precision()

def test_asks_first_by_what_is_shared(found):
    pass

def test_asks_second_by_what_is_shared(found):
    pass

def test_its_child_asks():
    assert said(ASKS).split() == [PRECISION]

@pytest.mark.precision
def test_marked(found):
    assert found == native_precision() == PRECISION
"""


@pytest.mark.precision
def test_what_a_test_and_its_processes_do_is_said_of_that_test_alone(workbook):
    (workbook / "outputs").mkdir()
    other = {"fp32": "bf16-mixed"}.get(native_precision(), "fp32")
    (workbook / "tests" / "test_of_these.py").write_text(TESTS.replace("PRECISION", repr(other)))
    command = [sys.executable, "-m", "pytest", "tests/test_of_these.py", "-p", "no:cacheprovider", "-n", "0"]
    run = subprocess.Popen(
        command, cwd=workbook, env={"PATH": "/usr/bin:/bin", "AUTO_PRECISION": other}, stdout=subprocess.PIPE, text=True
    )
    until(lambda: (workbook / "begun").exists(), running=lambda: run.poll() is None)
    (workbook / "outputs" / "other").write_text("written")
    (workbook / "written").touch()
    told, _ = run.communicate(timeout=600)
    failed = dict(re.findall(r"^FAILED \S+::test_(\w+) - (.*)$", told, re.M))
    assert run.returncode == 1 and "3 passed" in told, told
    assert failed.keys() == {
        *("its_child_writes", "its_child_moves", "it_reads"),
        *("asks", "asks_first_by_what_is_shared", "asks_second_by_what_is_shared", "its_child_asks"),
    }
    assert not (workbook / "outputs" / "a").exists()

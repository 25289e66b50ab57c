"""No test and no process that it starts touches the workbook's outputs, and AUTO_PRECISION is the precision."""

import os
import subprocess
import sys

#: as tests of a workbook that has outputs
TESTS = """
import os
from pathlib import Path
import pytest
from lib.config import TrainConfig
from tests.processes import python

OUTPUTS = Path(__file__).parents[1] / "outputs"

def said(code):
    return python(code).communicate(timeout=240)[0]

def test_a_test_neither_writes_nor_reads():
    for mode in ("r", "w"):
        with pytest.raises(RuntimeError, match="the workbook's own outputs"):
            open(OUTPUTS / "other", mode)

def test_its_child_reads_and_does_not_write():
    Path("mine").touch()
    for write in (f"open({str(OUTPUTS / 'a')!r}, 'w')", f"import os; os.replace('mine', {str(OUTPUTS / 'a')!r})"):
        assert "RuntimeError" in said(write)
    assert said(f"print(open({str(OUTPUTS / 'other')!r}).read())") == "written\\n"

def test_the_precision():
    asked = "from lib.config import TrainConfig; print(TrainConfig().precision)"
    assert said(asked).split() == [TrainConfig().precision] == [os.environ["AUTO_PRECISION"]]
"""


def test_what_a_test_and_its_processes_may_do(workbook):
    (workbook / "outputs").mkdir()
    (workbook / "outputs" / "other").write_text("written")
    (workbook / "tests" / "test_of_these.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "tests/test_of_these.py", "-p", "no:cacheprovider", "-n", "0"]
    for precision in ("fp32", "bf16-mixed"):
        environment = {"PATH": os.environ["PATH"], "AUTO_PRECISION": precision}
        told = subprocess.run(command, cwd=workbook, env=environment, capture_output=True, text=True, timeout=600)
        assert "3 passed" in told.stdout, told.stdout
    assert not (workbook / "outputs" / "a").exists()

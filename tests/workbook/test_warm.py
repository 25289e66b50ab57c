"""A kernel that nobody begins ends with its parent, and one that was stopped ends. What kernels are like is in
``test_make_notebooks.py``."""

import subprocess
import sys

import pytest

from lib.workbook import warm
from tests.workbooks import ROOT

pytestmark = pytest.mark.skipif(not warm.POSSIBLE, reason="nothing is forked here")


def ran(code: str) -> subprocess.CompletedProcess:
    code = f"import os, sys; from lib.workbook import warm\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_kernel_that_is_not_begun_ends_with_its_parent():
    done = ran("k = warm.Kernel(); print(k.poll(), flush=True); k.told.close(); k.join(); print(k.wait(), k.poll())")
    assert done.stdout.splitlines() == ["None", "0 0"] and done.stderr == ""
    assert ran("warm.Kernel(); os._exit(0)").returncode == 0  # else it would hold the pipe that is waited for


def test_a_kernel_and_a_process_that_were_stopped_end():
    """They heed no other signal. A kernel leads a group, with all that it starts."""
    done = ran("""import multiprocessing, signal, time
from lib.workbook import make_notebooks
make_notebooks.PATIENCE = 0.2
kernel, process = warm.Kernel(), multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
process.start()
while os.getpgid(kernel.pid) != kernel.pid:
    time.sleep(0.01)
os.kill(kernel.pid, signal.SIGSTOP)
os.kill(process.pid, signal.SIGSTOP)
kernel.end()
kernel.join()
make_notebooks._end()
process.join()
print(kernel.wait())
""")
    assert done.stdout.splitlines() == ["-9"] and done.stderr == ""

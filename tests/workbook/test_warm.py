"""What is forked ends as Python would, and a kernel that nobody begins ends with its parent. What kernels are like is
in ``test_make_notebooks.py``."""

import subprocess
import sys

import pytest

from lib.workbook import warm
from tests.workbooks import ROOT

pytestmark = pytest.mark.skipif(not warm.POSSIBLE, reason="nothing is forked here")


def ran(code: str) -> subprocess.CompletedProcess:
    code = f"import os, sys; from lib.workbook import warm\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("ends", "status", "says"),
    [
        ("print('said')", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('lr: mend it')", 1, "lr: mend it\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_a_forked_function_ends_as_python_would(ends, status, says):
    code = f"def f():\n    {ends}\nprint('before')\n"
    done = ran(f"{code}print(os.waitstatus_to_exitcode(os.waitpid(warm.fork(f), 0)[1]))")
    out = ["before", *(["said"] if "said" in ends else []), str(status)]
    assert done.stdout.splitlines() == out and done.stderr.endswith(says)


def test_a_kernel_that_is_not_begun_ends_with_its_parent():
    done = ran("k = warm.Kernel(); print(k.poll(), flush=True); os.close(k._told); print(k.wait(), k.poll())")
    assert done.stdout.splitlines() == ["None", "0 0"] and done.stderr == ""
    assert ran("warm.Kernel()").returncode == 0  # else it would hold the pipe that is waited for


def test_a_kernel_and_a_process_that_were_stopped_end():
    """They heed no other signal. A kernel leads a group, with all that it starts."""
    done = ran("""import signal, time
from lib.workbook import make_notebooks
make_notebooks.PATIENCE = 0.2
kernel, process = warm.Kernel(), warm.fork(lambda: time.sleep(60))
while os.getpgid(kernel.pid) != kernel.pid:
    time.sleep(0.01)
os.kill(kernel.pid, signal.SIGSTOP)
os.kill(process, signal.SIGSTOP)
make_notebooks._end({process})
kernel.end()
print(kernel.wait())
""")
    assert done.stdout.splitlines() == ["-9"] and done.stderr == ""

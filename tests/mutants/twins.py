"""Each fault meets the twin of its module first, all test files of that module, in a forked process."""

import collections
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from tests.mutants.copies import clear, environment, limit_memory, renewed
from tests.mutants.faults import SEED, WORKERS, Mutant, mutated, named, source_of
from tests.mutants.notes import Notes

#: what many tests import, so that a forked process has it
IMPORTED = [
    "torch._dynamo",
    "pandas",
    "scipy.stats",
    "scipy.optimize",
    "hypothesis",
    "pydantic",
    "safetensors.torch",
    "tokenizers",
    "tiktoken",
    "datasets",
    "tqdm.auto",
    "torch.utils.flop_counter",
    "matplotlib.pyplot",
    "nbformat",
    "nbconvert",
    "papermill",
]


def prepare() -> None:
    """Imports what takes long, so that a forked process has it; one thread, so that forking is safe."""
    warnings.simplefilter("ignore", SyntaxWarning)
    os.environ["OMP_NUM_THREADS"] = os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # or every process looks through it all for garbage


def twin_of(root: Path, module: str) -> list[Path]:
    """The test files of a module: tests/a/test_b.py of lib/a/b.py, and each test_b_*.py beside it, unless it is of a
    module with a longer name, as lib/a/b_c.py."""
    *folders, name = module.split(".")
    beside = [path.stem for path in source_of(root, module).parent.glob("*.py")]

    def owner(test: Path) -> str:
        return max((other for other in beside if f"{test.stem}_".startswith(f"test_{other}_")), key=len, default="")

    return [p for p in sorted(root.joinpath("tests", *folders).glob(f"test_{name}*.py")) if owner(p) == name]


# ---- one fault -------------------------------------------------------------------------------------------------------


class Quickest:
    """Pytest runs the quickest tests first, as far as ``seconds`` knows, and notes what they take."""

    def __init__(self, seconds: dict[str, float]):
        self.seconds = dict(seconds)

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0))

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration


def outcome(place: Path, module: str, code: str, limit: float, seconds: dict | None = None) -> str:
    """'survived', 'killed' or 'killed by the limit' (of ``limit`` seconds), with ``code`` as the module and its twin to
    notice; ``seconds`` takes what each test took."""
    path = source_of(place / "workbook", module)
    original = path.read_text()
    path.write_text(code)
    seconds = {} if seconds is None else seconds
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _in_child(place, module, seconds)
    waited = (0, 0)
    try:
        end = time.monotonic() + limit
        while (waited := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                return "killed by the limit"
            time.sleep(0.02)
    finally:
        path.write_text(original)
        if waited[0] == 0:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        clear(place)
    status = os.waitstatus_to_exitcode(waited[1])
    if status == 0:
        seconds |= json.loads((place / "seconds.json").read_text())
    return "survived" if status == 0 else "killed"


def _in_child(place: Path, module: str, seconds: dict) -> None:
    """Runs the twin on the copy and ends this process; its status is 0 where all tests passed."""
    status, copy = 70, place / "workbook"
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(copy)
        quiet = os.open(place / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        limit_memory()
        os.environ |= {**environment(place), "PYTHONPATH": str(copy)}  # of the processes that tests start
        tempfile.tempdir = None
        for name in [name for name in sys.modules if name.split(".")[0] in ("lib", "tests")]:
            del sys.modules[name]
        sys.path.insert(0, str(copy))
        quickest = Quickest(seconds)
        options = [
            "-x",
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:unraisableexception",
            f"--hypothesis-seed={SEED}",
        ]
        status = pytest.main([*options, *map(str, twin_of(copy, module))], plugins=[quickest])
        files = [m.__file__ for name, m in sys.modules.items() if name.split(".")[0] == "lib"]
        if not all(Path(file).is_relative_to(copy) for file in files):
            status = 0  # it was not the copy that was tested: nothing can be killed that way
        (place / "seconds.json").write_text(json.dumps(quickest.seconds))
    finally:
        sys.stdout.flush()
        os._exit(status)


# ---- all of them -----------------------------------------------------------------------------------------------------


def meet_twins(place: Path, sample: list[Mutant], notes: Notes) -> None:
    """Each fault meets its twin, module by module, in processes that take the next module as they come."""
    known, of_module = notes.all(), collections.defaultdict(list)
    for fault in sample:
        if (fault.key, "twin") not in known:
            of_module[fault.module].append(fault)
    queue, feed = os.pipe()
    os.write(feed, bytes(range(len(of_module))))  # a byte each: what one process has read no other reads
    os.close(feed)
    workers = []
    for number in range(WORKERS):
        sys.stdout.flush()
        workers.append(os.fork())
        if not workers[-1]:
            _work(renewed(place / str(number)), queue, [*of_module.values()], notes)
    try:
        failed = [worker for worker in workers if os.waitpid(worker, 0)[1]]
    except BaseException:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)
        raise
    if failed:
        raise SystemExit("the tests of some module fail without any fault, see above")


def _work(place: Path, queue: int, jobs: list[list[Mutant]], notes: Notes) -> None:
    status = 1
    try:
        while index := os.read(queue, 1):
            meet_twin(place, jobs[index[0]], notes)
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        os._exit(status)


def meet_twin(place: Path, faults: list[Mutant], notes: Notes) -> None:
    """The faults of one module."""
    copy, module = place / "workbook", faults[0].module
    source = source_of(copy, module).read_text()
    seconds, begin = {}, time.monotonic()
    if outcome(place, module, source, 1200, seconds) != "survived":
        raise SystemExit(f"{module}: its tests fail without any fault\n{(place / 'output.txt').read_text()}")
    limit = 30 + 2 * (time.monotonic() - begin)
    for fault in faults:
        end = outcome(place, module, mutated(source, fault), limit, dict(seconds))
        notes.add(fault.key, "twin", end)
        print(f"twin, {end}: {named(copy, fault)}", flush=True)

"""Measures how many small faults, put into any module of lib but the figures', the tests notice (make mutants).

Cosmic Ray lists the faults and makes them, in copies of the workbook; the working tree is only read. Each fault of a
sample of fixed seed meets its module's twin first, and what survives that the gate's stages, as make runs them.
docs/testing.md gets the score and the faults that nothing noticed.
"""

import ast
import collections
import concurrent.futures
import contextlib
import dataclasses
import difflib
import functools
import gc
import hashlib
import importlib
import itertools
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAMPLE, SEED = 100, 23
WORKERS = 2
#: what runs after the twin, in this order, until one notices; each is a target of make
STAGES = ["test", "test-smoke", "test-long"]
ENOUGH = 20  # tests that fail before a stage ends
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
    "fsspec",
    "datasets",
    "tqdm.auto",
    "torch.utils.flop_counter",
    "matplotlib.pyplot",
    "nbformat",
    "nbconvert",
    "papermill",
]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A fault: the module, the function it is in, the operator of Cosmic Ray, which of its places, and where that
    begins and ends (line and column)."""

    module: str
    function: str
    operator: str
    occurrence: int
    start: tuple[int, int]
    end: tuple[int, int]

    @property
    def key(self) -> str:
        return f"{self.module} {self.operator} {self.occurrence}"


# ---- which faults ----------------------------------------------------------------------------------------------------


def modules(root: Path) -> list[str]:
    """The modules of the library but the figures', lib/a/b.py as a.b."""
    paths = sorted(path.relative_to(root / "lib") for path in (root / "lib").rglob("*.py"))
    figures = [path for path in paths if any(part.startswith("figures") for part in path.parts)]
    return [".".join(p.with_suffix("").parts) for p in paths if p not in figures and p.name != "__init__.py"]


def source_of(root: Path, module: str) -> Path:
    return root / "lib" / f"{module.replace('.', '/')}.py"


def twin_of(root: Path, module: str) -> list[Path]:
    """The test files of a module: tests/a/test_b.py of lib/a/b.py, and each test_b_*.py beside it, unless it is of a
    module with a longer name, as lib/a/b_c.py."""
    *folders, name = module.split(".")
    beside = [path.stem for path in source_of(root, module).parent.glob("*.py")]

    def owner(test: Path) -> str:
        return max((other for other in beside if f"{test.stem}_".startswith(f"test_{other}_")), key=len, default="")

    return [p for p in sorted(root.joinpath("tests", *folders).glob(f"test_{name}*.py")) if owner(p) == name]


def left_out(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a fault says nothing about the tests: annotations and what only type checkers read, the words of an error,
    the ``strict`` of a zip, and the ``**`` of a mapping in braces, which no other operator can replace."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.arg(annotation=ast.AST() as note) | ast.AnnAssign(annotation=note):
                spans.append(note)
            case ast.FunctionDef(returns=ast.AST() as note):
                spans.append(note)
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                spans.append(node)
            case ast.Raise():
                spans += [part for part in ast.walk(node) if isinstance(part, ast.JoinedStr)]
            case ast.Call(func=ast.Name("zip"), keywords=[ast.keyword("strict", value)]):
                spans.append(value)
            case ast.Dict():
                unpacked = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
                spans += [
                    ast.Name(
                        "",
                        lineno=v.lineno,
                        col_offset=v.col_offset - 2,
                        end_lineno=v.lineno,
                        end_col_offset=v.col_offset,
                    )
                    for v in unpacked
                ]
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in spans]


def telling(operator: str) -> bool:
    """Whether a replacement can do harm without failing by itself: not identity for equality, which the interpreter
    gives small numbers and words, and not an operator on bits for one of arithmetic, which floats do not have."""
    _, _, pair = operator.partition("Operator_")
    if {*pair.split("_")} in ({"Eq", "Is"}, {"NotEq", "IsNot"}):
        return False
    bits = {"BitOr", "BitAnd", "BitXor", "LShift", "RShift"}
    return not (operator.startswith("core/ReplaceBinaryOperator") and len(bits & {*pair.split("_")}) == 1)


def mutants(root: Path, module: str) -> list[Mutant]:
    """Every fault of a module but those that are left out, in the order of the text."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import WorkDB, use_db

    path = source_of(root, module)
    with use_db(":memory:", WorkDB.Mode.create) as db:
        init([path], db, {})
        specs = [item.mutations[0] for item in db.work_items]
    spans = left_out(path.read_text())
    found = [
        Mutant(module, s.definition_name or "", s.operator_name, s.occurrence, tuple(s.start_pos), tuple(s.end_pos))
        for s in specs
        if telling(s.operator_name)
        and not any(start <= tuple(s.start_pos) and tuple(s.end_pos) <= end for start, end in spans)
    ]
    return sorted(found, key=lambda m: (m.start, m.operator, m.occurrence))


def listed(root: Path) -> list[Mutant]:
    """Every fault of every module, which takes a minute or two."""
    with concurrent.futures.ProcessPoolExecutor(WORKERS) as pool:
        return [fault for each in pool.map(functools.partial(mutants, root), modules(root)) for fault in each]


def drawn(found: list, total: int = SAMPLE, seed: int = SEED) -> list:
    """The sample, which depends on the list and the seed alone; in the order of the list."""
    return [found[i] for i in sorted(random.Random(seed).sample(range(len(found)), min(total, len(found))))]


def mutated(source: str, mutant: Mutant) -> str:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)


def change(source: str, other: str) -> tuple[str, str]:
    """The lines that differ, before and after."""
    lines = list(difflib.ndiff(source.splitlines(), other.splitlines()))
    return tuple(" ".join(" ".join(line[2:].split()) for line in lines if line.startswith(f"{sign} ")) for sign in "-+")


def named(root: Path, mutant: Mutant) -> str:
    """How the document names a fault."""
    source = source_of(root, mutant.module).read_text()
    before, after = change(source, mutated(source, mutant))
    return f"`{'.'.join(filter(None, (mutant.module, mutant.function)))}`, `{before}` becomes `{after}`"


# ---- copies of the workbook ------------------------------------------------------------------------------------------


def snapshot(place: Path) -> Path:
    """The working tree as it is now, with its history and with the environment of this process."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, place], check=True)
    for name in names:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    subprocess.run(["git", "add", "--all"], cwd=place, check=True)
    (place / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith(".ready"):
            (place / ".venv" / entry.name).symlink_to(entry)
    (place / ".venv" / ".ready-cpu").touch()  # or make would install into the environment that is linked
    return place


def renewed(place: Path) -> Path:
    """A folder for one who tests: workbook/, a copy of the snapshot beside it, and tmp/, for whatever tests write."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(place.parent / "snapshot", place / "workbook", symlinks=True)
    (place / "tmp").mkdir()
    return place


def environment(place: Path) -> dict[str, str]:
    """What processes find in their environment; TMPDIR also tells them from anybody else's."""
    return {"TMPDIR": str(place / "tmp"), "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "tmp" / "hypothesis")}


def clear(place: Path) -> None:
    """Ends the processes that tests have left behind, and removes what they wrote."""
    mark = f"TMPDIR={place / 'tmp'}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(place / "tmp", ignore_errors=True)
    (place / "tmp").mkdir(exist_ok=True)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# ---- the twin --------------------------------------------------------------------------------------------------------


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


# ---- the gate's stages -----------------------------------------------------------------------------------------------


def stage(
    place: Path, name: str, limit: float, codes: dict[str, str], tests: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The same three ends, in a new copy, with a target of make to notice; and the tests that failed, some of them at
    least, where make names any. ``codes``: of modules; ``tests``: those that are run, all of the target's when empty.
    """
    copy = renewed(place) / "workbook"
    for module, code in codes.items():
        source_of(copy, module).write_text(code)
    begun_by_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SINCE", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in begun_by_make}
    told = {**inherited, **environment(place), "PYTEST_ADDOPTS": shlex.join([f"--maxfail={ENOUGH}", *tests])}
    with (place / "output.txt").open("w") as output:
        make = subprocess.Popen(
            ["make", name, "TORCH=cpu"],
            cwd=copy,
            env=told,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=limit_memory,
        )
        try:
            status = make.wait(limit)
        except subprocess.TimeoutExpired:
            return "killed by the limit", []
        finally:
            clear(place)
            make.wait()
    if status == 0:
        return "survived", []
    text = (place / "output.txt").read_text(errors="replace")
    return "killed", [*dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) (tests/[^\s\[]+)", text, re.M))]


# ---- all of it, to be gone on with -----------------------------------------------------------------------------------


class Notes:
    """What has been found out about a snapshot, in a file to which every process adds lines: an interrupted command
    goes on where it was."""

    def __init__(self, path: Path):
        self.path = path

    def add(self, fault: str, stage: str, end: str, **more) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"fault": fault, "stage": stage, "end": end, **more}) + "\n")

    def all(self) -> dict[tuple[str, str], dict]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return {(note["fault"], note["stage"]): note for note in map(json.loads, lines)}


def settled() -> Path:
    """The folder of this text of lib and tests, in the system's for temporary ones; with a snapshot of the workbook."""
    with tempfile.TemporaryDirectory() as new:
        copy = snapshot(Path(new).resolve() / "snapshot")
        files = sorted(path for name in ("lib", "tests") for path in (copy / name).rglob("*") if path.is_file())
        texts = hashlib.sha256(b"".join(str(p.relative_to(copy)).encode() + p.read_bytes() for p in files))
        place = Path(tempfile.gettempdir()).resolve() / f"looped-mutants-{texts.hexdigest()[:12]}"
        place.mkdir(exist_ok=True)
        if not (place / "snapshot").exists():
            shutil.move(copy, place / "snapshot")
    return place


def sampled(place: Path) -> tuple[int, list[Mutant]]:
    """How many faults there are, and those that are drawn; kept, since listing them takes long."""
    kept = place / "sample.json"
    if not kept.exists():
        found = listed(place / "snapshot")
        kept.write_text(json.dumps({"faults": len(found), "drawn": [dataclasses.asdict(m) for m in drawn(found)]}))
    text = json.loads(kept.read_text())
    return text["faults"], [Mutant(**fields) for fields in text["drawn"]]


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


def meet_stages(place: Path, sample: list[Mutant], notes: Notes) -> None:
    """What the twins missed meets the stages, until one notices; one stage at a time, for each takes all cores."""
    for name in STAGES:
        known = notes.all()
        left = [fault for fault in sample if not noticed(fault, known) and (fault.key, name) not in known]
        for group in apart(left):
            meet_stage(place, name, group, notes)


def apart(faults: list[Mutant]) -> list[list[Mutant]]:
    """As few groups as can be, none of which has two faults of one module."""
    of_module = collections.defaultdict(list)
    for fault in faults:
        of_module[fault.module].append(fault)
    return [[*filter(None, group)] for group in itertools.zip_longest(*of_module.values())]


def meet_stage(place: Path, name: str, group: list[Mutant], notes: Notes) -> None:
    """All of a group at once, since a stage takes minutes and most that get this far change nothing. Where the stage
    notices, each meets the tests that failed by itself, and who passes them meets the stage again with the others;
    where these tests do not tell who it was, each half meets the stage by itself."""
    limit = 30 + 2 * alone(place, name, notes)
    end, failed = meet_together(place, name, group, limit)
    if end == "survived" or len(group) == 1:
        for fault in group:
            note_stage(place, name, fault, notes, end, failed)
        return
    left = group
    if failed and name != "test-smoke":  # which makes all notebooks before it tests any
        left = [fault for fault in group if not meet_tests(place, name, fault, notes, limit, failed)]
    middle = len(group) // 2
    parts = [left] if len(left) < len(group) else [group[:middle], group[middle:]]
    for part in filter(None, parts):
        meet_stage(place, name, part, notes)


def meet_tests(place: Path, name: str, fault: Mutant, notes: Notes, limit: float, tests: list[str]) -> bool:
    """Whether these tests of a stage notice a fault by itself, which is noted then."""
    end, failed = meet_together(place, name, [fault], limit, tests)
    if end != "survived":
        note_stage(place, name, fault, notes, end, failed)
    return end != "survived"


def meet_together(
    place: Path, name: str, group: list[Mutant], limit: float, tests: Sequence[str] = ()
) -> tuple[str, list[str]]:
    codes = {fault.module: mutated(source_of(place / "snapshot", fault.module).read_text(), fault) for fault in group}
    return stage(place / "0", name, limit, codes, tests)


def note_stage(place: Path, name: str, fault: Mutant, notes: Notes, end: str, failed: list[str]) -> None:
    by = failed[0] if failed else ""
    notes.add(fault.key, name, end, by=by)
    print(f"make {name}, {end} {by}: {named(place / 'snapshot', fault)}", flush=True)


def alone(place: Path, name: str, notes: Notes) -> float:
    """The seconds that a stage takes without any fault, which has to pass."""
    if ("", name) not in notes.all():
        begin = time.monotonic()
        end, by = stage(place / "0", name, 4 * 3600, {})
        if end != "survived":
            raise SystemExit(f"make {name} fails without any fault: {by}, see {place / '0' / 'output.txt'}")
        notes.add("", name, end, seconds=time.monotonic() - begin)
    return notes.all()["", name]["seconds"]


def noticed(fault: Mutant, known: dict[tuple[str, str], dict]) -> dict | None:
    """The note of what noticed a fault."""
    notes = [known[fault.key, name] for name in ("twin", *STAGES) if (fault.key, name) in known]
    return next((note for note in notes if note["end"] != "survived"), None)


def prepare() -> None:
    """Imports what takes long, so that a forked process has it; one thread, so that forking is safe."""
    warnings.simplefilter("ignore", SyntaxWarning)
    os.environ["OMP_NUM_THREADS"] = os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # or every process looks through it all for garbage


def main(twins_only: bool) -> None:
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        raise SystemExit("cosmic_ray: is not installed, run .venv/bin/pip install -e .[mutation]") from None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was begun is ended as well
    place = settled()
    faults, sample = sampled(place)
    prepare()
    notes = Notes(place / "results.jsonl")
    meet_twins(place, sample, notes)
    if not twins_only:
        meet_stages(place, sample, notes)
    from tests import mutants_page  # which reads this module

    mutants_page.write(place, faults, sample, notes.all())


if __name__ == "__main__":
    main(twins_only=sys.argv[1:] == ["twins"])

"""make mutants: how many small faults, put into five modules one at a time, the tests notice.

Cosmic Ray lists the faults and makes them, in a copy of the library and the tests; the working tree is only read. A
sample of fixed seed is tested, and docs/testing.md gets the score and the faults that no test noticed.
"""

import ast
import collections
import dataclasses
import difflib
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "testing.md"
SAMPLE, SEED = 300, 0
UNREAD = "not looked at yet"

LOOPED = ["equals_each_sequence_alone", "equal_autograd_through_a_detach", "start_as_the_plain_loop", "loops_alone"]
#: module -> the test files that prove what it does, and of those the tests whose names hold one of some words
TESTS = {
    "depth": {"test_depth.py": [], "test_model.py": ["fill_draws"]},
    "injection": {"test_injection.py": [], "test_model.py": LOOPED},
    "fit": {"test_fit.py": []},
    "flops": {"test_flops.py": [], "test_depth.py": ["expected_loops"]},
    "store": {"test_store.py": [], "test_remote.py": []},
}
#: left out, since they take longest: studies over many fits, and searches for a better optimum, which is lib.optimum's
SLOW = ["phi_is_unbiased", "errors_are_the_spread_over_noise", "held_parameters_have_no_error", "is_drawn_again",
        "no_restart_of_scipy", "newton_from_anywhere"]  # fmt: skip
#: what all tests import, so that a forked process has it
IMPORTED = ["torch._dynamo", "pandas", "scipy.stats", "scipy.optimize", "hypothesis", "pydantic", "safetensors.torch",
            "tokenizers", "tiktoken", "fsspec", "datasets", "tqdm.auto", "torch.utils.flop_counter"]  # fmt: skip


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


# ---- which faults ----------------------------------------------------------------------------------------------------


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
                spans += [ast.Name("", lineno=v.lineno, col_offset=v.col_offset - 2, end_lineno=v.lineno,
                                   end_col_offset=v.col_offset) for v in unpacked]  # fmt: skip
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in spans]


def telling(operator: str) -> bool:
    """Whether a replacement can do harm without failing by itself: not identity for equality, which the interpreter
    gives small numbers and words, and not an operator on bits for one of arithmetic, which floats do not have."""
    _, _, pair = operator.partition("Operator_")
    if {*pair.split("_")} in ({"Eq", "Is"}, {"NotEq", "IsNot"}):
        return False
    bits = {"BitOr", "BitAnd", "BitXor", "LShift", "RShift"}
    return not (operator.startswith("core/ReplaceBinaryOperator") and len(bits & {*pair.split("_")}) == 1)


def mutants(module: str, work: Path) -> list[Mutant]:
    """Every fault of a module but those that are left out, in the order of the text. ``work``: where Cosmic Ray puts
    its list."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import WorkDB, use_db

    path = ROOT / "lib" / f"{module}.py"
    with use_db(str(work / f"{module}.sqlite"), WorkDB.Mode.create) as db:
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


def shares(sizes: dict[str, int], total: int) -> dict[str, int]:
    """``total`` shared out in proportion to the sizes, what is left over to the largest remainders."""
    exact = {name: total * size / sum(sizes.values()) for name, size in sizes.items()}
    rest = total - sum(map(int, exact.values()))
    largest = sorted(exact, key=lambda name: int(exact[name]) - exact[name])[:rest]
    return {name: int(x) + (name in largest) for name, x in exact.items()}


def drawn(found: dict[str, list], total: int = SAMPLE, seed: int = SEED) -> dict[str, list]:
    """The sample, module by module; a module's own depends on its own list and how many are drawn from it."""
    counts = shares({name: len(each) for name, each in found.items()}, min(total, sum(map(len, found.values()))))
    return {name: random.Random(f"{seed} {name}").sample(each, counts[name]) for name, each in found.items()}


def mutated(source: str, mutant: Mutant) -> str:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)


def change(source: str, other: str) -> tuple[str, str]:
    """The lines that differ, before and after."""
    lines = list(difflib.ndiff(source.splitlines(), other.splitlines()))
    return tuple(" ".join(" ".join(line[2:].split()) for line in lines if line.startswith(f"{sign} ")) for sign in "-+")


def named(mutant: Mutant, source: str, other: str) -> str:
    """How the document names a fault."""
    before, after = change(source, other)
    return f"`{'.'.join(filter(None, (mutant.module, mutant.function)))}`, `{before}` becomes `{after}`"


# ---- testing one -----------------------------------------------------------------------------------------------------


class Chosen:
    """Pytest runs the tests of a module, the quickest first as far as ``seconds`` knows, and notes what they take."""

    def __init__(self, module: str, seconds: dict[str, float]):
        self.words, self.seconds = TESTS[module], dict(seconds)

    def pytest_collection_modifyitems(self, items):
        def chosen(item):
            words = self.words[item.path.name]
            return (not words or any(word in item.name for word in words)) and not any(s in item.name for s in SLOW)

        items[:] = sorted(filter(chosen, items), key=lambda item: self.seconds.get(item.nodeid, 0))

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration


def copy_to(place: Path) -> Path:
    """The library and the tests, in a folder of their own."""
    for name in ("lib", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def outcome(copy: Path, module: str, code: str, limit: float, seconds: dict | None = None) -> str:
    """'survived', 'killed' or 'killed by the limit' (of ``limit`` seconds), with ``code`` as the module; ``seconds``
    takes what each test took."""
    path, times = copy / "lib" / f"{module}.py", copy / "seconds.json"
    original = path.read_text()
    path.write_text(code)
    seconds = {} if seconds is None else seconds
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _in_child(copy, module, times, seconds)
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
    status = os.waitstatus_to_exitcode(waited[1])
    if status == 0:
        seconds |= json.loads(times.read_text())
    return "survived" if status == 0 else "killed"


def _in_child(copy: Path, module: str, times: Path, seconds: dict) -> None:
    """Runs the module's tests on the copy and ends this process; its status is 0 where all of them passed."""
    os.setsid()
    status = 70
    try:
        os.chdir(copy)
        quiet = os.open(copy / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name in [name for name in sys.modules if name.split(".")[0] in ("lib", "tests")]:
            del sys.modules[name]
        sys.path.insert(0, str(copy))
        chosen = Chosen(module, seconds)
        files = [str(copy / "tests" / name) for name in TESTS[module]]
        options = ["-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
        status = pytest.main([*options, *files], plugins=[chosen])
        if Path(sys.modules[f"lib.{module}"].__file__) != copy / "lib" / f"{module}.py":
            status = 0  # it was not the copy that was tested: nothing can be killed that way
        times.write_text(json.dumps(chosen.seconds))
    finally:
        sys.stdout.flush()
        os._exit(status)


# ---- the document ----------------------------------------------------------------------------------------------------


def fingerprint(module: str) -> str:
    return hashlib.sha256((ROOT / "lib" / f"{module}.py").read_bytes()).hexdigest()[:12]


def blocks(text: str) -> dict[str, str]:
    """What stands between the marks of the document."""
    return dict(re.findall(r"<!-- (\w+) -->\n(.*?)\n?<!-- /\1 -->", text, re.DOTALL))


def reasons(text: str) -> dict[str, str]:
    """Of each fault that the document names: why no test notices it."""
    return dict(re.findall(r"^- (`.+?`, `.+?` becomes `.*?`): (.*)$", blocks(text)["survivors"], re.M))


def filled(text: str, rows: dict[str, tuple], survivors: list[str]) -> str:
    """The document with other results; what it says of a fault is kept. rows: faults, drawn, killed, of those by the
    limit, and the fingerprint, of each module."""
    total = ["all", *(sum(column) for column in list(zip(*rows.values(), strict=True))[:4]), ""]
    head = "| module | faults | drawn | killed | of those by the time limit | score | measured at |"
    table = [head, "|" + "---|" * 7]
    for name, faults, n, killed, late, at in [*((f"`{name}`", *row) for name, row in rows.items()), total]:
        table.append(f"| {name} | {faults} | {n} | {killed} | {late} | {killed / n:.1%} | {at} |")
    known = reasons(text)
    named = [f"- {name}: {known.get(name, UNREAD)}" for name in survivors]
    for mark, lines in {"score": table, "survivors": named}.items():
        block = "\n".join([f"<!-- {mark} -->", *lines, f"<!-- /{mark} -->"])
        text = re.sub(rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _, b=block: b, text, flags=re.DOTALL)
    return text


def measure(copy: Path, module: str, sample: list[Mutant]) -> tuple[collections.Counter, list[str]]:
    """How many of a module's sample ended how, and those that survived, as the document names them."""
    source = (copy / "lib" / f"{module}.py").read_text()
    seconds, begin = {}, time.monotonic()
    if outcome(copy, module, source, 1200, seconds) != "survived":
        raise SystemExit(f"{module}: its tests fail without any fault\n{(copy / 'output.txt').read_text()}")
    limit = 30 + 2 * (time.monotonic() - begin)
    ends, survivors = collections.Counter(), []
    for number, mutant in enumerate(sample, 1):
        code = mutated(source, mutant)
        end = outcome(copy, module, code, limit, dict(seconds))
        ends[end] += 1
        survivors += [named(mutant, source, code)] if end == "survived" else []
        print(f"{module} {number}/{len(sample)} {end}: {named(mutant, source, code)}", flush=True)
    return ends, survivors


def prepare() -> None:
    """Imports what takes long, so that a forked process has it; one thread, so that forking is safe."""
    warnings.simplefilter("ignore", SyntaxWarning)
    os.environ["OMP_NUM_THREADS"] = os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # or every process looks through it all for garbage


def main() -> None:
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        raise SystemExit("cosmic_ray: is not installed, run .venv/bin/pip install -e .[mutation]") from None
    prepare()
    rows, survivors = {}, []
    with tempfile.TemporaryDirectory() as place:
        copy = copy_to(Path(place).resolve())
        os.environ["PYTHONPATH"] = str(copy)  # of the processes that tests start
        found = {module: mutants(module, copy) for module in TESTS}
        for module, sample in drawn(found).items():
            ends, left = measure(copy, module, sample)
            survivors += left
            late = ends["killed by the limit"]
            rows[module] = len(found[module]), len(sample), ends["killed"] + late, late, fingerprint(module)
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), rows, survivors))


if __name__ == "__main__":
    main()

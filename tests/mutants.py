"""Measures how many small faults, put into any module of lib but the figures', the tests notice (make mutants).

Cosmic Ray lists the faults and makes them, in clones of the last commit. Each fault of a sample of fixed seed meets its
module's twin; the score and the faults that nothing noticed are printed, for docs/testing.md.
"""

import ast
import concurrent.futures
import contextlib
import dataclasses
import difflib
import functools
import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.workbooks import ROOT, lend_environment

SAMPLE, SEED = 100, 57
WORKERS = 2


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


def modules(root: Path) -> list[str]:
    """The modules of the library but the figures', lib/a/b.py as a.b."""
    paths = sorted(path.relative_to(root / "lib") for path in (root / "lib").rglob("*.py"))
    figures = [path for path in paths if any(part.startswith("figures") for part in path.parts)]
    return [".".join(p.with_suffix("").parts) for p in paths if p not in figures and p.name != "__init__.py"]


def source_of(root: Path, module: str) -> Path:
    return root / "lib" / f"{module.replace('.', '/')}.py"


def left_out(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a fault says nothing about the tests: annotations and what only type checkers read, the words of an error,
    the ``strict`` of a zip, and the ``**`` of a mapping in braces, which no other operator can replace."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.arg(annotation=ast.AST() as note) | ast.AnnAssign(annotation=note):
                spans.append(_span(note))
            case ast.FunctionDef(returns=ast.AST() as note):
                spans.append(_span(note))
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                spans.append(_span(node))
            case ast.Raise():
                spans += [_span(part) for part in ast.walk(node) if isinstance(part, ast.JoinedStr)]
            case ast.Call(func=ast.Name("zip"), keywords=[ast.keyword("strict", value)]):
                spans.append(_span(value))
            case ast.Dict():
                unpacked = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
                spans += [((v.lineno, v.col_offset - 2), (v.lineno, v.col_offset)) for v in unpacked]
    return spans


def _span(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


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


def mutated(source: str, mutant: Mutant) -> str:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)


def listed(root: Path) -> list[Mutant]:
    """Every fault of every module, which takes a minute or two."""
    with concurrent.futures.ProcessPoolExecutor(WORKERS) as pool:
        return [fault for each in pool.map(functools.partial(mutants, root), modules(root)) for fault in each]


def drawn(found: list, total: int = SAMPLE, seed: int = SEED) -> list:
    """The sample, which depends on the list and the seed alone; in the order of the list."""
    return [found[i] for i in sorted(random.Random(seed).sample(range(len(found)), min(total, len(found))))]


def twin_of(root: Path, module: str) -> list[Path]:
    """The test files of a module: tests/a/test_b.py of lib/a/b.py, and each test_b_*.py beside it, unless it is of a
    module with a longer name, as lib/a/b_c.py."""
    *folders, name = module.split(".")
    beside = [path.stem for path in source_of(root, module).parent.glob("*.py")]

    def owner(test: Path) -> str:
        return max((other for other in beside if f"{test.stem}_".startswith(f"test_{other}_")), key=len, default="")

    return [p for p in sorted(root.joinpath("tests", *folders).glob(f"test_{name}*.py")) if owner(p) == name]


def cloned(place: Path) -> Path:
    """The last commit, with the environment of this process."""
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, place], check=True)
    lend_environment(place)
    (place / "tmp").mkdir()
    return place


def outcome(copy: Path, module: str, code: str, limit: float) -> str:
    """'survived', 'killed' or 'killed by the limit' (of ``limit`` seconds), with ``code`` as the module in a clone and
    its twin to notice."""
    path = source_of(copy, module)
    original = path.read_text()
    path.write_text(code)
    own = {"PYTHONPATH": str(copy), "TMPDIR": str(copy / "tmp")}
    own |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--hypothesis-seed={SEED}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *twin_of(copy, module)],
        cwd=copy,
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    try:
        return "killed" if process.wait(limit) else "survived"
    except subprocess.TimeoutExpired:
        return "killed by the limit"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        path.write_text(original)


def met(faults: list[Mutant]) -> dict[Mutant, str]:
    """How each fault of one module ended. Its twin has to pass without any."""
    module, ends = faults[0].module, {}
    with tempfile.TemporaryDirectory() as folder:
        copy = cloned(Path(folder).resolve() / "workbook")
        source, begin = source_of(copy, module).read_text(), time.monotonic()
        if outcome(copy, module, source, 1200) != "survived":
            raise SystemExit(f"{module}: its tests fail without any fault")
        limit = 30 + 2 * (time.monotonic() - begin)
        for fault in faults:
            ends[fault] = outcome(copy, module, mutated(source, fault), limit)
            print(f"{ends[fault]}: {named(copy, fault)}", flush=True)
    return ends


def named(root: Path, mutant: Mutant) -> str:
    """A fault by the lines that differ, before and after."""
    source = source_of(root, mutant.module).read_text()
    lines = list(difflib.ndiff(source.splitlines(), mutated(source, mutant).splitlines()))
    before, after = (" ".join(line[2:].strip() for line in lines if line.startswith(f"{sign} ")) for sign in "-+")
    return f"`{'.'.join(filter(None, (mutant.module, mutant.function)))}`, `{before}` becomes `{after}`"


def main() -> None:
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        raise SystemExit("cosmic_ray: is not installed, run .venv/bin/pip install -e .[mutation]") from None
    if subprocess.run(["git", "status", "--porcelain", "lib", "tests"], cwd=ROOT, capture_output=True).stdout:
        raise SystemExit("lib, tests: have changes, commit them first")
    found = listed(ROOT)
    groups = [[*group] for _, group in itertools.groupby(drawn(found), key=lambda fault: fault.module)]
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        ends = {fault: end for each in pool.map(met, groups) for fault, end in each.items()}
    survivors = [named(ROOT, fault) for fault, end in ends.items() if end == "survived"]
    noticed = len(ends) - len(survivors)
    limit = sum(end == "killed by the limit" for end in ends.values())
    print(f"{len(found)} faults in {len(modules(ROOT))} modules, {len(ends)} drawn with seed {SEED}")
    print(f"{noticed} noticed ({noticed / len(ends):.1%}), {limit} of these by a time limit; the others:")
    print(*survivors, sep="\n")


if __name__ == "__main__":
    main()

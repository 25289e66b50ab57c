"""Measures how many small faults, put into any module of lib but the figures', the tests notice (make mutants).

Cosmic Ray lists the faults and makes them, in clones of the last commit. Each fault of a sample of fixed seed meets its
module's twin; the score and the faults that nothing noticed are printed, for docs/testing.md.
"""

import ast
import concurrent.futures
import functools
import itertools
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.workbooks import ROOT, lend_environment

SAMPLE, SEED = 100, 57
WORKERS = 2
MEMORY = 8 << 30  # bytes that a test may have


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


def mutants(root: Path, module: str) -> list[Any]:
    """Every fault of a module but those that are left out, Cosmic Ray's ``MutationSpec``s in the order of the text."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import WorkDB, use_db

    path = source_of(root, module)
    with use_db(":memory:", WorkDB.Mode.create) as db:
        init([path], db, {})
        found = [item.mutations[0] for item in db.work_items]
    spans = left_out(path.read_text())
    found = [
        fault
        for fault in found
        if telling(fault.operator_name)
        and not any(start <= tuple(fault.start_pos) and tuple(fault.end_pos) <= end for start, end in spans)
    ]
    return sorted(found, key=lambda fault: (fault.start_pos, fault.operator_name, fault.occurrence))


def listed(root: Path) -> list[tuple[str, Any]]:
    """Every fault with its module, which takes a minute or two."""
    names = modules(root)
    with concurrent.futures.ProcessPoolExecutor(WORKERS) as pool:
        found = pool.map(functools.partial(mutants, root), names)
        return [(name, fault) for name, faults in zip(names, found, strict=True) for fault in faults]


def drawn(found: list, total: int = SAMPLE, seed: int = SEED) -> list:
    """The sample, which depends on the list and the seed alone; in the order of the list."""
    return [found[i] for i in sorted(random.Random(seed).sample(range(len(found)), min(total, len(found))))]


def twin_of(root: Path, module: str) -> list[Path]:
    """The test files of a module: tests/a/test_b.py of lib/a/b.py, and each test_b_*.py beside it, unless it is of a
    module with a longer name, as lib/a/b_c.py; all of the folder where it has none of its own."""
    *folders, name = module.split(".")
    beside = [path.stem for path in source_of(root, module).parent.glob("*.py")]

    def owner(test: Path) -> str:
        return max((other for other in beside if f"{test.stem}_".startswith(f"test_{other}_")), key=len, default="")

    there = sorted(root.joinpath("tests", *folders).glob("test_*.py"))
    return [path for path in there if owner(path) == name] or there


def cloned(place: Path) -> Path:
    """The last commit, with the environment of this process."""
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, place], check=True)
    lend_environment(place)
    (place / "tmp").mkdir()
    return place


def command(copy: Path, module: str) -> str:
    """What runs the twin of a module in a clone."""
    own = f"PYTHONPATH={copy} TMPDIR={copy / 'tmp'} OMP_NUM_THREADS=1"
    options = f"-x -q -p no:cacheprovider --hypothesis-seed={SEED}"
    twin = " ".join(map(str, twin_of(copy, module)))
    return f"env -C {copy} {own} prlimit --data={MEMORY} {sys.executable} -m pytest {options} {twin}"


def met(module: str, faults: list[Any]) -> list[tuple[str, str]]:
    """How each fault of a module ended ('survived', 'killed', 'killed by the limit'), and its lines. The twin has to
    pass without any."""
    import attrs
    from cosmic_ray.mutating import mutate_and_test

    ends = []
    with tempfile.TemporaryDirectory() as folder:
        copy = cloned(Path(folder).resolve() / "workbook")
        begin, run = time.monotonic(), command(copy, module)
        if mutate_and_test([], run, 1200).test_outcome != "survived":
            raise SystemExit(f"{module}: its tests fail without any fault")
        limit = 30 + 2 * (time.monotonic() - begin)
        for fault in faults:
            result = mutate_and_test([attrs.evolve(fault, module_path=source_of(copy, module))], run, limit)
            end = f"{result.test_outcome.value}{' by the limit' * (result.output == 'timeout')}"
            ends.append((end, named(module, fault, result.diff)))
            print(*ends[-1], sep=": ", flush=True)
    return ends


def named(module: str, fault: Any, diff: str) -> str:
    """A fault by the lines that differ, before and after."""
    lines = diff.splitlines()[3:]
    before, after = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return f"`{'.'.join(filter(None, (module, fault.definition_name)))}`, `{before}` becomes `{after}`"


def main() -> None:
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        raise SystemExit("cosmic_ray: is not installed, run .venv/bin/pip install -e .[mutation]") from None
    if subprocess.run(["git", "status", "--porcelain", "lib", "tests"], cwd=ROOT, capture_output=True).stdout:
        raise SystemExit("lib, tests: have changes, commit them first")
    found = listed(ROOT)
    by_module = itertools.groupby(drawn(found), lambda one: one[0])
    groups = {name: [fault for _, fault in each] for name, each in by_module}
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        ends = [end for each in pool.map(met, groups, groups.values()) for end in each]
    survivors = [fault for end, fault in ends if end == "survived"]
    noticed = len(ends) - len(survivors)
    limit = sum(end == "killed by the limit" for end, _ in ends)
    print(f"{len(found)} faults in {len(modules(ROOT))} modules, {len(ends)} drawn with seed {SEED}")
    print(f"{noticed} noticed ({noticed / len(ends):.1%}), {limit} of these by a time limit; the others:")
    print(*survivors, sep="\n")


if __name__ == "__main__":
    main()

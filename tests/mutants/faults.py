"""A fault is one small change of a module of lib, and those that are tried are drawn from all with a fixed seed."""

import ast
import concurrent.futures
import dataclasses
import difflib
import functools
import json
import random
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


# ---- the sample ------------------------------------------------------------------------------------------------------


def drawn(found: list, total: int = SAMPLE, seed: int = SEED) -> list:
    """The sample, which depends on the list and the seed alone; in the order of the list."""
    return [found[i] for i in sorted(random.Random(seed).sample(range(len(found)), min(total, len(found))))]


def sampled(place: Path) -> tuple[int, list[Mutant]]:
    """How many faults there are, and those that are drawn; kept, since listing them takes long."""
    kept = place / "sample.json"
    if not kept.exists():
        found = listed(place / "snapshot")
        kept.write_text(json.dumps({"faults": len(found), "drawn": [dataclasses.asdict(m) for m in drawn(found)]}))
    text = json.loads(kept.read_text())
    return text["faults"], [Mutant(**fields) for fields in text["drawn"]]


# ---- what a fault does -----------------------------------------------------------------------------------------------


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

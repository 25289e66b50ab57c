import collections
import re
import warnings

import pytest

from tests import mutants
from tests.conftest import python
from tests.mutants import (
    DOCUMENT,
    SAMPLE,
    SEED,
    TESTS,
    UNREAD,
    change,
    drawn,
    filled,
    reasons,
    shares,
)

TEXT = DOCUMENT.read_text()


def rows() -> dict[str, list[str]]:
    """The lines of the score: module -> faults, drawn, killed, of those by the limit, score, fingerprint."""
    lines = mutants.blocks(TEXT)["score"].splitlines()[2:]
    return {cells[0].strip("`"): cells[1:] for cells in (re.findall(r"\| ([^|]*?) (?=\|)", line) for line in lines)}


def test_the_document_says_one_thing():
    found = rows()
    assert [*found] == [*TESTS, "all"]
    for column in range(4):
        assert sum(int(found[module][column]) for module in TESTS) == int(found["all"][column])
    for cells in found.values():
        faults, n, killed, late = map(int, cells[:4])
        assert cells[4] == f"{killed / n:.1%}" and late <= killed <= n <= faults
    for module in TESTS:
        assert re.fullmatch(r"[0-9a-f]{12}", found[module][5])
        if found[module][5] != mutants.fingerprint(module):  # it may change, since the page says at which text it was
            warnings.warn(f"lib/{module}.py has changed since make mutants, see {DOCUMENT.name}", stacklevel=1)
    assert int(found["all"][1]) == SAMPLE
    assert f"{SAMPLE} faults, drawn with seed {SEED}" in TEXT
    assert int(found["all"][2]) >= 0.85 * SAMPLE


def test_every_fault_that_survived_is_named_with_its_reason():
    named = mutants.blocks(TEXT)["survivors"].splitlines()
    modules = collections.Counter(re.match(r"- `(\w+)", line).group(1) for line in named)
    for module in TESTS:
        assert modules[module] == int(rows()[module][1]) - int(rows()[module][2]), module
    assert [f"- {name}: {reason}" for name, reason in reasons(TEXT).items()] == [*dict.fromkeys(named)]
    assert all(reasons(TEXT).values())
    assert UNREAD not in TEXT


def test_the_drawn_faults_are_in_proportion():
    assert shares({name: int(rows()[name][0]) for name in TESTS}, SAMPLE) == {n: int(rows()[n][1]) for n in TESTS}
    assert shares({"a": 1, "b": 1, "c": 4}, 3) == {"a": 1, "b": 0, "c": 2}


def test_a_sample_is_a_function_of_the_lists_and_the_seed():
    lists = {"a": list(range(50)), "b": list(range(150))}
    assert drawn(lists, 20) == drawn(lists, 20) != drawn(lists, 20, seed=1)
    assert {name: len(set(each)) for name, each in drawn(lists, 20).items()} == {"a": 5, "b": 15}
    assert all(set(each) <= set(lists[name]) for name, each in drawn(lists, 20).items())
    assert drawn(lists, 1000)["a"] != lists["a"] == sorted(drawn(lists, 1000)["a"])


def test_the_filter_is_by_place():
    source = """x: int | None = 1 + 2
def f(a: int | None, *b: int | None) -> int | None:
    if a < 3:
        raise ValueError(f"a: {a + 1} is too small")
    return {**x, "k": [c**2 for c, d in zip(a, b, strict=True)]}
if TYPE_CHECKING: y = 1
"""
    lines = source.splitlines()
    texts = [lines[start[0] - 1][start[1] : end[1]] for start, end in mutants.left_out(source)]
    assert sorted(texts) == sorted(
        ["int | None"] * 4 + ['f"a: {a + 1} is too small"', "True", "**", "if TYPE_CHECKING: y = 1"]
    )


def test_the_filter_is_by_kind():
    assert mutants.telling("core/ReplaceBinaryOperator_Add_Sub") and mutants.telling("core/AddNot")
    assert not mutants.telling("core/ReplaceBinaryOperator_Add_BitOr")
    assert not mutants.telling("core/ReplaceBinaryOperator_BitOr_Add")
    assert mutants.telling("core/ReplaceBinaryOperator_BitOr_BitAnd")
    assert not mutants.telling("core/ReplaceComparisonOperator_Is_Eq")
    assert not mutants.telling("core/ReplaceComparisonOperator_NotEq_IsNot")
    assert mutants.telling("core/ReplaceComparisonOperator_Is_IsNot")
    assert mutants.telling("core/ReplaceComparisonOperator_IsNot_Eq")


def test_the_list_of_faults_has_none_that_are_left_out_and_the_page_names_drawn_ones(tmp_path):
    pytest.importorskip("cosmic_ray", reason="pip install -e .[mutation]")
    source = (mutants.ROOT / "lib" / "injection.py").read_text()
    found = mutants.mutants("injection", tmp_path)
    assert len(found) == len(set(found))
    spans = mutants.left_out(source)
    assert spans and not [m for m in found for start, end in spans if start <= m.start and m.end <= end]
    if rows()["injection"][5] == mutants.fingerprint("injection"):
        assert len(found) == int(rows()["injection"][0])
        lists = {name: found if name == "injection" else range(int(rows()[name][0])) for name in TESTS}
        sample = {mutants.named(m, source, mutants.mutated(source, m)) for m in drawn(lists)["injection"]}
        assert {name for name in reasons(TEXT) if name.startswith("`injection")} <= sample


ENDS = """
from pathlib import Path
from tests import mutants
mutants.prepare()
copy, seconds = mutants.copy_to(Path(PLACE)), {}
whole = (copy / "lib" / "injection.py").read_text()
print(mutants.outcome(copy, "injection", whole, 500, seconds))
print(mutants.outcome(copy, "injection", whole.replace("return h + e", "return h - e", 1), 500))
print(mutants.outcome(copy, "injection", "while True: pass", 5))
print(bool(seconds) and (copy / "lib" / "injection.py").read_text() == whole)
"""


def test_a_fault_is_noticed_and_its_absence_is_not(tmp_path):
    before = (mutants.ROOT / "lib" / "injection.py").read_bytes()
    told, _ = python(ENDS.replace("PLACE", repr(str(tmp_path)))).communicate(timeout=590)
    assert told.splitlines()[-4:] == ["survived", "killed", "killed by the limit", "True"], told
    assert (mutants.ROOT / "lib" / "injection.py").read_bytes() == before


def test_a_reason_stays_with_its_fault():
    text = """<!-- score -->
<!-- /score -->
<!-- survivors -->
- `a.f`, `x + 1` becomes `x - 1`: why
<!-- /survivors -->"""
    other = filled(text, {"a": (9, 4, 2, 1, "ab")}, ["`a.f`, `x + 1` becomes `x - 1`", "`a.g`, `y` becomes ``"])
    assert reasons(other) == {"`a.f`, `x + 1` becomes `x - 1`": "why", "`a.g`, `y` becomes ``": UNREAD}
    assert "| `a` | 9 | 4 | 2 | 1 | 50.0% | ab |\n| all | 9 | 4 | 2 | 1 | 50.0% |  |" in other


def test_a_change_is_the_lines_that_differ():
    assert change("a\n  b +  1\nc\n", "a\n  b -  1\nc\n") == ("b + 1", "b - 1")
    assert change("@property\na\n", "a\n") == ("@property", "")

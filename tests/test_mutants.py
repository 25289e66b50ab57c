"""The page on the tests agrees with itself and reaches its score, and make mutants measures what that page says."""

import itertools
import re
import warnings
from pathlib import Path

import pytest

from tests.mutants import faults, page, stages, twins
from tests.mutants.faults import ROOT, SAMPLE, SEED, Mutant, change, drawn
from tests.mutants.notes import STAGES, Notes, noticed
from tests.mutants.page import DOCUMENT, UNREAD, filled, reasons
from tests.processes import python

TEXT = DOCUMENT.read_text()
SCORE = dict(re.findall(r"^\| (\S.*?) \| (.*?) \|$", page.blocks(TEXT)["score"], re.M))
FAULT = Mutant("a", "f", "core/AddNot", 0, (1, 0), (1, 3))


def count(line: str) -> int:
    return int(SCORE[line])


def named(block: str) -> list[str]:
    return page.blocks(TEXT)[block].splitlines()


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_says_one_thing():
    by_stages = [count(f"noticed by `make {name}`") for name in STAGES]
    assert count(f"drawn with seed {SEED}") == SAMPLE and f"{SAMPLE} faults are drawn with seed {SEED}" in TEXT
    assert count("noticed by the twin") + sum(by_stages) == count("noticed in all")
    assert sum(by_stages) <= count("tried on the stages") <= SAMPLE - count("noticed by the twin")
    assert count("of these by a time limit") <= count("noticed in all") <= SAMPLE
    assert SCORE["score"] == f"{count('noticed in all') / SAMPLE:.1%}"
    assert len([name for name in SCORE if name.startswith("faults in ")]) == 1


def test_nine_of_ten_are_noticed():
    """And the page says so where what the twins missed has not met the stages."""
    assert count("noticed in all") >= 0.9 * SAMPLE
    waiting = SAMPLE - count("noticed by the twin") - count("tried on the stages")
    assert ("The stages have not met all survivors of the twins yet" in TEXT) == (waiting > 0)


def test_the_page_says_at_which_text_it_was_measured():
    assert re.fullmatch(r"[0-9a-f]{12}", SCORE["measured at"])
    if SCORE["measured at"] != page.fingerprint(ROOT):  # which may be, since the page says so
        warnings.warn(f"lib has changed since make mutants, see {DOCUMENT.name}", stacklevel=1)


def test_what_the_twin_missed_is_named_with_the_stage_or_the_reason():
    for name in STAGES:
        lines = [line for line in named("stages") if re.search(rf"`: `make {name}`(, `tests/\S+`)?$", line)]
        assert len(lines) == count(f"noticed by `make {name}`")
    assert len(named("survivors")) == SAMPLE - count("noticed in all")
    assert [f"- {name}: {reason}" for name, reason in reasons(TEXT).items()] == [*dict.fromkeys(named("survivors"))]
    assert all(reasons(TEXT).values()) and UNREAD not in TEXT


def test_a_reason_stays_with_its_fault():
    text = """<!-- score -->
<!-- /score -->
<!-- stages -->
<!-- /stages -->
<!-- survivors -->
- `a.f`, `x + 1` becomes `x - 1`: why
<!-- /survivors -->"""
    other = filled(
        text, {"drawn": 9}, ["- it: `make test`"], ["`a.f`, `x + 1` becomes `x - 1`", "`a.g`, `y` becomes ``"]
    )
    assert reasons(other) == {"`a.f`, `x + 1` becomes `x - 1`": "why", "`a.g`, `y` becomes ``": UNREAD}
    assert "`x + 1`\n  becomes `x - 1`:\n  why\n" in other  # over lines, for a reader
    assert "| drawn | 9 |\n<!-- /score -->" in other and "- it: `make test`\n<!-- /stages -->" in other


# ---- what the command does -------------------------------------------------------------------------------------------


def test_modules_are_all_but_the_figures_and_each_has_its_twin(tmp_path):
    for name in ("__init__", "b", "a/figures", "figures/d", "a/figures_x", "a/__init__", "a/c"):
        (tmp_path / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / f"{name}.py").touch()
    assert faults.modules(tmp_path) == ["a.c", "b"]
    assert faults.source_of(tmp_path, "a.c") == tmp_path / "lib" / "a" / "c.py"
    for module in faults.modules(ROOT):
        *folders, name = module.split(".")
        assert ROOT.joinpath("tests", *folders, f"test_{name}.py") in twins.twin_of(ROOT, module), module


def test_a_twin_is_all_files_with_the_modules_name_but_those_of_a_longer_one(tmp_path):
    own = {
        "b": ["test_b.py", "test_b_x.py"],
        "a.b": ["a/test_b.py", "a/test_b_of_more.py", "a/test_b_x.py"],
        "a.b_c": ["a/test_b_c.py", "a/test_b_c_x.py"],
        "a.d": ["a/test_d.py"],
    }
    nobodys = ["a/test_bad.py", "a/b_x.py", "a/test_x.py", "test_d.py"]
    for name in [f"lib/{module.replace('.', '/')}.py" for module in own]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tests" / "a").mkdir(parents=True)
    for name in [*itertools.chain(*own.values()), *nobodys]:
        (tmp_path / "tests" / name).touch()
    for module, names in own.items():
        assert twins.twin_of(tmp_path, module) == [tmp_path / "tests" / name for name in names]


def test_a_sample_is_a_function_of_the_list_and_the_seed():
    found = list(range(200))
    assert drawn(found, 20) == drawn(found, 20) != drawn(found, 20, seed=1)
    assert len(set(drawn(found, 20))) == 20 and set(drawn(found, 20)) <= {*found}
    assert drawn(found, 1000) == found


def test_the_filter_is_by_place():
    source = """x: int | None = 1 + 2
def f(a: int | None, *b: int | None) -> int | None:
    if a < 3:
        raise ValueError(f"a: {a + 1} is too small")
    return {**x, "k": [c**2 for c, d in zip(a, b, strict=True)]}
if TYPE_CHECKING: y = 1
"""
    lines = source.splitlines()
    texts = [lines[start[0] - 1][start[1] : end[1]] for start, end in faults.left_out(source)]
    assert sorted(texts) == sorted(
        ["int | None"] * 4 + ['f"a: {a + 1} is too small"', "True", "**", "if TYPE_CHECKING: y = 1"]
    )


def test_the_filter_is_by_kind():
    assert faults.telling("core/ReplaceBinaryOperator_Add_Sub") and faults.telling("core/AddNot")
    assert not faults.telling("core/ReplaceBinaryOperator_Add_BitOr")
    assert not faults.telling("core/ReplaceBinaryOperator_BitOr_Add")
    assert faults.telling("core/ReplaceBinaryOperator_BitOr_BitAnd")
    assert not faults.telling("core/ReplaceComparisonOperator_Is_Eq")
    assert not faults.telling("core/ReplaceComparisonOperator_NotEq_IsNot")
    assert faults.telling("core/ReplaceComparisonOperator_Is_IsNot")
    assert faults.telling("core/ReplaceComparisonOperator_IsNot_Eq")


@pytest.mark.long
def test_the_list_of_faults_has_none_that_are_left_out(tmp_path):
    pytest.importorskip("cosmic_ray", reason="pip install -e .[mutation]")
    source = """def f(a: int | None):
    if a < 3:
        raise ValueError(f"a: {a + 1} is too small")
    return a + 1
"""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "b.py").write_text(source)
    found = faults.mutants(tmp_path, "b")
    assert {fault.start[0] for fault in found} == {2, 4} and len(found) == len({fault.key for fault in found})
    assert "`b.f`, `return a + 1` becomes `return a - 1`" in {faults.named(tmp_path, fault) for fault in found}


def test_a_change_is_the_lines_that_differ():
    assert change("a\n  b +  1\nc\n", "a\n  b -  1\nc\n") == ("b + 1", "b - 1")
    assert change("@property\na\n", "a\n") == ("@property", "")


def test_what_notices_a_fault_is_the_first_that_it_did_not_survive():
    twin, stage = {"stage": "twin", "end": "survived"}, {"stage": "test", "end": "killed by the limit"}
    assert noticed(FAULT, {}) is noticed(FAULT, {("a core/AddNot 0", "twin"): twin}) is None
    known = {("a core/AddNot 0", "twin"): twin, ("a core/AddNot 0", "test"): stage}
    assert noticed(FAULT, known) == stage and noticed(FAULT, {("a core/AddNot 1", "test"): stage}) is None


def faults_of(*modules: str) -> list[Mutant]:
    return [Mutant(module, "f", "core/AddNot", i, (1, 0), (1, 3)) for i, module in enumerate(modules)]


def test_no_two_faults_of_a_module_meet_a_stage_at_once():
    faults = faults_of("a", "b", "a", "c", "a")
    groups = stages.apart(faults)
    assert [[fault.module for fault in group] for group in groups] == [["a", "b", "c"], ["a"], ["a"]]
    assert sorted((fault for group in groups for fault in group), key=lambda fault: fault.occurrence) == faults


@pytest.fixture
def met(tmp_path, monkeypatch):
    """What a stage runs, (modules with a fault, tests), while faults a to e meet it; and who is found guilty."""

    def meet(name, fails):
        faults, ran = faults_of(*"abcde"), []

        def stage(place, name, limit, codes, tests=()):
            ran.append(("".join(codes), *tests))
            failed = [test for module in codes for test in fails.get(module, ()) if not tests or test in tests]
            return ("killed", [test for test in failed if test]) if failed else ("survived", [])

        monkeypatch.setattr(stages, "stage", stage)
        monkeypatch.setattr(stages, "alone", lambda *_: 1.0)
        monkeypatch.setattr(stages, "mutated", lambda text, fault: text)
        monkeypatch.setattr(stages, "source_of", lambda root, module: Path(__file__))
        monkeypatch.setattr(stages, "named", lambda root, fault: fault.module)
        notes = Notes(tmp_path / f"{name}.jsonl")
        stages.meet_stage(tmp_path, name, faults, notes)
        assert {name for _, name in notes.all()} == {name} and len(notes.all()) == len(faults)
        return ran, {fault.module for fault in faults if noticed(fault, notes.all())}

    return meet


def test_of_a_group_that_is_noticed_each_meets_the_tests_that_failed(met):
    ran, guilty = met("test", {"b": ["x"], "e": ["y"]})
    assert guilty == {"b", "e"}
    assert ran == [("abcde",), *((module, "x", "y") for module in "abcde"), ("acd",)]


def test_where_no_test_is_named_each_half_meets_the_stage(met):
    ran, guilty = met("test", {"b": [""], "e": [""]})
    assert guilty == {"b", "e"}
    assert [codes for codes, *_ in ran] == ["abcde", "ab", "a", "b", "cde", "c", "de", "d", "e"]


def test_the_score_counts_who_noticed(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").touch()
    sample = [Mutant("a", "f", "core/AddNot", i, (1, 0), (1, 3)) for i in range(4)]
    ends = [("twin", ["killed", "survived", "survived", "survived"]), ("test", [None, "killed", "survived", None])]
    known = {
        (fault.key, stage): {"stage": stage, "end": end}
        for stage, each in ends
        for fault, end in zip(sample, each, strict=True)
        if end
    }
    score = page.results(7, sample, known, tmp_path)
    assert score["faults in 1 modules"] == 7 and score["tried on the stages"] == 2
    assert score["noticed by the twin"] == score["noticed by `make test`"] == 1 and score["score"] == "50.0%"


# ---- end to end ------------------------------------------------------------------------------------------------------

ENDS = """
from pathlib import Path
from tests.mutants import copies, faults, stages, twins
place = Path(PLACE)
twins.prepare()
copies.snapshot(place / "snapshot")
own, seconds = copies.renewed(place / "0"), {}
path = faults.source_of(own / "workbook", "base.seeds")
whole = path.read_text()
wrong = whole.replace("return", "return 1 +", 1)
print(twins.outcome(own, "base.seeds", whole, 500, seconds))
print(twins.outcome(own, "base.seeds", wrong, 500))
print(twins.outcome(own, "base.seeds", "while True: pass", 5))
print(bool(seconds) and path.read_text() == whole)
tests = ["tests/base/test_seeds.py"]
print(stages.stage(own, "test", 500, {}, tests))
print(stages.stage(own, "test", 500, {"base.seeds": wrong}, tests))
print(stages.stage(own, "test", 5, {"base.seeds": "while True: pass"}, tests))
"""


@pytest.mark.long
def test_a_fault_is_noticed_and_its_absence_is_not(tmp_path):
    before = (ROOT / "lib" / "base" / "seeds.py").read_bytes()
    told, _ = python(ENDS.replace("PLACE", repr(str(tmp_path)))).communicate(timeout=1200)
    *twin, alone, wrong, late = told.splitlines()[-7:]
    assert twin == ["survived", "killed", "killed by the limit", "True"], told
    assert alone == "('survived', [])" and late == "('killed by the limit', [])", told
    assert re.match(r"\('killed', \['tests/base/test_seeds.py::\w+'", wrong), told
    assert (ROOT / "lib" / "base" / "seeds.py").read_bytes() == before


@pytest.mark.long
def test_the_page_names_drawn_faults():
    pytest.importorskip("cosmic_ray", reason="pip install -e .[mutation]")
    if SCORE["measured at"] != page.fingerprint(ROOT):
        pytest.skip("lib has changed since make mutants")
    found = faults.listed(ROOT)
    assert SCORE[f"faults in {len(faults.modules(ROOT))} modules"] == str(len(found))
    sample = {faults.named(ROOT, fault) for fault in drawn(found)}
    assert {*reasons(TEXT)} <= sample
    assert {re.sub(r"^- |: `make .*$", "", line) for line in named("stages")} <= sample

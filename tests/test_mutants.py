"""The page on the tests agrees with itself and reaches its score, and make mutants measures what that page says."""

import re
import warnings

import pytest

from tests import mutants
from tests.mutants import DOCUMENT, ROOT, SAMPLE, SEED, UNREAD, reasons

TEXT = DOCUMENT.read_text()
SCORE = dict(re.findall(r"^\| (\S.*?) \| (.*?) \|$", mutants.blocks(TEXT)["score"], re.M))


def test_nine_of_ten_are_noticed_and_every_other_has_its_reason():
    noticed, survivors = int(SCORE["noticed"]), mutants.blocks(TEXT)["survivors"].splitlines()
    assert int(SCORE[f"drawn with seed {SEED}"]) == SAMPLE and 0.9 * SAMPLE <= noticed <= SAMPLE
    assert SCORE["score"] == f"{noticed / SAMPLE:.1%}" and len(survivors) == SAMPLE - noticed
    assert [f"- {name}: {reason}" for name, reason in reasons(TEXT).items()] == [*dict.fromkeys(survivors)]
    assert all(reasons(TEXT).values()) and UNREAD not in TEXT
    if SCORE["measured at"] != mutants.fingerprint(ROOT):  # which may be, since the page says so
        warnings.warn(f"lib has changed since make mutants, see {DOCUMENT.name}", stacklevel=1)


def test_a_twin_is_all_files_with_the_modules_name_but_those_of_a_longer_one(tmp_path):
    (tmp_path / "lib" / "a").mkdir(parents=True)
    (tmp_path / "tests" / "a").mkdir(parents=True)
    for name in ("b", "b_c", "figures", "__init__"):
        (tmp_path / "lib" / "a" / f"{name}.py").touch()
    for name in ("test_b", "test_b_x", "test_b_c", "test_b_c_x", "test_bad", "b_x"):
        (tmp_path / "tests" / "a" / f"{name}.py").touch()
    assert mutants.modules(tmp_path) == ["a.b", "a.b_c"]
    assert [path.stem for path in mutants.twin_of(tmp_path, "a.b")] == ["test_b", "test_b_x"]
    assert [path.stem for path in mutants.twin_of(tmp_path, "a.b_c")] == ["test_b_c", "test_b_c_x"]


def test_the_filter_is_by_kind():
    assert mutants.telling("core/ReplaceBinaryOperator_Add_Sub") and mutants.telling("core/AddNot")
    assert not mutants.telling("core/ReplaceBinaryOperator_Add_BitOr")
    assert mutants.telling("core/ReplaceBinaryOperator_BitOr_BitAnd")
    assert not mutants.telling("core/ReplaceComparisonOperator_Is_Eq")
    assert mutants.telling("core/ReplaceComparisonOperator_Is_IsNot")


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
    found = mutants.mutants(tmp_path, "b")
    assert {fault.start[0] for fault in found} == {2, 4} and len(found) == len({*found})
    assert "`b.f`, `return a + 1` becomes `return a - 1`" in {mutants.named(tmp_path, fault) for fault in found}


@pytest.mark.long
def test_a_fault_is_noticed_and_its_absence_is_not(tmp_path):
    copy = mutants.cloned(tmp_path / "workbook")
    whole = mutants.source_of(ROOT, "base.seeds").read_text()
    wrong = whole.replace("return", "return 1 +", 1)
    assert mutants.outcome(copy, "base.seeds", whole, 500) == "survived"
    assert mutants.outcome(copy, "base.seeds", wrong, 500) == "killed"
    assert mutants.outcome(copy, "base.seeds", "while True: pass", 5) == "killed by the limit"
    assert mutants.source_of(copy, "base.seeds").read_text() == whole

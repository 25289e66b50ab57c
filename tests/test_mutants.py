"""make mutants measures what docs/testing.md says: which faults, and whether a module's twin notices them."""

import pytest

from tests import mutants
from tests.workbooks import ROOT


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


def test_the_filter_is_by_place_and_by_kind():
    source = 'def f(a: int | None, **b: int) -> int | None:\n    raise ValueError(f"a: {a + 1}")\n'
    spans = [source.splitlines()[start[0] - 1][start[1] : end[1]] for start, end in mutants.left_out(source)]
    assert sorted(spans) == sorted(["int | None", "int | None", "int", 'f"a: {a + 1}"'])
    assert mutants.telling("core/ReplaceBinaryOperator_Add_Sub") and mutants.telling("core/AddNot")
    assert not mutants.telling("core/ReplaceBinaryOperator_Add_BitOr")
    assert not mutants.telling("core/ReplaceComparisonOperator_Is_Eq")


@pytest.mark.long
def test_a_fault_is_noticed_and_told_by_its_lines():
    pytest.importorskip("cosmic_ray")
    ((end, said),) = mutants.met("base.seeds", mutants.mutants(ROOT, "base.seeds")[:1])
    assert end == "killed" and said.startswith("`base.seeds.") and "` becomes `" in said

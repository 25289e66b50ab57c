"""A measurement is made once, found again by what its case says, and made anew where its file is damaged."""

import json

import pytest

from lib.base import files
from lib.base.errors import InputError
from lib.papers.residual.designs import first_steps, initial_increments
from lib.store import records
from lib.sweep.measurements import Asked, kept_under, key, measure, name, named
from lib.tasks.evaluations import evaluate
from tests.cases import Case, squared
from tests.lines import one_line
from tests.runs import records_alone


@named("broken")
def broken(case: Case) -> dict:
    if case.x == 3:
        raise ZeroDivisionError("three")
    return {"square": case.x**2}


def test_measurements_are_kept_under_a_declared_name(store):
    """Which runs of years ago are found by, though their function has moved."""
    names = ["lib.growth.first_steps", "lib.growth.initial_increments", "lib.downstream.evaluate"]
    assert [name(function) for function in (first_steps, initial_increments, evaluate)] == names
    with one_line("function: test_measurements_", "declare one with named"):
        measure(lambda case: {}, [Case(x=1)], store, jobs=1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_case_is_measured_in_the_order_given(store, jobs):
    found = measure(squared, [Case(x=3), Case(x=2), Case(x=3)], store, jobs)
    assert [values["square"] for values in found] == [9, 4, 9]
    kept = sorted((store.path.parent / "measured" / name(squared)).glob("*.json"))
    assert [path.stem for path in kept] == sorted({key(Case(x=3)), key(Case(x=2))})
    assert json.loads(kept[0].read_text())["case"]["x"] in (2, 3)


def test_what_is_kept_is_read_and_not_measured_again(store):
    with pytest.raises(ZeroDivisionError):
        measure(broken, [Case(x=2), Case(x=3)], store, jobs=1)
    path = store.path.parent / "measured" / name(broken) / f"{key(Case(x=2))}.json"
    kept = json.loads(path.read_text())  # made before the error
    files.write_checked(path, {**kept, "measured": {"square": -1}})
    assert measure(broken, [Case(x=2)], store, jobs=1) == [{"square": -1}]


def test_what_is_kept_comes_with_its_case_and_who_measured_it(store, tmp_path):
    measure(squared, [Case(x=3)], store, jobs=1)
    kept = kept_under(name(squared), key(Case(x=3)), store)
    assert kept.case == {"x": 3.0, "note": ""} and kept.measured == {"square": 9.0} and "commit" in kept.provenance
    assert kept_under(name(squared), key(Case(x=4)), store) is None
    records.add(tmp_path, [], [kept])
    assert kept_under(name(squared), key(Case(x=3)), records_alone(tmp_path, tmp_path)) == kept


def test_a_case_that_is_not_that_of_its_key_is_not_believed(store, tmp_path, capsys):
    """It may lack a field that came later, of which it has the default."""
    measure(squared, [Case(x=3)], store, jobs=1)
    kept, asked = kept_under(name(squared), key(Case(x=3)), store), Asked(squared, Case(x=3))
    for number, (case, believed) in enumerate([({"x": 3.0}, True), ({"x": 999.0}, False), ({}, False)]):
        records.write(tmp_path / str(number), [], [kept._replace(case=case)])
        found = asked.found(records_alone(tmp_path / str(number), tmp_path))
        assert (found is not None) == believed == ("its case" not in capsys.readouterr().err)
    path = store.path.parent / "measured" / kept.function / f"{kept.key}.json"
    files.write_checked(path, {**json.loads(path.read_text()), "case": {"x": 999.0}})
    assert asked.found(store) is None and "its case is not that of its key" in capsys.readouterr().out


def test_what_would_take_too_long_is_refused_after_the_cheapest_and_the_middle_one(store):
    cases = [Case(x=x) for x in (1e9, 1, 2)]
    with pytest.raises(InputError, match="max_hours: 1 missing measurements need about"):
        measure(squared, cases, store, jobs=1, max_hours=1e-9)
    assert len(list((store.path.parent / "measured").rglob("*.json"))) == 2
    free = [Case(x=-1, note=note) for note in "abc"]  # of no FLOPs
    assert measure(squared, free, store, jobs=1, max_hours=1e-9) == [{"square": 1}] * 3
    assert len(measure(squared, cases[1:], store, jobs=1, max_hours=1)) == 2  # there is nothing left to wait for
    assert len(measure(squared, [Case(x=x) for x in range(3, 9)], store, jobs=1, max_hours=1)) == 6
    assert len(measure(squared, cases, store, jobs=1, max_hours=1e9)) == 3

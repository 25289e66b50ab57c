import json

import pytest
from pydantic import Field

from lib.config import Config
from lib.measure import key, measure
from lib.store import RunStore


class Case(Config):
    x: float = 0.0
    note: str = Field("", description="a field that is mostly left alone")


def squared(case: Case) -> dict:
    return {"square": case.x**2}


def broken(case: Case) -> dict:
    if case.x == 3:
        raise ZeroDivisionError("three")
    return {"square": case.x**2}


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_case_is_measured_in_the_order_given(store, jobs):
    found = measure(squared, [Case(x=3), Case(x=2), Case(x=3)], store, jobs)
    assert [values["square"] for values in found] == [9, 4, 9]
    kept = sorted((store.path.parent / "measured" / "squared").glob("*.json"))
    assert [path.stem for path in kept] == sorted({key(Case(x=3)), key(Case(x=2))})
    assert json.loads(kept[0].read_text())["case"]["x"] in (2, 3)


def test_what_is_kept_is_read_and_not_measured_again(store):
    with pytest.raises(ZeroDivisionError):
        measure(broken, [Case(x=2), Case(x=3)], store, jobs=1)
    path = store.path.parent / "measured" / "broken" / f"{key(Case(x=2))}.json"
    kept = json.loads(path.read_text())  # made before the error
    path.write_text(json.dumps({**kept, "measured": {"square": -1}}))
    assert measure(broken, [Case(x=2)], store, jobs=1) == [{"square": -1}]


def test_records_are_read_where_the_store_has_nothing(store, tmp_path):
    measure(squared, [Case(x=5)], store, jobs=1)
    elsewhere = RunStore(tmp_path / "new" / "runs", records=[store.path.parent])
    assert measure(squared, [Case(x=5)], elsewhere, jobs=1) == [{"square": 25}]
    assert not (tmp_path / "new").exists()


def test_a_key_is_of_what_the_case_says():
    assert key(Case(x=1)) == key(Case(x=1, note="")) != key(Case(x=1, note="other"))

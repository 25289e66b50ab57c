"""The reference is of the notebooks as they are: what has finished is noted, and what has changed since is not."""

import datetime

import nbformat
import pytest

import lib
from lib import config
from lib.workbook import claims, collect, places, plans, reference
from lib.workbook.parameters import of_profile
from lib.workbook.plans import names


def test_the_reference_has_every_notebook_and_its_claims(plans_once):
    """Who changes its parameters, its runs or its claims' rules runs it at cpu, and notes it with ``collect``."""
    known = reference.read()
    asked = claims.ledger(places.LEDGER).values()
    for profile in known.whole:
        assert sorted(known.entries[profile]) == sorted(names())
    entries = known.entries["cpu"]
    current = {name: entry for name, entry in entries.items() if entry.made_from == collect.made_from(name, "cpu")}
    for name, entry in current.items():
        assert entry.seconds > 0 and set(entry.verdicts) == {claim.id for claim in asked if claim.notebook == name}
        assert set(entry.verdicts.values()) <= {*claims.VERDICTS} - {claims.UNJUDGED, claims.OPEN}


def test_no_profile_leaves_its_arithmetic_to_the_machine(monkeypatch):
    """A verdict that depends on the machine is none: a profile names its precision, fp32 on two cores, bf16-mixed on
    GPUs. So ``auto`` decides no run's key, nor what a reference was made from."""
    found = []
    for precision in ("fp32", "bf16-mixed"):
        monkeypatch.setattr(config, "native_precision", lambda precision=precision: precision)
        keys = {cfg.key for cfg in plans.planned("usage_weighted", "smoke")}
        found.append((keys, collect.made_from("usage_weighted", "smoke")))
    assert found[0] == found[1]
    for profile, named in {"smoke": "fp32", "cpu": "fp32", "gpu": "bf16-mixed", "paper": "bf16-mixed"}.items():
        given = {name: of_profile(profile, name) for name in names()}
        assert {name: p["precision"] for name, p in given.items() if p.get("precision", named) != named} == {}


def test_an_entry_is_made_from_every_parameter_but_whether_to_train(monkeypatch):
    given, plan = of_profile("smoke", "usage_weighted"), plans.plan("usage_weighted", "smoke")
    monkeypatch.setattr(plans, "plan", lambda name, profile: plan)

    def made_from(**changed):
        monkeypatch.setattr(collect.parameters, "of_profile", lambda profile, name: given | changed)
        return collect.made_from("usage_weighted", "smoke")

    same = [name for name in given if made_from(**{name: "another"}) == made_from()]
    assert same == ["train"]


def took(copy, seconds, **changed):
    """An executed copy, as papermill leaves it, of a notebook at smoke that took so long."""
    notebook = nbformat.read(places.NOTEBOOKS / copy.name, as_version=4)
    parameters = {**of_profile("smoke", copy.stem), **changed}
    injected = nbformat.v4.new_code_cell("jobs = 2", metadata={"tags": ["injected-parameters"]})
    notebook.cells.insert(3, injected)
    started = datetime.datetime(2026, 1, 1)
    times = {"start_time": started.isoformat(), "end_time": (started + datetime.timedelta(seconds=seconds)).isoformat()}
    notebook.metadata["papermill"] = {**times, "duration": seconds, "parameters": parameters}
    nbformat.write(notebook, copy)


@pytest.fixture
def made(tmp_path):
    """The outputs of one notebook that was run at smoke, in its last second."""
    place = tmp_path / "notebooks" / "smoke"
    place.mkdir(parents=True)
    took(place / "usage_weighted.ipynb", 12.34)
    for claim in claims.of_notebook("usage_weighted"):
        seeds = [1, 2] if claim.replicates == "seeds" else []
        values = {"values": [1.0] * (len(seeds) or 1), "seeds": seeds, "unit": "", "note": "", "profile": "smoke"}
        claims.report(claim, "usage_weighted", folder=tmp_path / "claims" / "smoke", **values)
    return tmp_path


def test_what_is_finished_is_noted_and_what_did_not_change_stays(made, monkeypatch):
    path, mark = made / "reference.json", made / "notebooks" / "smoke" / ".usage_weighted.done"
    monkeypatch.setattr(reference, "yardstick", lambda: 1e9)
    collect.collect(made, path)
    assert reference.read(path).entries["smoke"] == {}  # it has not ended
    mark.touch()
    collect.collect(made, path)
    entry = reference.read(path).entries["smoke"]["usage_weighted"]
    assert reference.read(path).whole == {}  # of one notebook nobody knows what all of them take
    assert entry.seconds == 12.3 and set(entry.verdicts.values()) == {claims.UNJUDGED}
    assert entry.numbers.keys() == entry.verdicts.keys() and set(entry.numbers.values()) == {"1"}
    took(mark.with_name("usage_weighted.ipynb"), 3.0)
    collect.collect(made, path)  # it read what was trained before, which is no time to plan with
    assert reference.read(path).entries["smoke"]["usage_weighted"] == entry
    monkeypatch.setattr(lib, "RECIPE", "another")
    collect.collect(made, path)
    assert reference.read(path).entries["smoke"]["usage_weighted"].seconds == 3.0


def test_what_has_changed_since_it_was_executed_is_not_noted(made, monkeypatch, capsys):
    monkeypatch.setattr(reference, "yardstick", lambda: 1e9)
    mark = made / "notebooks" / "smoke" / ".usage_weighted.done"
    mark.touch()
    took(mark.with_name("usage_weighted.ipynb"), 3.0, jobs=7)  # make gives it the number of processes
    copy = nbformat.read(mark.with_name("usage_weighted.ipynb"), as_version=4)
    assert collect.is_as_executed(copy, "usage_weighted", "smoke")
    took(mark.with_name("usage_weighted.ipynb"), 3.0, seeds=[7])
    collect.collect(made, made / "reference.json")
    assert reference.read(made / "reference.json").entries["smoke"] == {}
    assert capsys.readouterr().out.startswith("usage_weighted: it or its parameters have changed")
    took(mark.with_name("usage_weighted.ipynb"), 3.0)
    notebook = nbformat.read(mark.with_name("usage_weighted.ipynb"), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("1 + 1"))
    assert not collect.is_as_executed(notebook, "usage_weighted", "smoke")


def test_a_profile_that_was_made_whole_says_what_it_took(made, monkeypatch):
    monkeypatch.setattr(plans, "names", lambda profile="": ["usage_weighted"])
    monkeypatch.setattr(reference, "yardstick", lambda: 1e9)
    (made / "notebooks" / "smoke" / ".usage_weighted.done").touch()
    collect.collect(made, made / "reference.json")
    assert reference.read(made / "reference.json").whole == {"smoke": 12.3}


def test_an_entry_made_from_anything_else_is_outdated(monkeypatch):
    monkeypatch.setattr(collect, "made_from", lambda name, profile: 5)
    entries = {f"{n}": reference.Entry(seconds=1, verdicts={}, made_from=n) for n in (4, 5, 6)}
    known = reference.Reference(flops_per_second=1, cores=1, whole={}, entries={"cpu": entries})
    assert collect.outdated(known) == {("cpu", "4"), ("cpu", "6")}

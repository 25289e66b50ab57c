"""The README's table and the reference are of the notebooks as they are, and what has changed is not noted."""

import dataclasses
import datetime
import shutil

import nbformat
import pytest

import lib
from lib import config
from lib.workbook import claims, costs, overview, reference
from lib.workbook.notebook import read_parameters
from lib.workbook.plans import names


def test_the_readmes_table_is_what_the_notebooks_say(tmp_path, plans_once):
    copy = tmp_path / "README.md"
    shutil.copy(overview.README, copy)
    overview.write(copy)
    assert copy.read_text() == overview.README.read_text()
    rows = [line for line in copy.read_text().splitlines() if line.startswith("| [")]
    assert sorted(row.partition("[")[2].partition("]")[0] for row in rows) == sorted(names())


def test_the_reference_has_every_notebook_and_its_claims(plans_once):
    """Who changes its parameters, its runs or its claims' rules runs it at cpu, and notes it with ``collect``."""
    known = reference.read()
    asked = claims.ledger(overview.LEDGER).values()
    for profile in known.whole:
        assert sorted(known.entries[profile]) == sorted(names())
    entries = known.entries["cpu"]
    current = {name: entry for name, entry in entries.items() if entry.made_from == overview.made_from(name, "cpu")}
    for name, entry in current.items():
        assert entry.seconds > 0 and set(entry.verdicts) == {claim.id for claim in asked if claim.notebook == name}
        assert set(entry.verdicts.values()) <= {*claims.VERDICTS} - {claims.UNJUDGED, claims.OPEN}


def test_what_the_reference_is_not_of_any_more_is_being_made_anew(plans_once, monkeypatch):
    name, profile = "usage_weighted", "smoke"
    entry = reference.Entry(seconds=60, verdicts={}, made_from=overview.made_from(name, profile))
    known = reference.Reference(flops_per_second=1e9, cores=2, whole={}, entries={profile: {name: entry}})
    parameters, (first, *others) = read_parameters(profile, name), overview._asked(name)

    def noted(profile=profile):
        return overview._noted(known, name, profile, overview._taken)

    def asks(**changes):
        return lambda name: [dataclasses.replace(first, **changes), *others]

    assert (noted(), noted("cpu")) == ("60 s", "")  # it was never run at cpu
    for where, what, change, cell in [
        (overview, "_asked", asks(statement="in other words"), "60 s"),
        (overview, "_asked", asks(kind="value", value=2.0), overview.STALE),
        (overview, "read_parameters", lambda profile, name: parameters | {"seeds": [7]}, overview.STALE),
        (lib, "RECIPE", "another", overview.STALE),
    ]:
        with monkeypatch.context() as changed:
            changed.setattr(where, what, change)
            assert noted() == cell, what


def test_a_reference_is_of_no_machines_precision(monkeypatch):
    """What ``auto`` is differs from machine to machine, and with it the runs' keys."""
    plans_of, found = [], []
    for precision in ("fp32", "bf16-mixed"):
        monkeypatch.setattr(config, "native_precision", lambda precision=precision: precision)
        plans_of.append({cfg.key for cfg in overview.plans.planned("usage_weighted", "smoke")})
        found.append(overview.made_from("usage_weighted", "smoke"))
    assert plans_of[0].isdisjoint(plans_of[1]) and found[0] == found[1]


def took(copy, seconds, **changed):
    """An executed copy, as papermill leaves it, of a notebook at smoke that took so long."""
    notebook = nbformat.read(overview.ROOT / "notebooks" / copy.name, as_version=4)
    parameters = {**read_parameters("smoke", copy.stem), **changed}
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
    for claim in overview._asked("usage_weighted"):
        values = {"values": [1.0, 1.0], "seeds": [1, 2], "unit": "", "note": "", "profile": "smoke"}
        claims.report(claim, "usage_weighted", folder=tmp_path / "claims" / "smoke", **values)
    return tmp_path


def test_what_is_finished_is_noted_and_what_did_not_change_stays(made, monkeypatch):
    path, mark = made / "reference.json", made / "notebooks" / "smoke" / ".usage_weighted.done"
    monkeypatch.setattr(reference, "yardstick", lambda: 1e9)
    overview.collect(made, path)
    assert reference.read(path).entries["smoke"] == {}  # it has not ended
    mark.touch()
    overview.collect(made, path)
    entry = reference.read(path).entries["smoke"]["usage_weighted"]
    assert reference.read(path).whole == {}  # of one notebook nobody knows what all of them take
    assert entry.seconds == 12.3 and set(entry.verdicts.values()) == {claims.UNJUDGED}
    took(mark.with_name("usage_weighted.ipynb"), 3.0)
    overview.collect(made, path)  # it read what was trained before, which is no time to plan with
    assert reference.read(path).entries["smoke"]["usage_weighted"] == entry
    monkeypatch.setattr(lib, "RECIPE", "another")
    overview.collect(made, path)
    assert reference.read(path).entries["smoke"]["usage_weighted"].seconds == 3.0


def test_what_has_changed_since_it_was_executed_is_not_noted(made, monkeypatch, capsys):
    monkeypatch.setattr(reference, "yardstick", lambda: 1e9)
    mark = made / "notebooks" / "smoke" / ".usage_weighted.done"
    mark.touch()
    took(mark.with_name("usage_weighted.ipynb"), 3.0, jobs=7)  # make gives it the number of processes
    copy = overview._executed(made, "usage_weighted", "smoke")
    assert overview._is_as_executed(copy, "usage_weighted", "smoke")
    took(mark.with_name("usage_weighted.ipynb"), 3.0, seeds=[7])
    overview.collect(made, made / "reference.json")
    assert reference.read(made / "reference.json").entries["smoke"] == {}
    assert capsys.readouterr().out.startswith("usage_weighted: it or its parameters have changed")
    took(mark.with_name("usage_weighted.ipynb"), 3.0)
    notebook = nbformat.read(mark.with_name("usage_weighted.ipynb"), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("1 + 1"))
    assert not overview._is_as_executed(notebook, "usage_weighted", "smoke")


def test_a_profile_that_was_made_whole_says_what_it_took(made, monkeypatch):
    monkeypatch.setattr(overview.plans, "names", lambda: ["usage_weighted"])
    monkeypatch.setattr(reference, "yardstick", lambda: 1e9)
    (made / "notebooks" / "smoke" / ".usage_weighted.done").touch()
    overview.collect(made, made / "reference.json")
    assert reference.read(made / "reference.json").whole == {"smoke": 12.3}


def test_verdicts_are_counted_in_one_order():
    given = {"a": claims.UNRESOLVED, "b": claims.REPRODUCED, "c": claims.UNRESOLVED}
    entry = reference.Entry(seconds=1, verdicts=given, made_from=0)
    assert overview.verdicts(entry) == "1 reproduced, 2 not resolved"


def test_where_a_claim_stands_is_read_from_the_first_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(overview, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    for text, found in {
        "# Why?\n\n**Claim** (A et al., *A Title*, Sec. 3; App. B).\nBecause (see Fig. 9).": ("Why?", "Sec. 3; App. B"),
        "# A game\n\nLoad a run (Fig. 1).": ("A game", ""),
        "# New\n\n**Claim** (none: nobody measured it). More.": ("New", ""),
    }.items():  # fmt: skip
        cell = nbformat.v4.new_markdown_cell(text)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "notebooks" / "x.ipynb")
        assert overview.heading("x") == found


@pytest.mark.parametrize("paper", ["000", "001", "002", "004"])
def test_every_documents_notebooks_say_where_their_claims_stand(paper):
    places = [overview.heading(name)[1] for name in costs.NOTEBOOKS[paper]]
    assert sum(map(bool, places)) >= len(places) - 2  # a game, a question of our own

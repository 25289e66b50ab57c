"""Notes what finished notebooks took and found in docs/reference.json (lib/workbook/reference.py)."""

import json
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat

from lib.base.processes import cores
from lib.workbook import claims, parameters, places, plans, reference
from lib.workbook.reference import Entry, Outdated, Reference

PROFILES = ("smoke", "cpu", "desk")  # those that two cores can run, or draw from records


def collect(outputs: Path = places.ROOT / "outputs", path: Path = reference.FILE) -> None:
    """Notes every notebook that has finished under ``outputs``: the verdicts of its claims, and the seconds it took.

    Seconds that were noted before stay while the notebook's parameters, runs and claim rules are the same: it may have
    read its runs this time, where it trained them then. Remove the file to note all times anew; they mean something
    only from an empty store, with nothing else running. A notebook that has changed since it was executed is named and
    left out."""
    if path.exists():
        known = reference.read(path)
    else:
        known = Reference(flops_per_second=reference.yardstick(), cores=cores(), whole={}, entries={})
    for profile in PROFILES:
        entries = known.entries.setdefault(profile, {})
        copies = _as_they_are(outputs, profile)
        if not entries and sorted(copies) == plans.names():  # the whole profile at once, not some of it
            known.whole[profile] = _from_first_to_last(list(copies.values()))
        for name, copy in copies.items():
            before, entry = entries.get(name), _entry(outputs, name, profile, copy["duration"])
            if before and before.made_from == entry.made_from:
                entry = entry.model_copy(update={"seconds": before.seconds})
            entries[name] = entry
    reference.write(known, path)


def _as_they_are(outputs: Path, profile: str) -> dict[str, dict[str, Any]]:
    """Notebook -> what papermill noted in its executed copy, for those that ended well and have not changed since."""
    found = {}
    for mark in sorted((outputs / "notebooks" / profile).glob(".*.done")):
        name = mark.name[1:].removesuffix(".done")
        copy = nbformat.read(mark.with_name(f"{name}.ipynb"), as_version=4)
        if is_as_executed(copy, name, profile):
            found[name] = copy.metadata.papermill
        else:
            print(f"{name}: it or its parameters have changed since it was executed at {profile}, run it again")
    return found


def is_as_executed(copy: nbformat.NotebookNode, name: str, profile: str) -> bool:
    """Whether an executed copy has the notebook's code and the profile's parameters of today, whatever its ``jobs``. It
    does not hold the parameters of other notebooks that it has read."""
    own = [cell for cell in copy.cells if "injected-parameters" not in cell.metadata.get("tags", [])]
    source = nbformat.read(places.NOTEBOOKS / f"{name}.ipynb", as_version=4)
    given = json.loads(json.dumps(parameters.of_profile(profile, name)))  # as a notebook keeps them
    taken = dict(copy.metadata.papermill.parameters)
    return _code(own) == _code(source.cells) and taken | {"jobs": 0} == given | {"jobs": 0}


def _code(cells: list[nbformat.NotebookNode]) -> list[str]:
    return [cell.source for cell in cells if cell.cell_type == "code"]


def _from_first_to_last(copies: list[dict[str, Any]]) -> float:
    """Seconds from the first one's start to the last one's end."""
    starts = [datetime.fromisoformat(copy["start_time"]) for copy in copies]
    ends = [datetime.fromisoformat(copy["end_time"]) for copy in copies]
    return round((max(ends) - min(starts)).total_seconds(), 1)


def _entry(outputs: Path, name: str, profile: str, seconds: float) -> Entry:
    asked = claims.of_notebook(name)
    found = [claims.read(outputs / "claims" / profile / f"{claim.id}.json") for claim in asked]
    judges = name == claims.OF_PUBLISHED and profile != "smoke"  # which judges nothing
    on_runs = claims.findings(outputs / "claims" / claims.PUBLISHED).values() if judges else []
    return Entry(
        seconds=round(seconds, 1),
        verdicts={finding.id: finding.verdict for finding in found},
        made_from=made_from(name, profile),
        published={finding.id: finding.verdict for finding in on_runs},
        numbers={finding.id: finding.number for finding in found},
        published_numbers={finding.id: finding.number for finding in on_runs},
    )


def outdated(known: Reference) -> Outdated:
    """The notebooks whose entries are not of today. Plans each anew at its profile: half a minute for a profile."""
    return {
        (profile, name)
        for profile, entries in known.entries.items()
        for name, entry in entries.items()
        if entry.made_from != made_from(name, profile)
    }


def made_from(name: str, profile: str) -> int:
    """A checksum of what a notebook's verdicts come from: its parameters, the runs and measurements that it plans, and
    the rules of its claims. How its code is written does not count."""
    plan = plans.plan(name, profile)
    sources = [
        {key: value for key, value in parameters.of_profile(profile, name).items() if key != "train"},
        sorted(cfg.key for cfg in plan.runs),
        {function: sorted(cases) for function, cases in plan.measurements.items()},
        [
            [claim.id, claim.kind, claim.value, claim.uncertainty, claim.scale_free, claim.replicates, claim.effect]
            for claim in claims.of_notebook(name)
        ],
    ]
    return zlib.crc32(json.dumps(sources, sort_keys=True).encode())

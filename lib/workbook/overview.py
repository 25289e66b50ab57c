"""The README's table of notebooks: what they say of themselves, and what they took and found in the reference.

``python -c 'from lib.workbook.overview import write; write()'`` fills it, and a test sees that it is true; ``collect``
notes a reference when the workbook has been made.
"""

import collections
import json
import re
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import nbformat

from lib.base.processes import cores
from lib.workbook import claims, costs, plans, reference
from lib.workbook.notebook import ROOT, read_parameters
from lib.workbook.reference import Entry, Reference, spell

README = ROOT / "README.md"
LEDGER = ROOT / "params" / "claims.yaml"
PROFILES = ("smoke", "cpu")  # those that two cores can run
STALE = "being made anew"  # what stands where the reference is of other parameters, runs or claim rules
PLACE = re.compile(r"(Sec\.|App\.|Figs?\.|Tables?|the figure|the table|Alg\.|Eq\.).*")  # in a paper


# ---- the reference ---------------------------------------------------------------------------------------------------


def collect(outputs: Path = ROOT / "outputs", path: Path = reference.FILE) -> None:
    """Notes what every finished notebook under ``outputs`` found, and what it took where that was noted of other
    parameters, runs or claim rules; one that has changed since it was executed is named and left out. Remove the file
    to have all times anew: they mean something only from an empty store, with nothing else running."""
    if path.exists():
        known = reference.read(path)
    else:
        known = Reference(flops_per_second=reference.yardstick(), cores=cores(), whole={}, entries={})
    for profile in PROFILES:
        noted = known.entries.setdefault(profile, {})
        names = [mark.name[1:].removesuffix(".done") for mark in (outputs / "notebooks" / profile).glob(".*.done")]
        executed = {name: _executed(outputs, name, profile) for name in names}
        for name in [name for name in names if not _is_as_executed(executed[name], name, profile)]:
            print(f"{name}: it or its parameters have changed since it was executed at {profile}, run it again")
            names.remove(name)
        copies = {name: executed[name].metadata.papermill for name in names}
        if not noted and sorted(names) == plans.names():  # the whole profile at once, not some of it
            ends, starts = (
                [datetime.fromisoformat(copies[name][at]) for name in names] for at in ("end_time", "start_time")
            )
            known.whole[profile] = round((max(ends) - min(starts)).total_seconds(), 1)
        for name in names:
            entry = _entry(outputs, name, profile, copies[name].duration)
            if name in noted and noted[name].made_from == entry.made_from:  # its runs were read, not trained
                entry = entry.model_copy(update={"seconds": noted[name].seconds})
            noted[name] = entry
    reference.write(known, path)


def _executed(outputs: Path, name: str, profile: str) -> nbformat.NotebookNode:
    return nbformat.read(outputs / "notebooks" / profile / f"{name}.ipynb", as_version=4)


def _is_as_executed(copy: nbformat.NotebookNode, name: str, profile: str) -> bool:
    own = [cell for cell in copy.cells if "injected-parameters" not in cell.metadata.get("tags", [])]
    given = json.loads(json.dumps(read_parameters(profile, name)))  # as a notebook keeps them
    taken = dict(copy.metadata.papermill.parameters)
    return _code(own) == _code(_source(name)) and taken | {"jobs": 0} == given | {"jobs": 0}


def made_from(name: str, profile: str) -> int:
    """A checksum of what a notebook's verdicts come from: its parameters, the runs and measurements that it plans, and
    the rules of its claims. How its code is written does not count, nor the precision that ``auto`` is on a machine."""
    plan = plans.plan(name, profile)
    sources = [
        read_parameters(profile, name),
        sorted(cfg.replace(train=cfg.train.replace(precision="fp32")).key for cfg in plan.runs),
        {function: sorted(cases) for function, cases in plan.measurements.items()},
        [[claim.id, claim.kind, claim.value, claim.uncertainty, claim.scale_free] for claim in _asked(name)],
    ]
    return zlib.crc32(json.dumps(sources, sort_keys=True).encode())


def _source(name: str) -> list[nbformat.NotebookNode]:
    return list(nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells)


def _code(cells: list[nbformat.NotebookNode]) -> list[str]:
    return [cell.source for cell in cells if cell.cell_type == "code"]


def _asked(name: str) -> list[claims.Claim]:
    return [claim for claim in claims.ledger(LEDGER).values() if claim.notebook == name]


def _entry(outputs: Path, name: str, profile: str, seconds: float) -> Entry:
    found = [claims.read(outputs / "claims" / profile / f"{claim.id}.json") for claim in _asked(name)]
    verdicts = {finding.id: finding.verdict for finding in found}
    return Entry(seconds=round(seconds, 1), verdicts=verdicts, made_from=made_from(name, profile))


# ---- the table -------------------------------------------------------------------------------------------------------


def heading(name: str) -> tuple[str, str]:
    """(a notebook's title, where in its paper the claim stands, empty where none does), from its first cell."""
    text = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells[0].source
    title = text.partition("\n")[0].removeprefix("# ")
    claim = re.search(r"\*\*Claim\*\* \((.*?)\)[.:]\s", text)
    where = PLACE.search(claim.group(1)) if claim else None
    return title, where.group() if where else ""


def notebooks() -> str:
    """One row a notebook, in Markdown: its file, its paper and where the claim stands there, what it asks, the verdicts
    of its claims on two cores, the minutes that it took there, and the H200 hours that its plans for one come to."""
    known = reference.read()
    planned = {profile: costs.costs(profile) for profile in ("gpu", "paper")}
    rows = []
    for paper, names in costs.NOTEBOOKS.items():
        for name in names:
            title, where = heading(name)
            papers = sorted({claim.paper for claim in _asked(name)}) or [paper]
            place = ", ".join(filter(None, [*papers, where]))
            hours = [costs.whole(costs.hours(of[name].flops)) for of in planned.values()]
            rows.append([
                f"[{name}](notebooks/{name}.ipynb)", place, title, _noted(known, name, "cpu", verdicts),
                *(_noted(known, name, profile, _taken) for profile in PROFILES), *hours,
            ])  # fmt: skip
    head = ["notebook", "document, where", "what it asks", "verdicts at cpu", "smoke", "cpu", "gpu, h", "paper, h"]
    return costs.table(head, rows)


def _noted(known: Reference, name: str, profile: str, say: Callable[[Entry], str]) -> str:
    """A cell of what the reference notes of a notebook; empty where it was never run."""
    entry = known.entries.get(profile, {}).get(name)
    if entry is None:
        return ""
    return say(entry) if entry.made_from == made_from(name, profile) else STALE


def _taken(entry: Entry) -> str:
    return spell(entry.seconds)


def verdicts(entry: Entry) -> str:
    """How many claims of a notebook got which verdict."""
    counted = collections.Counter(entry.verdicts.values())
    return ", ".join(f"{counted[verdict]} {verdict}" for verdict in claims.VERDICTS if counted[verdict])


def times() -> str:
    """How long a whole profile took, in a sentence."""
    whole = reference.read().whole
    took = " and ".join(f"`{profile}` took {spell(whole[profile])}" for profile in PROFILES if profile in whole)
    return f"On two cores and from an empty store {took}."


def write(path: Path = README) -> None:
    path.write_text(costs.filled(path.read_text(), {"notebooks": notebooks(), "times": times()}))

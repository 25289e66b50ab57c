"""What the notebooks took and found when they were last timed, on two cores: docs/reference.json.

``collect`` writes it (lib/workbook/collect.py). make scales its times to the machine that it runs on
(lib/workbook/execute.py), and README's table shows them (lib/workbook/tables.py).
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pydantic

from lib.workbook.places import ROOT

FILE = ROOT / "docs" / "reference.json"
ROUNDS = 3  # of the yardstick, of which the fastest counts: others disturb it in one direction only

#: (profile, notebook) of the entries that are not of today's parameters, runs or claim rules (``collect.outdated``)
Outdated = set[tuple[str, str]]


class Entry(pydantic.BaseModel):
    """A notebook at a profile: the ``seconds`` it took, the verdict of each of its claims and the number that decided
    it, and a checksum of what they come from. ``published``: the same on a paper's own runs, of the notebook that reads
    these."""

    seconds: float
    verdicts: dict[str, str]
    made_from: int
    published: dict[str, str] = {}
    numbers: dict[str, str] = {}
    published_numbers: dict[str, str] = {}


class Reference(pydantic.BaseModel):
    """``flops_per_second`` of one of ``cores`` cores, by the yardstick; profile -> the seconds from the first
    notebook's start to the last one's end; profile -> notebook -> what it was there."""

    flops_per_second: float
    cores: int
    whole: dict[str, float]
    entries: dict[str, dict[str, Entry]]

    def seconds(self, names: Iterable[str], profile: str) -> float:
        """What notebooks took together; one that was never timed counts as nothing."""
        entries = self.entries.get(profile, {})
        return sum(entries[name].seconds for name in names if name in entries)

    def slowdown(self) -> float:
        """How many times as long this machine takes: slower cores, or fewer of them. More of them are not counted on,
        as a notebook's longest run may be all it waits for."""
        from lib.base.processes import cores

        return self.flops_per_second / yardstick() * max(1.0, self.cores / cores())


def spell(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def read(path: Path = FILE) -> Reference:
    """Without times where there is no such file."""
    if not path.exists():
        return Reference(flops_per_second=0, cores=0, whole={}, entries={})
    return Reference(**json.loads(path.read_text()))


def write(reference: Reference, path: Path = FILE) -> None:
    path.write_text(json.dumps(reference.model_dump(), indent=1, sort_keys=True) + "\n")


def yardstick() -> float:
    """FLOP/s at which one core of this machine trains the library's default model; some seconds."""
    from lib.config import RunConfig  # torch takes seconds to import, and make asks for the yardstick once
    from lib.sweep.cost import flops_per_second

    return max(flops_per_second(RunConfig()) for _ in range(ROUNDS))

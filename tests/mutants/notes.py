"""What has been found out about each fault is kept in a file, so that an interrupted command goes on."""

import json
from pathlib import Path

from tests.mutants.faults import Mutant

#: what runs after the twin, in this order, until one notices; each is a target of make
STAGES = ["test"]


class Notes:
    """What has been found out about a snapshot, in a file to which every process adds lines: an interrupted command
    goes on where it was."""

    def __init__(self, path: Path):
        self.path = path

    def add(self, fault: str, stage: str, end: str, **more) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"fault": fault, "stage": stage, "end": end, **more}) + "\n")

    def all(self) -> dict[tuple[str, str], dict]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return {(note["fault"], note["stage"]): note for note in map(json.loads, lines)}


def noticed(fault: Mutant, known: dict[tuple[str, str], dict]) -> dict | None:
    """The note of what noticed a fault."""
    notes = [known[fault.key, name] for name in ("twin", *STAGES) if (fault.key, name) in known]
    return next((note for note in notes if note["end"] != "survived"), None)

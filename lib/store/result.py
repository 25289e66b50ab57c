"""A finished run."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.config import RunConfig

STATUSES = ("finished", "diverged")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """A finished run.

    status is 'finished' or 'diverged'; summary holds the numbers of its end, metrics a column of numbers for each
    quantity that was followed (with ``step``), provenance who made it. ``path`` is None for a run that has no folder
    of its own: a record, or one kept nowhere.
    """

    config: RunConfig
    status: str
    summary: dict[str, Any]
    metrics: Mapping[str, list[Any]]
    provenance: dict[str, Any]
    path: Path | None = None

    @property
    def key(self) -> str:
        return self.config.key

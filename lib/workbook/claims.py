"""What the papers say, what we measured, and the verdict, which code decides.

The ledger is params/claims.yaml. A notebook reports a claim once, with one number for each seed; the verdict follows
from the interval of their mean. Orderings and shapes are margins, positive where the paper is right.
"""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import pydantic
import yaml

from lib.base import files
from lib.base.errors import InputError, one_line
from lib.base.statistics import mean_and_interval
from lib.workbook import places

REPRODUCED, UNRESOLVED, CONTRADICTED = "reproduced", "not resolved", "contradicted"
INCOMPARABLE, UNJUDGED, OPEN = "not comparable at this scale", "not judged at the smoke profile", "open"
VERDICTS = (REPRODUCED, CONTRADICTED, UNRESOLVED, INCOMPARABLE, UNJUDGED, OPEN)


@dataclasses.dataclass(frozen=True)
class Claim:
    """One entry of the ledger; its fields are described at the top of params/claims.yaml."""

    id: str
    paper: str
    where: str
    statement: str
    kind: str
    notebook: str | None
    value: float | None = None
    uncertainty: float = 0.0
    scale_free: bool = False
    published: bool = False


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a notebook measured for a claim: ``measured`` holds one number a seed, or a replicate named by ``per``,
    ``low`` and ``high`` bound the mean with 95 % confidence (Student's t, or as the note says)."""

    id: str
    verdict: str
    measured: list[float]
    mean: float
    low: float
    high: float
    unit: str
    seeds: list[int]
    profile: str
    note: str
    per: str = "seed"
    #: notebook, parameters, commit, versions, device
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)


_FINDING = pydantic.TypeAdapter(Finding)


def ledger(path: Path) -> dict[str, Claim]:
    """All claims by id. Raises InputError for an entry that is incomplete or doubled."""
    return _entries(path.name, path.read_text())


@functools.lru_cache(maxsize=1)  # a notebook asks for the whole ledger with each of its claims
def _entries(name: str, text: str) -> dict[str, Claim]:
    claims = {}
    for entry in yaml.safe_load(text):
        try:
            claim = Claim(**entry)
        except TypeError as error:
            raise InputError(f"{name}: {entry.get('id', entry)!r:.60}: {error}") from None
        if claim.id in claims:
            raise InputError(f"{name}: {claim.id} stands there twice, remove one")
        if claim.kind not in ("ordering", "shape", "value") or (claim.kind == "value") != bool(claim.value):
            raise InputError(f"{name}: {claim.id} needs kind ordering, shape, or value with a value other than 0")
        claims[claim.id] = claim
    return claims


def of_notebook(name: str) -> list[Claim]:
    """The claims that a notebook reports."""
    return [claim for claim in ledger(places.LEDGER).values() if claim.notebook == name]


def verdict(claim: Claim, bounds: tuple[float, float], profile: str) -> str:
    """Margins: reproduced when the interval lies above 0, contradicted when below, else not resolved.

    Values: only where the scale is the paper's (the paper profile) or the claim is scale-free; reproduced when the
    interval meets the paper's value with its uncertainty and is not wider than the value itself.
    """
    low, high = bounds
    if profile == "smoke":
        return UNJUDGED
    if claim.kind != "value":
        return REPRODUCED if low > 0 else CONTRADICTED if high < 0 else UNRESOLVED
    if profile != "paper" and not claim.scale_free:
        return INCOMPARABLE
    if claim.value is None or not math.isfinite(high - low) or high - low > abs(claim.value):
        return UNRESOLVED
    inside = low <= claim.value + claim.uncertainty and high >= claim.value - claim.uncertainty
    return REPRODUCED if inside else CONTRADICTED


def report(
    claim: Claim,
    notebook: str,
    values: list[float],
    seeds: list[int],
    profile: str,
    folder: Path,
    unit: str,
    note: str,
    bounds: tuple[float, float] | None = None,
    per: str = "seed",
    provenance: dict[str, Any] | None = None,
) -> Finding:
    """Judges a claim and writes the finding to ``folder/<id>.json``, where the report finds it. ``bounds`` is the 95 %
    interval where it does not come from the values, a bootstrap's say; by default it is Student's t over them.
    ``per``: what each value stands for; with anything but "seed", ``seeds`` are those behind all of them."""
    if claim.notebook != notebook:
        raise InputError(f"claim {claim.id}: params/claims.yaml gives it to {claim.notebook!r}, not to {notebook!r}")
    if per == "seed" and len(values) != len(seeds):
        raise InputError(f"claim {claim.id}: {len(values)} numbers for {len(seeds)} seeds, give one a seed")
    mean, low, high = mean_and_interval(values)
    if bounds is not None:
        low, high = (float(bound) for bound in bounds)
    finding = Finding(
        claim.id,
        verdict(claim, (low, high), profile),
        [float(v) for v in values],
        mean,
        low,
        high,
        unit,
        seeds,
        profile,
        note,
        per,
        provenance or {},
    )
    files.write_checked(folder / f"{claim.id}.json", dataclasses.asdict(finding))
    return finding


def read(path: Path) -> Finding:
    """A finding that ``report`` wrote. Raises InputError where the file is damaged."""
    try:
        finding = _FINDING.validate_python(files.read_checked(path))
        if finding.verdict in VERDICTS:
            return finding
        reason = f"verdict: {finding.verdict!r} is not known"
    except pydantic.ValidationError as error:
        reason = one_line(error)
    except (OSError, ValueError) as error:
        reason = str(error)
    raise InputError(f"{path}: cannot be read ({reason})")


def findings(folder: Path) -> dict[str, Finding]:
    """All findings in a folder, by claim. Raises InputError for one that is damaged."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}

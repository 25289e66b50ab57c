"""What would settle the claims that are not resolved: how many replicates at this profile give 80 % power for the
smallest effect that matters, at the spread that was observed, and what they cost. ``make power`` prints it."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from lib.base.errors import in_one_line
from lib.base.statistics import replicates, resampled_replicates
from lib.flops import run_flops
from lib.workbook import claims, markdown, places
from lib.workbook.claims import Claim, Finding
from lib.workbook.ran import Ran, ran

RATE = 2.5e10  # FLOP/s of a core: desk's 6.3e15 FLOPs took 70 core-hours


@dataclasses.dataclass(frozen=True)
class Need:
    """What would settle a claim: ``wanted`` replicates in place of ``there``, whose missing ones take ``hours`` of one
    core; or, where ``wanted`` is None, why none would."""

    claim: str
    notebook: str
    there: int
    wanted: int | None
    hours: float
    why: str = ""

    @property
    def text(self) -> str:
        if self.wanted is None:
            return f"no number of replicates: {self.why}"
        unit = "seeds" if self.why == "seeds" else "times the grid"
        return f"{self.wanted} {unit} in place of {self.there}, {self.hours:.2g} core-hours more"


def need(claim: Claim, finding: Finding, hours: float) -> Need:
    """Of a claim that is not resolved; ``hours`` of one core that a replicate takes."""
    there = len(finding.seeds) if claim.replicates == "seeds" else 1
    wanted, why = _wanted(claim, finding)
    if wanted is not None and wanted <= there:
        wanted, why = None, f"{there} show the smallest effect in 80 % of all cases, so that what is there is smaller"
    more = (wanted - there) * hours if wanted is not None else math.nan
    return Need(claim.id, claim.notebook or "", there, wanted, more, why)


def _wanted(claim: Claim, finding: Finding) -> tuple[int | None, str]:
    """The replicates, and what they are; or None, and why."""
    if not finding.measured or not all(np.isfinite(x).all() for x in finding.measured.values()):
        return None, "there is no number: an optimum lies outside the grid, or a run diverged"
    if claim.replicates == "exact":
        return None, "it is counted, and lies on the limit"
    within = claim.kind in ("value", "tie")  # both ends have to lie within the margin, not one end above 0
    effect = claim.margin if within else claim.effect
    if claim.replicates == "seeds":
        if min(map(len, finding.measured.values())) < 2:
            return None, "one replicate shows no spread, run two"
        spreads = [float(np.std(x, ddof=1)) for x in finding.measured.values()]
        found = replicates(effect, spreads * (2 if within else 1))
    else:
        widths = [high - low for low, high in finding.bounds.values()]
        found = resampled_replicates(effect, widths * (2 if within else 1))
    if found is None:
        return None, f"the spread is too wide for an effect of {effect:.2g}, longer runs or other tasks are needed"
    return found, claim.replicates


def needs(found: Mapping[str, Finding], ran_of: Callable[[str], Ran]) -> dict[str, Need]:
    """Claim -> what would settle it, of those among the findings of a profile that are not resolved, or on which two
    opinions differ. ``ran_of``: what a notebook ran there."""
    ledger, unsettled = claims.ledger(places.LEDGER), (claims.UNRESOLVED, claims.DISPUTED)
    unresolved = {id: one for id, one in found.items() if id in ledger and one.verdict in unsettled}
    took = {name: seconds_by_seed(ran_of(name)) for name in {ledger[id].notebook or "" for id in unresolved}}

    def hours(claim: Claim, finding: Finding) -> float:
        seeds = finding.seeds if claim.replicates == "seeds" else []
        return seconds_of_replicate(took[claim.notebook or ""], seeds) / 3600

    return {id: need(ledger[id], one, hours(ledger[id], one)) for id, one in unresolved.items()}


def seconds_by_seed(own: Ran) -> dict[int | None, float]:
    """Seed -> what one core takes for the runs of that seed which a notebook planned: the seconds that a run took, or,
    where it is not there, its FLOPs at RATE. Measurements are under None."""
    took = [(run.config.train.seed, run.summary["seconds"]) for run in own.runs.values()]
    took += [(cfg.train.seed, run_flops(cfg) / RATE) for cfg in own.missing]
    seconds: dict[int | None, float] = {None: sum(own.measurements) / RATE}
    for seed, one in took:
        seconds[seed] = seconds.get(seed, 0.0) + one
    return seconds


def seconds_of_replicate(by_seed: Mapping[int | None, float], seeds: list[int]) -> float:
    """Of one core for one more of ``seeds``: their runs and what was measured, divided by their number. Without seeds,
    for one more grid: everything."""
    own = {seed: one for seed, one in by_seed.items() if seed is None or seed in seeds} if seeds else by_seed
    return sum(own.values()) / max(1, len(seeds))


@dataclasses.dataclass(frozen=True)
class Purchase:
    """So many replicates of a notebook's runs, and the claims that they settle."""

    notebook: str
    wanted: int
    hours: float
    claims: list[str]

    @property
    def rate(self) -> float:
        """Claims settled per core-hour."""
        return len(self.claims) / self.hours if self.hours else math.inf


def purchases(found: dict[str, Need]) -> list[Purchase]:
    """The dearest that pays best first: for each notebook and number of replicates that settles one claim more, all
    that it settles."""
    bought = []
    for notebook in sorted({one.notebook for one in found.values()}):
        own = [one for one in found.values() if one.notebook == notebook and one.wanted is not None]
        for last in sorted(own, key=lambda one: one.hours):
            settled = sorted(one.claim for one in own if one.hours <= last.hours)
            bought.append(Purchase(notebook, last.wanted or 0, last.hours, settled))
    best = {tuple(one.claims): one for one in bought}
    return sorted(best.values(), key=lambda one: -one.rate)


def table(outputs: Path, profile: str) -> str:
    """In Markdown: what to buy, best first; then what no replicates would settle, and why."""
    found = needs(claims.findings(outputs / "claims" / profile), functools.partial(ran, outputs, profile))
    if not found:
        return f"No claim at {profile} is unresolved: run make reproduce-figures PROFILE={profile} if nothing is there."
    rows = [
        {
            "notebook": one.notebook,
            "replicates": f"{one.wanted}",
            "core-hours": f"{one.hours:.2g}",
            "settled": f"{len(one.claims)}",
            "settled per core-hour": f"{one.rate:.2g}",
            "claims": ", ".join(one.claims),
        }
        for one in purchases(found)
    ]
    hopeless = [{"claim": one.claim, "why": one.why} for one in found.values() if one.wanted is None]
    parts = [markdown.table(rows)] if rows else []
    parts += ["No number of replicates settles these:", markdown.table(hopeless)] if hopeless else []
    return "\n\n".join(parts)


def main(profile: str) -> None:
    """``table`` for the Makefile."""
    in_one_line(lambda: print(table(places.ROOT / "outputs", profile)))

"""What the papers say, what we measured, and the verdict, which code decides.

The ledger is params/claims.yaml. A notebook reports a claim once, with one number for each seed, or with one for each
seed and comparison where the paper says "all of them"; the verdict follows from the intervals of their means, by
Student's t over seeds. A second opinion is by permutation of the seeds.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pydantic
import pydantic.dataclasses
import scipy.stats
import yaml
from numpy.typing import ArrayLike

from lib.base import files
from lib.base.errors import InputError, one_line
from lib.base.statistics import (
    Comparison,
    Interval,
    all_of,
    all_resampled,
    fresh_draws,
    fresh_resamples,
    replicates,
    resampled_replicates,
)

REPRODUCED, CONTRADICTED, ABSENT, UNRESOLVED = "reproduced", "contradicted", "absent here", "not resolved"
DISPUTED = "opinions differ"
INCOMPARABLE, UNJUDGED, OPEN = "not comparable at this scale", "not judged at this profile", "open"
VERDICTS = (REPRODUCED, CONTRADICTED, ABSENT, UNRESOLVED, DISPUTED, INCOMPARABLE, UNJUDGED, OPEN)
NOT_JUDGED = ("smoke",)  # it is too small
#: profile -> notebook -> the only claims of it that are judged there, where its rules name some or none (docs/rules.md)
NAMED: dict[str, dict[str | None, tuple[str, ...]]] = {
    "addendum": {"test_time_saturation": (), "residual_scaling_init": ("002-looped-increments-parallel",)},
    "second-text": {
        "looping_isoflop": (
            "001-looping-beats-fixed-depth-loss",
            "001-training-law-predicts",
            "001-training-law-predicts-370m",
        ),
        "unified_law": ("001-conditioning-needed", "001-unified-law-predicts", "001-unified-law-oracle-floor"),
        "injection_ablation": ("000-passthrough-fails", "000-passthrough-is-worst", "000-additive-trails-linear"),
    },
}
FRAGILE = 0.8  # a verdict that fewer fresh draws would repeat
FRESH = 500  # draws that say so, within some two percent
PUBLISHED = "published"  # in the place of a profile: judged on a paper's own published runs
#: of the second opinion
TOO_FEW = "too few seeds"
FEWEST = 6  # seeds: 2^-6 is the first power of 1/2 below ERROR
ERROR = 0.025

#: of the only comparison, or of each by its name
Numbers = Sequence[float] | Mapping[str, Sequence[float]]


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class Claim:
    """One entry of the ledger; its fields are described at the top of params/claims.yaml."""

    id: str
    paper: str
    where: str
    statement: str
    kind: Literal["ordering", "bound", "tie", "value"]
    notebook: str | None
    estimand: str
    replicates: Literal["seeds", "resamples", "exact"]
    effect: float
    effect_from: str
    value: float = 0.0
    uncertainty: float = 0.0
    scale_free: bool = False
    published: str = ""
    short: str = ""
    figure: str = ""
    published_figure: str = ""
    instead: str = ""

    @property
    def margin(self) -> float:
        """How far from ``value`` still counts as it: the paper's uncertainty, 10 %, or the smallest effect that
        matters, whichever is the widest; what can be counted exactly has the paper's uncertainty alone."""
        if self.replicates == "exact":
            return self.uncertainty
        return max(self.uncertainty, 0.1 * abs(self.value), self.effect)


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a notebook measured for a claim: ``measured`` holds one number a replicate for each comparison that the
    claim speaks of, most often one, and ``bounds`` the 95 % interval of each. ``verdict`` is the first opinion, unless
    the second differs. ``mean``, ``low`` and
    ``high`` are those of the comparison that decides."""

    id: str
    verdict: str
    measured: dict[str, list[float]]
    bounds: dict[str, tuple[float, float]]
    mean: float
    low: float
    high: float
    unit: str
    seeds: list[int]
    profile: str
    note: str
    #: the share of fresh draws of as many replicates that would give the first opinion, None where none can be drawn
    again: float | None
    #: what the interval says, and what a permutation of the seeds says, empty where nothing is judged or it is counted
    first: str = ""
    second: str = ""
    #: of a claim judged by resamples, for each comparison: one number a seed, by the runs of each alone, and what the
    #: coupled law says of all runs; empty where there is none, or where no law is read
    by_seed: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    by_form: dict[str, float] = dataclasses.field(default_factory=dict)
    #: notebook, parameters, commit, versions, device
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)


_FINDING = pydantic.TypeAdapter(Finding)


def ledger(path: Path) -> dict[str, Claim]:
    """All claims by id. Raises InputError for an entry that is incomplete or doubled."""
    return _entries(path.name, path.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=1)  # a notebook asks for the whole ledger with each of its claims
def _entries(name: str, text: str) -> dict[str, Claim]:
    claims = {}
    for entry in yaml.load(text, Loader=yaml.CSafeLoader):
        try:
            claim = Claim(**entry)
        except pydantic.ValidationError as error:
            raise InputError(f"{name}: {entry.get('id', entry)!r:.60}: {one_line(error)}") from None
        if claim.id in claims:
            raise InputError(f"{name}: {claim.id} stands there twice, remove one")
        if (claim.kind == "value") != bool(claim.value):
            raise InputError(f"{name}: {claim.id}: a claim of kind value, and no other, has a value, which is not 0")
        if (claim.replicates == "exact") != (claim.effect == 0) or claim.effect < 0:
            raise InputError(f"{name}: {claim.id}: give the smallest effect that matters, 0 only where it is exact")
        claims[claim.id] = claim
    return claims


def verdict(claim: Claim, found: Mapping[str, Comparison], profile: str) -> str:
    """What follows from the intervals of all comparisons that a claim speaks of.

    Orderings and bounds are margins, positive where the paper is right: reproduced when every one lies above 0,
    contradicted when one lies below. An ordering is absent here when one lies within its smallest effect of 0.
    Ties and values: reproduced when every interval lies within ``claim.margin`` of the value (0 for a tie),
    contradicted when one is disjoint from that. Values count only where the scale is the paper's or does not matter.
    """
    if profile in NOT_JUDGED or claim.id not in NAMED.get(profile, {}).get(claim.notebook, [claim.id]):
        return UNJUDGED
    if claim.kind == "value" and profile not in ("paper", PUBLISHED) and not claim.scale_free:
        return INCOMPARABLE
    if not found or any(math.isnan(one.own.mean) for one in found.values()):
        return UNRESOLVED
    return _outcome(claim, [one.own for one in found.values()], [one.among for one in found.values()])


def _outcome(claim: Claim, own: "Sequence[Interval | Permuted]", among: "Sequence[Interval | Permuted]") -> str:
    """The rule: from each comparison by itself, and among the others."""
    if claim.kind in ("value", "tie"):
        ends = claim.value - claim.margin, claim.value + claim.margin
        if any(one.disjoint(*ends) for one in among):
            return CONTRADICTED
        return REPRODUCED if all(one.inside(*ends) for one in own) else UNRESOLVED
    negligible = [claim.kind == "ordering" and one.inside(-claim.effect, claim.effect) for one in among]
    if any(one.below and not small for one, small in zip(among, negligible, strict=True)):
        return CONTRADICTED
    if any(negligible):
        return ABSENT
    return REPRODUCED if all(one.above for one in own) else UNRESOLVED


def intervals(
    claim: Claim, measured: Mapping[str, Sequence[float]], draws: Mapping[str, ArrayLike]
) -> dict[str, Comparison]:
    """Of every comparison: Student's t over seeds, percentiles of what was resampled, or none where it is exact."""
    if claim.replicates == "seeds":
        return all_of(measured)
    estimates = {name: x for name, (x,) in measured.items()}
    return all_resampled(estimates, draws if claim.replicates == "resamples" else measured)


def again(
    claim: Claim, measured: Mapping[str, Sequence[float]], found: Mapping[str, Comparison], profile: str
) -> float | None:
    """How firm a verdict is: the share of fresh draws of as many replicates that would give it once more."""
    outcome = verdict(claim, found, profile)
    if outcome in (INCOMPARABLE, UNJUDGED) or not all(math.isfinite(sum(one.own)) for one in found.values()):
        return None
    if claim.replicates == "exact":
        return 1.0
    fresh = (
        [all_of(draw) for draw in fresh_draws(measured, FRESH)]
        if claim.replicates == "seeds"
        else fresh_resamples(found, FRESH)
    )
    return sum(verdict(claim, draw, profile) == outcome for draw in fresh) / FRESH


def as_comparisons(values: Numbers) -> dict[str, list[float]]:
    """Name -> one number a seed; the only comparison of a claim has no name."""
    named = values if isinstance(values, Mapping) else {"": values}
    return {str(name): [float(x) for x in xs] for name, xs in named.items()}


def shown(claim: Claim, found: Mapping[str, Comparison], outcome: str) -> Interval:
    """The interval of the comparison that decides: among the k where one of them does, by itself where all have to."""
    if not found or any(math.isnan(one.own.mean) for one in found.values()):
        return Interval(math.nan, -math.inf, math.inf)
    within = claim.kind in ("value", "tie")
    if outcome == ABSENT:
        return min((one.among for one in found.values()), key=lambda among: max(-among.low, among.high))
    if outcome == CONTRADICTED:
        return max(
            (one.among for one in found.values()),
            key=lambda one: max(one.low - claim.value, claim.value - one.high) if within else -one.high,
        )
    return max((one.own for one in found.values()), key=lambda one: abs(one.mean - claim.value) if within else -one.low)


# ---- the second opinion ----------------------------------------------------------------------------------------------


def p_above(values: Sequence[float], at: float = 0.0) -> float:
    """The one-sided p-value of a mean that is not above ``at``: the share of all changes of signs of the distances from
    ``at`` that have a mean as high (Fisher 1935): of all for up to twelve numbers, of so many drawn beyond. It is exact
    where the noise is symmetric, whatever else it is."""
    distances = np.asarray(values, dtype=float) - at
    found = scipy.stats.permutation_test(
        (distances,), np.mean, permutation_type="samples", alternative="greater", n_resamples=2**12, rng=0
    )
    return float(found.pvalue)


def p_below(values: Sequence[float], at: float = 0.0) -> float:
    """The same of a mean that is not below ``at``."""
    return p_above([-x for x in values], -at)


class Permuted(NamedTuple):
    """Where a mean lies, with a one-sided ``error``: what an ``Interval`` says, said by permutation."""

    values: Sequence[float]
    error: float

    @property
    def above(self) -> bool:
        return p_above(self.values) <= self.error

    @property
    def below(self) -> bool:
        return p_below(self.values) <= self.error

    def inside(self, low: float, high: float) -> bool:
        """Two one-sided tests, against each end."""
        return max(p_above(self.values, low), p_below(self.values, high)) <= self.error

    def disjoint(self, low: float, high: float) -> bool:
        return min(p_below(self.values, low), p_above(self.values, high)) <= self.error


def second_opinion(claim: Claim, first: str, numbers: Mapping[str, Sequence[float]]) -> str:
    """What a permutation of the seeds says by the same rule; nothing where the first opinion judges nothing, or counts.

    Too few: below six seeds; where so many comparisons share the error that no permutation could show one of them
    wrong, unless all of them are shown right; and of one grid of runs, however often it is resampled."""
    if first in (INCOMPARABLE, UNJUDGED) or claim.replicates == "exact":
        return ""
    rows = [*numbers.values()]
    if claim.replicates == "resamples" or not rows or min(map(len, rows)) < FEWEST:
        return TOO_FEW
    if not all(math.isfinite(sum(row)) for row in rows):
        return UNRESOLVED
    shared = ERROR / len(rows)
    own, among = ([Permuted(row, error) for row in rows] for error in (ERROR, shared))
    found = _outcome(claim, own, among)
    beyond_showing = 0.5 ** min(map(len, rows)) > shared
    return TOO_FEW if beyond_showing and found != REPRODUCED else found


# ---- what an interval rests on ---------------------------------------------------------------------------------------

LESS, MORE, FORM = "seeds scatter less than resamples", "seeds scatter more than resamples", "the form decides"


class BySeeds(NamedTuple):
    """What a claim comes to by seeds, and by seeds and form: the verdict, and the interval that decides; and the reason
    why one of the two is not the ledger's verdict, empty where both are."""

    seeds: tuple[str, Interval]
    form: tuple[str, Interval]
    reason: str


def by_seeds(claim: Claim, row: Mapping[str, Any]) -> BySeeds | None:
    """The other judgement of a claim whose replicates are resamples, by the same rule: Student's t over what the runs
    of each seed say by themselves; then with each interval widened by the distance of the coupled law's number from the
    additive one's, which no seed shows. None without two seeds, and where one of them has no number.

    row: a finding's fields."""
    numbers = {name: np.asarray(x, dtype=float) for name, x in row["by_seed"].items()}
    if not numbers or not all(len(x) > 1 and np.isfinite(x).all() for x in numbers.values()):
        return None
    each = all_of(numbers)
    off = {name: abs(row["by_form"].get(name, x) - x) for name, (x,) in row["measured"].items()}
    wider = {
        name: Comparison(*(Interval(mean, low - off[name], high + off[name]) for mean, low, high in one))
        for name, one in each.items()
    }
    seeds, form = (
        (outcome := verdict(claim, every, row["profile"]), shown(claim, every, outcome)) for every in (each, wider)
    )
    wide = sum(one.own.high - one.own.low for one in each.values())
    scatter = LESS if wide < sum(high - low for low, high in row["bounds"].values()) else MORE
    return BySeeds(seeds, form, scatter if seeds[0] != row["first"] else FORM if form[0] != row["first"] else "")


# ---- findings --------------------------------------------------------------------------------------------------------


def report(
    claim: Claim,
    notebook: str,
    values: Numbers,
    seeds: list[int],
    profile: str,
    folder: Path,
    unit: str,
    note: str,
    draws: Numbers = (),
    provenance: dict[str, Any] | None = None,
    part: str = "",
    incomparable: str = "",
    by_seed: Numbers = (),
    by_form: Mapping[str, float] | None = None,
) -> Finding:
    """Judges a claim and writes the finding to ``folder/<id>.json``, where the report finds it.

    ``values``: one number a seed, or one a seed for each of the comparisons that the claim says all of; a single number
    where the claim's replicates are resamples or it is exact. ``draws``: the resamples of each. ``part``: how much of
    the plan they are from, where that is not all of it; then nothing is judged. ``incomparable``: why these runs cannot
    be compared with the paper's, where they cannot. ``by_seed``, ``by_form``: what its interval rests on, where its
    replicates are resamples (``by_seeds``). Raises InputError for another notebook's claim, and for numbers
    that do not fit its replicates."""
    if claim.notebook != notebook:
        raise InputError(f"claim {claim.id}: params/claims.yaml gives it to {claim.notebook!r}, not to {notebook!r}")
    measured, resamples = as_comparisons(values), as_comparisons(draws) if len(draws) else {}
    wanted = len(seeds) if claim.replicates == "seeds" else 1
    for name, xs in measured.items():
        if len(xs) != wanted:
            raise InputError(
                f"claim {claim.id}: {name or 'values'}: {len(xs)} numbers where its replicates are {claim.replicates} "
                f"({wanted}), give one for each"
            )
    if (resamples.keys() != measured.keys()) if claim.replicates == "resamples" else resamples:
        raise InputError(f"claim {claim.id}: draws: its replicates are {claim.replicates}, give draws for resamples")
    of_seeds = as_comparisons(by_seed) if len(by_seed) and not (part or incomparable) else {}
    if of_seeds and (of_seeds.keys() != measured.keys() or claim.replicates != "resamples"):
        raise InputError(
            f"claim {claim.id}: by_seed: give it for each of the values, where the replicates are resamples"
        )
    found, rests = intervals(claim, measured, resamples), (of_seeds, dict(by_form or {}))
    return _write(claim, measured, found, seeds, profile, folder, unit, note, provenance, part, incomparable, *rests)


def report_published(
    claim: Claim,
    values: Numbers,
    draws: Numbers | tuple[float, float],
    profile: str,
    folder: Path,
    unit: str,
    note: str,
    provenance: dict[str, Any] | None = None,
) -> Finding:
    """``report`` for what a paper's own runs say. They have one seed, so that every number is resampled, or has the
    two ends of an interval that comes from elsewhere. Raises InputError for a claim that is not marked for it."""
    if not claim.published:
        raise InputError(f"claim {claim.id}: is not marked published in params/claims.yaml, mark it or leave it out")
    measured = as_comparisons(values)
    if isinstance(draws, tuple):
        ((name, (value,)),) = measured.items()
        ends = Interval(value, float(draws[0]), float(draws[1]))
        found = {name: Comparison(ends, ends)}
    else:
        found = all_resampled({name: x for name, (x,) in measured.items()}, as_comparisons(draws))
    resampled = dataclasses.replace(claim, replicates="resamples", effect=claim.effect or claim.uncertainty)
    return _write(resampled, measured, found, [], profile, folder, unit, note, provenance)


def _write(
    claim: Claim,
    measured: dict[str, list[float]],
    found: Mapping[str, Comparison],
    seeds: list[int],
    profile: str,
    folder: Path,
    unit: str,
    note: str,
    provenance: dict[str, Any] | None,
    part: str = "",
    incomparable: str = "",
    by_seed: dict[str, list[float]] | None = None,
    by_form: dict[str, float] | None = None,
) -> Finding:
    judges = verdict(claim, found, profile)
    first = UNJUDGED if part else INCOMPARABLE if incomparable and judges != UNJUDGED else judges
    other = second_opinion(claim, first, measured)
    finding = Finding(
        claim.id,
        first if other in ("", TOO_FEW, first) else DISPUTED,
        measured,
        {name: (one.own.low, one.own.high) for name, one in found.items()},
        *shown(claim, found, first),
        unit,
        seeds,
        profile,
        ", ".join(filter(None, [note, incomparable])),
        again(claim, measured, found, profile) if first == judges else None,
        first,
        other,
        by_seed or {},
        by_form or {},
        provenance or {},
    )
    files.write_checked(folder / f"{claim.id}.json", dataclasses.asdict(finding))
    return finding


def read(path: Path) -> Finding:
    """A finding that ``report`` wrote. Raises OSError or ValueError where the file is damaged."""
    return _FINDING.validate_python(files.read_checked(path))


# ---- what would settle a claim ---------------------------------------------------------------------------------------


def to_settle(claim: Claim, finding: Finding, hours: float) -> str:
    """How many replicates give 80 % power for the smallest effect that matters, at the spread that was observed, and
    what they cost; or why none would. ``hours`` of one core that a replicate takes."""
    none, values = "no number of replicates: ", finding.measured.values()
    if not values or not all(np.isfinite(x).all() for x in values):
        return f"{none}there is no number: an optimum lies outside the grid, or a run diverged"
    if claim.replicates == "exact":
        return f"{none}it is counted, and lies on the limit"
    within = claim.kind in ("value", "tie")
    effect, ends = (claim.margin, 2) if within else (claim.effect, 1)  # both ends within the margin, or one above 0
    if claim.replicates == "resamples":
        there, unit = 1, "times the grid"
        wanted = resampled_replicates(effect, [high - low for low, high in finding.bounds.values()] * ends)
    elif min(map(len, values)) < 2:
        return f"{none}one replicate shows no spread, run two"
    else:
        there, unit = len(finding.seeds), "seeds"
        wanted = replicates(effect, [float(np.std(x, ddof=1)) for x in values] * ends)
    if wanted is None:
        return f"{none}the spread is too wide for an effect of {effect:.2g}, longer runs or other tasks are needed"
    if wanted <= there:
        return f"{none}{there} show the smallest effect in 80 % of all cases, so that what is there is smaller"
    return f"{wanted} {unit} in place of {there}, {(wanted - there) * hours:.2g} core-hours more"

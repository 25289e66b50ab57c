"""The claims of 000 that its grid decides: of our runs, or of those that its authors published."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from lib.fit.fits import Fit, fresh_fits
from lib.papers.isodepth import readings
from lib.papers.shared.reported import Drawn, Reported, compared, read_off

T = TypeVar("T")


def of_frontier(
    grid: pd.DataFrame,
    repeated: pd.DataFrame,
    families: dict[int, pd.DataFrame],
    resamples: int,
    seed: int,
    coupling: float | str = 1,
) -> list[Reported]:
    """What each recurrence's own law and the parabolas say of ``grid``, and of so many that might have been; repeated:
    runs of the same cell and width, by which the noise of seeds is known too; coupling: of the laws."""
    by_laws = {
        "000-r2-trails-the-plain-frontier": ("r = 2", "nats", ""),
        "000-r4-trails-the-plain-frontier": ("r = 4", "nats", ""),
        "000-r8-trails-the-plain-frontier": ("r = 8", "nats", ""),
        "000-gap-grows-from-2-to-4": ("from 2 to 4", "nats", ""),
        "000-gap-grows-from-4-to-8": ("from 4 to 8", "nats", ""),
        "000-no-crossover": ("everywhere", "nats", ""),
        "000-gap-widens-at-lower-budgets": ("fades", "nats", "lowest less largest budget"),
        "000-gap-flattens-at-the-top": ("flat", "nats below .006", ""),
        "000-looped-optimum-is-wider": ("wider", "octaves of width", "r = 4"),
        "000-looped-optimum-has-fewer-parameters": ("fewer", "octaves of N", ""),
        "000-looped-optimum-has-fewer-tokens": ("fewer tokens", "octaves of D*", "r = 4"),
        "000-looping-wants-more-tokens": ("tokens", "octaves of D*/N*", ""),
        "000-data-exponent-plain": ("a_D, r = 1", "a_D", ""),
        "000-data-exponent-looped": ("a_D", "a_D", ""),
        "000-looped-data-exponent-is-larger": ("a_D, larger", "a_D", ""),
        "000-parameter-exponents-are-alike": ("alpha", "alpha", ""),
        "000-own-laws-fit": ("unexplained", "1 - R^2", ""),
        "000-own-laws-residuals": ("largest residual", "nats", ""),
    }
    by_parabolas = {
        "000-gap-at-r2-in-nats": ("r = 2", "nats", ""),
        "000-gap-at-r4-in-nats": ("r = 4", "nats", ""),
        "000-gap-at-r8-in-nats": ("r = 8", "nats", ""),
        "000-looped-parabolas-are-flatter": ("flatter", "nats per (e-fold of N)^2", ""),
    }

    def of_laws(laws: dict[int, Fit]) -> readings.Margins:
        optima = readings.law_optima(laws, families, grid["budget"].unique())
        return readings.cost_of_sharing(optima) | readings.of_own_laws(laws)

    def of_vertices(runs: pd.DataFrame) -> readings.Margins:
        return readings.every_gap(readings.optima(runs)) | readings.flatter(runs)

    own = readings.own_laws(grid, coupling)
    laws = [own, *fresh_fits(own, resamples, seed)]
    grids = [grid, *readings.fresh_runs(grid, repeated, resamples, seed)]
    return [*_each(by_laws, of_laws, laws), *_each(by_parabolas, of_vertices, grids)]


def _each(
    ids: dict[str, tuple[str, str, str]], read: Callable[[T], readings.Margins], every: Sequence[T]
) -> Iterable[Reported]:
    """ids: claim -> which of the margins, its unit and a note."""
    margins = [read(one) for one in every]
    for id, (name, unit, note) in ids.items():
        yield compared(id, read_off(operator.itemgetter(name), margins), unit, note)


def of_joint_law(
    fits: Sequence[Fit], grid: pd.DataFrame, families: dict[int, pd.DataFrame], note: str, seed: int
) -> list[Reported]:
    """What the joint law says of ``grid``. fits: ``readings.joint_fits`` of it."""
    phi = np.array([one.params["phi"] for one in fits])
    shares = [readings.worth(families, x).set_index("r")["effective"][4] for x in phi]
    quality = readings.joint_quality(fits, grid, seed)
    found: dict[str, tuple[Drawn, str]] = {
        "000-phi-above-zero": ({"": phi}, "phi"),
        "000-phi-below-one": ({"": 1 - phi}, "1 - phi"),
        "000-phi": ({"": phi}, "phi"),
        "000-r4-effective-share": ({"": shares}, "N_eff at r = 4 over N at r = 1"),
        "000-phi-one-fits-worse-than-phi-zero": ({"": readings.held_phi_margin(fits, grid)}, "R^2"),
        "000-phi-is-stable-over-budgets": ({"": readings.drift_of_phi(fits, grid)}, "phi"),
        "000-joint-law-r2": (quality["unexplained"], "1 - R^2"),
        "000-joint-law-residuals": (quality["rms"], "nats"),
        "000-joint-law-largest-residual": (quality["largest residual"], "nats"),
        "000-residuals-have-no-trend": (quality["trend"], "Spearman rho"),
    }
    return [compared(id, drawn, unit, note) for id, (drawn, unit) in found.items()]


def of_probes(
    gains: pd.DataFrame,
    sets: dict[str, pd.DataFrame],
    drawn: dict[str, list[Fit]],
    families: dict[str, pd.DataFrame],
    r: int,
    note: str,
    seed: int,
) -> list[Reported]:
    """What the probes do. gains: ``readings.gains`` of them; sets: the runs of each joint fit, and drawn: these fits
    (``readings.probe_draws``); families: of each, at r, whose compute-optimal width is asked for."""
    found = readings.of_probes(drawn, families, r, sorted(sets["baseline"]["budget"].unique()))
    baseline, cut, lanes = (found[name] for name in ("baseline", "truncated", "hyper-connections"))
    without = readings.without(drawn["truncated"], sets["truncated"], 2)
    lower, lower_too = (readings.cell_means(gains[probe], seed) for probe in ("truncated", "hyper-connections"))
    of_fits = {
        "000-truncation-lowers-phi": (baseline["phi"] - cut["phi"], "phi"),
        "000-hyper-connections-raise-phi": (lanes["phi"] - baseline["phi"], "phi"),
        "000-phi-under-truncation": (cut["phi"], "phi"),
        "000-phi-with-hyper-connections": (lanes["phi"], "phi"),
        "000-data-exponent-of-the-joint-law": (baseline["a_D"], "a_D"),
        "000-data-exponent-under-truncation": (cut["a_D"], "a_D"),
        "000-data-exponent-with-hyper-connections": (lanes["a_D"], "a_D"),
        "000-truncation-widens-the-optimum": (cut["width"] - baseline["width"], "octaves of width"),
        "000-hyper-connections-narrow-the-optimum": (baseline["width"] - lanes["width"], "octaves of width"),
    }
    return [
        compared("000-truncation-lowers-loss", lower, "nats", "mean over widths"),
        compared("000-hyper-connections-lower-loss", lower_too, "nats", "mean over widths"),
        *(compared(id, {"": numbers}, unit, note) for id, (numbers, unit) in of_fits.items()),
        compared(
            "000-truncated-r2-fits-worst",
            readings.worst_fitted(drawn["truncated"][0], sets["truncated"], 2, seed),
            "octaves of rms residual",
        ),
        compared("000-truncated-phi-without-r2", {"": without["phi"]}, "phi"),
        compared("000-truncated-fit-without-r2", {"": without["r2"]}, "R^2"),
        compared(
            "000-hyper-connected-r2-matches-plain",
            {"": readings.lead_over_plain(sets["hyper-connections"], 2, seed)},
            "nats",
        ),
    ]

"""Losses of trained models after other numbers of loops: do they saturate exponentially (001), or rise beyond the depth
that was trained, and for whom?"""

from typing import Any

import numpy as np
import pandas as pd

from lib.base.statistics import with_interval
from lib.fit.fits import Fit, cell_signs, fit_saturation, fresh_fits, refits, sharing
from lib.fit.laws import POWER_WITH_FLOOR, SATURATION, SHIFTED_POWER, Law

LAWS: dict[str, Law] = {"exponential": SATURATION, "shifted power": SHIFTED_POWER, "power with floor": POWER_WITH_FLOOR}
KEYS = ["group", "model", "size", "trained_loops", "loop_sampling"]
LEAST = 4  # points of a curve: one more than a law has constants
RANDOM = "loop_grow_random"  # of arXiv 2609.19107, whose depth is drawn in training
CONSTANTS = {"z": "z", "Z": "Z", "floor": "L_inf"}  # of the exponential -> their names in the law

Fits = dict[str, Fit]
Key = tuple[Any, ...]
Curves = dict[Key, pd.DataFrame]


def curves(table: pd.DataFrame) -> Curves:
    """(group, model, size, trained loops, loop sampling) -> its losses by T, of looped models: passes with weights of
    their own cannot go on. Curves with fewer than four numbers of loops are left out, and T = 0, of which two of the
    laws have no logarithm."""
    looped = table[(table["T"] > 0) & ~table["model"].str.startswith("untied")]
    groups: dict[Key, pd.DataFrame] = dict(iter(looped.groupby(KEYS, sort=False)))
    return {key: own.sort_values("T") for key, own in groups.items() if len(own) >= LEAST}


def shapes(curves: Curves) -> pd.DataFrame:
    """One row a curve: the best T; as a share of the trained loops; the last T; and ``rise``, how far the loss is above
    its least there, in nats."""
    rows = {}
    for key, curve in curves.items():
        T, loss = curve["T"].to_numpy(), curve["loss"].to_numpy()
        best = T[loss.argmin()]
        rows[key] = {"best T": best, "share": best / key[3], "last T": T[-1], "rise": loss[-1] - loss.min()}
    return _frame(rows)


def laws(curves: Curves, resamples: int, seed: int) -> pd.DataFrame:
    """One row a curve, by what is fitted up to its best T: how many points there are; the rms residual of each law in
    nats; the law that has the least; and of the exponential its rate z and floor, each with its 95 % interval (low,
    high): other curves of the law, with noise as large as the exponentials leave over on all curves of a model. Curves
    with fewer than four of these T are left out."""
    rows, own = {}, {}
    for key, curve in curves.items():
        kept = curve.iloc[: curve["loss"].to_numpy().argmin() + 1]
        if len(kept) >= LEAST:
            fits = {name: fit_saturation(kept["T"], kept["loss"], law) for name, law in LAWS.items()}
            rms = {name: fit.rms_residual for name, fit in fits.items()}
            rows[key] = {"points": len(kept), **rms, "least": min(LAWS, key=rms.__getitem__)}
            own[key] = fits["exponential"]
    for model in dict.fromkeys(key[:2] for key in own):
        alike = {key: fit for key, fit in own.items() if key[:2] == model}
        draws = fresh_fits(alike, resamples, seed)
        for key, fit in alike.items():
            rows[key] |= with_interval("z", fit.params["z"], [one[key].params["z"] for one in draws])
            rows[key] |= with_interval("floor", fit.params["L_inf"], [one[key].params["L_inf"] for one in draws])
    return _frame(rows)


def one_decay(curves: Curves, resamples: int, seed: int) -> pd.DataFrame:
    """What the unified law of 001 adds to a training law is one decay, Z exp(-z T), for all sizes trained alike. One
    row a way, with an own z or with one z, and size of the random-depth ladder: z, Z and the floor in nats, each with
    its 95 % interval (low, high), and the rms residual in nats.

    Of an own z the intervals are those of other noise, as large as all sizes leave over. What one z leaves over errs
    together along a size's curve, so that it is turned size by size (``fits.cell_signs``)."""
    own = {str(key[2]): curve for key, curve in curves.items() if key[1] == RANDOM}
    alone = {size: fit_saturation(curve["T"], curve["loss"]) for size, curve in own.items()}
    (one,) = sharing([alone], "z")
    ways = {
        "own z": (alone, fresh_fits(alone, resamples, seed)),
        "one z": (one, sharing(_turned(one, alone, resamples, seed), "z")),
    }
    rows = {}
    for way, (fits, draws) in ways.items():
        for size, fit in fits.items():
            rows[way, size] = {"rms": fit.rms_residual}
            for name, key in CONSTANTS.items():
                rows[way, size] |= with_interval(name, fit.params[key], [fresh[size].params[key] for fresh in draws])
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["way", "size"])


def _turned(one: Fits, alone: Fits, resamples: int, seed: int) -> list[Fits]:
    """Each size's own law where the residuals of ``one`` decay have other signs, the same along a size's curve."""
    signs = cell_signs([*one], resamples, seed)
    left = sum(len(fit.loss) for fit in one.values())
    scale = np.sqrt(left / (left - 2 * len(one) - 1))  # each its Z and floor, and one z
    losses = {
        size: fit.predict(*fit.inputs) * np.exp(-scale * np.outer(signs[:, k], fit.residuals))
        for k, (size, fit) in enumerate(one.items())
    }
    drawn = {size: refits(alone[size], losses[size]) for size in one}
    return [dict(zip(drawn, fits, strict=True)) for fits in zip(*drawn.values(), strict=True)]


def _frame(rows: dict[Key, dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([*rows.values()], index=pd.MultiIndex.from_tuples([*rows], names=KEYS))

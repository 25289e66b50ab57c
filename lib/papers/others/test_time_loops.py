"""Losses of trained models after other numbers of loops: do they saturate exponentially (001), or rise beyond the depth
that was trained, and for whom?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.fit.fits import Fit, cell_signs, fit_saturation, fresh_fits, refits, sharing
from lib.fit.laws import POWER_WITH_FLOOR, SATURATION, SHIFTED_POWER, Law
from lib.papers.shared.reported import with_intervals

LAWS: dict[str, Law] = {"exponential": SATURATION, "shifted power": SHIFTED_POWER, "power with floor": POWER_WITH_FLOOR}
KEYS = ["group", "model", "size", "trained_loops", "loop_sampling"]
LEAST = 4  # points of a curve: one more than a law has constants
RANDOM = "loop_grow_random"  # of arXiv 2609.19107, whose depth is drawn in training
CONSTANTS = {"z": "z", "Z": "Z", "floor": "L_inf"}  # of the exponential -> their names in the law

Fits = Mapping[Any, Fit]


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of looped models: passes with weights of their own cannot go on. Curves, alike in KEYS, with fewer than
    four numbers of loops are left out, and T = 0, of which two of the laws have no logarithm."""
    return _long_enough(table[(table["T"] > 0) & ~table["model"].str.startswith("untied")])


def falling(curves: pd.DataFrame) -> pd.DataFrame:
    """Their rows up to the best T, of curves that have four or more of these."""
    best = curves.groupby(KEYS)["loss"].transform("idxmin")
    return _long_enough(curves[curves["T"] <= curves["T"][best].to_numpy()])


def _long_enough(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows.groupby(KEYS)["T"].transform("size") >= LEAST]


def shapes(curves: pd.DataFrame) -> pd.DataFrame:
    """One row a curve: the best T; as a share of the trained loops; the last T; and ``rise``, how far the loss is above
    its least there, in nats."""
    by = curves.groupby(KEYS, sort=False)
    best, last = (curves.loc[at].set_index(KEYS) for at in (by["loss"].idxmin(), by["T"].idxmax()))
    return pd.DataFrame(
        {
            "best T": best["T"],
            "share": best["T"] / best.index.get_level_values("trained_loops"),
            "last T": last["T"],
            "rise": last["loss"] - best["loss"],
        }
    )


def laws(curves: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """One row a curve, by what is fitted up to its best T: how many points there are; the rms residual of each law in
    nats; the law that has the least; and of the exponential its rate z and floor, each with its 95 % interval (low,
    high): other curves of the law, with noise as large as the exponentials leave over on all curves of a model."""
    rows, tables = {}, [pd.DataFrame()]
    for _, of_model in falling(curves).groupby(KEYS[:2], sort=False):
        own = {}
        for key, curve in of_model.groupby(KEYS, sort=False):
            fits = {name: fit_saturation(curve["T"], curve["loss"], law) for name, law in LAWS.items()}
            rms = {name: fit.rms_residual for name, fit in fits.items()}
            rows[key] = {"points": len(curve), **rms, "least": min(LAWS, key=rms.__getitem__)}
            own[key] = fits["exponential"]
        tables.append(with_intervals(constants(own), map(constants, fresh_fits(own, resamples, seed))))
    about = pd.DataFrame([*rows.values()], index=pd.MultiIndex.from_tuples([*rows], names=KEYS))
    return about.join(pd.concat(tables).rename_axis(KEYS).filter(regex="^(z|floor)")) if rows else about


def constants(fits: Fits) -> pd.DataFrame:
    """z, Z and the floor of each exponential."""
    rows = {key: {name: fit.params[of] for name, of in CONSTANTS.items()} for key, fit in fits.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def one_decay(curves: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """What the unified law of 001 adds to a training law is one decay, Z exp(-z T), for all sizes trained alike. One
    row a way, with an own z or with one z, and size of the random-depth ladder: z, Z and the floor in nats, each with
    its 95 % interval (low, high), and the rms residual in nats.

    Of an own z the intervals are those of other noise, as large as all sizes leave over. What one z leaves over errs
    together along a size's curve, so that it is turned size by size (``fits.cell_signs``)."""
    ladder = curves[curves["model"] == RANDOM].groupby("size", sort=False)
    alone = {str(size): fit_saturation(curve["T"], curve["loss"]) for size, curve in ladder}
    (one,) = sharing([alone], "z")
    ways: dict[str, tuple[Fits, Sequence[Fits]]] = {
        "own z": (alone, fresh_fits(alone, resamples, seed)),
        "one z": (one, sharing(_turned(one, alone, resamples, seed), "z")),
    }
    tables = {way: with_intervals(constants(fits), map(constants, draws)) for way, (fits, draws) in ways.items()}
    table = pd.concat(tables, names=["way", "size"])
    table.insert(0, "rms", [fit.rms_residual for fits, _ in ways.values() for fit in fits.values()])
    return table


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

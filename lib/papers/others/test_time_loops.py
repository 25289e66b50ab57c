"""Losses of trained models after other numbers of loops: do they saturate exponentially (001), or rise beyond the depth
that was trained, and for whom?"""

from typing import Any

import pandas as pd

from lib.fit.fits import fit_saturation, fit_sharing
from lib.fit.laws import POWER_WITH_FLOOR, SATURATION, SHIFTED_POWER, Law

LAWS: dict[str, Law] = {"exponential": SATURATION, "shifted power": SHIFTED_POWER, "power with floor": POWER_WITH_FLOOR}
KEYS = ["group", "model", "size", "trained_loops", "loop_sampling"]
LEAST = 4  # points of a curve: one more than a law has constants
RANDOM = "loop_grow_random"  # of arXiv 2609.19107, whose depth is drawn in training

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


def laws(curves: Curves, to_best: bool) -> pd.DataFrame:
    """One row a curve: how many points there are, on all T or on those up to the best; the rms residual of each law in
    nats; the law that has the least; and of the exponential, its rate z and floor. Curves with fewer than four of these
    T are left out."""
    rows = {}
    for key, curve in curves.items():
        best = curve["T"].to_numpy()[curve["loss"].to_numpy().argmin()]
        points = curve[curve["T"] <= best] if to_best else curve
        if len(points) >= LEAST:
            fits = {name: fit_saturation(points["T"], points["loss"], law) for name, law in LAWS.items()}
            rms = {name: fit.rms_residual for name, fit in fits.items()}
            p = fits["exponential"].params
            least = min(LAWS, key=rms.__getitem__)
            rows[key] = {"points": len(points), **rms, "least": least, "z": p["z"], "floor": p["L_inf"]}
    return _frame(rows)


def one_decay(curves: Curves) -> pd.DataFrame:
    """What the unified law of 001 adds to a training law is one decay, Z exp(-z T), for all sizes trained alike. Rows:
    the sizes of the random-depth ladder; columns: Z, z and rms residual in nats with an own decay, and with one z."""
    own = {str(key[2]): curve for key, curve in curves.items() if key[1] == RANDOM}
    losses = {size: curve["loss"] for size, curve in own.items()}
    alone = {size: fit_saturation(curve["T"], curve["loss"]) for size, curve in own.items()}
    one = fit_sharing(SATURATION, "z", {size: (curve["T"],) for size, curve in own.items()}, losses)
    columns = {}
    for way, fits in {"own z": alone, "one z": one}.items():
        columns[way, "Z"] = {size: fit.params["Z"] for size, fit in fits.items()}
        columns[way, "z"] = {size: fit.params["z"] for size, fit in fits.items()}
        columns[way, "rms"] = {size: fit.rms_residual for size, fit in fits.items()}
    return pd.DataFrame(columns).rename_axis("size")


def _frame(rows: dict[Key, dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([*rows.values()], index=pd.MultiIndex.from_tuples([*rows], names=KEYS))

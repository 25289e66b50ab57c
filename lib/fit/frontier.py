"""What follows from a law (000, Eq. 3 or 5): compute-optimal models and equivalent sizes."""

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd
from numpy import ndarray
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.fit.arrays import LEVEL, NOT_NEGATIVE, POSITIVE, columns, number, points
from lib.fit.fits import Fit
from lib.fit.laws import PHI
from lib.flops import count


def sizes(configs: list[ModelConfig], seq_len: int | None = None) -> pd.DataFrame:
    """One row a model of a family that differs in its width: width, n_once, n_rec, and training FLOPs per token, as 000
    counts them (``flops``)."""
    each = [(cfg.width, count(cfg, seq_len)) for cfg in sorted(configs, key=lambda cfg: cfg.width)]
    rows = [(width, counts.n_once, counts.n_rec, counts.published["000"]) for width, counts in each]
    return pd.DataFrame(rows, columns=["width", "n_once", "n_rec", "flops"])


def at_width(table: pd.DataFrame, width: float) -> tuple[float, float, float]:
    """n_once, n_rec and FLOPs per token of a family at a width; between the table's widths they are power laws."""
    logs = np.log(points(columns(table, ["width", "n_once", "n_rec", "flops"])))
    widths, *rest = logs[:, np.argsort(logs[0])]
    n_once, n_rec, flops = (math.exp(np.interp(np.log(width), widths, column)) for column in rest)
    return n_once, n_rec, flops


def compute_optimal(fit: Fit, table: pd.DataFrame, r: int, budget: float) -> dict[str, Any]:
    """The width of a family (``sizes``) whose loss is least when ``budget`` FLOPs are spent on it: width, n_once,
    n_rec, N = n_once + n_rec, D = C / F(N) tokens, loss, and at_edge where it is the narrowest or widest of the table.

    minimise L(N, C / F(N)) over N (000, Sec. 4.2). fit: of the joint law, or of one in N and D for this r alone.
    """
    budget = number("budget", budget, POSITIVE)
    if len(table) < 2:
        raise InputError("table: a family needs at least two widths")
    import scipy.optimize  # a third of a second, which not every notebook has to wait for

    (widths,) = points(columns(table, ["width"]))
    narrowest, widest = np.log(widths.min()), np.log(widths.max())

    def loss(log_width: float) -> float:
        n_once, n_rec, flops = at_width(table, np.exp(log_width))
        D = budget / flops
        return float(fit.predict(n_once, n_rec, r, D) if "r" in fit.law.inputs else fit.predict(n_once + n_rec, D))

    found = scipy.optimize.minimize_scalar(loss, bounds=(narrowest, widest), method="bounded", options={"xatol": 1e-9})
    if not max(loss(narrowest), loss(widest)) > found.fun * (1 + LEVEL):
        raise InputError("fit: its loss is the same at every width, none is optimal; fit runs of more sizes")
    n_once, n_rec, flops = at_width(table, np.exp(found.x))
    return {
        "width": float(np.exp(found.x)),
        "n_once": n_once,
        "n_rec": n_rec,
        "N": n_once + n_rec,
        "D": budget / flops,
        "loss": float(found.fun),
        "at_edge": bool(min(found.x - narrowest, widest - found.x) < 1e-4),
    }


def effective_parameters(n_once: ArrayLike, n_rec: ArrayLike, r: ArrayLike, phi: float) -> ndarray:
    """N_eff = N_once + r^phi N_rec: the plain model that a looped one is worth (000, App. F.4: at phi .46 a looped 410M
    at the cost of 1B is worth 580M)."""
    bounds = {"n_once": NOT_NEGATIVE, "n_rec": NOT_NEGATIVE, "phi": PHI}
    once, rec, loops, power = points({"n_once": n_once, "n_rec": n_rec, "r": r, "phi": phi}, bounds)
    return once + loops**power * rec


def with_phi(fit: Fit, phi: float) -> Fit:
    """The same law with another phi, all else kept."""
    phi = number("phi", phi, PHI)
    return dataclasses.replace(fit, theta=np.where(np.array(fit.law.names) == "phi", phi, fit.theta))

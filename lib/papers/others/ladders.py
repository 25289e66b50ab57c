"""Compute-optimal ladders of arXiv 2609.19107, L = E + A C^-gamma: what an arm saves, and whether its exponent or its
floor is another. An arm is ``vanilla``, ``operator_1`` and so on (data/README.md)."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib.base.statistics import percentile_interval, with_interval
from lib.fit.fits import Fit, fit, fresh_fits, refits, sharing
from lib.fit.laws import POWER_WITH_FLOOR

#: E + A C^-gamma, C in units of 1e18 FLOPs; its names for E, A and gamma are those of a law in T: L_inf, Z and z
LADDER, UNIT = POWER_WITH_FLOOR, 1e18
PLAIN, TIED, UNTIED = "vanilla", "loop_2", "untied_2"
GROWN = "untied_grow"
#: (arm, compute) -> how many times the compute vanilla needs for the arm's loss, as the paper prints it; the computes
#: are those of vanilla at depths 8 and 20
PRINTED = {
    ("operator_1", 1e18): 1.12,
    ("operator_1", 1e20): 1.25,
    ("untied_2", 1e18): 1.19,
    ("untied_2", 1e20): 1.34,
    ("untied_grow", 1e18): 1.30,
    ("untied_grow", 1e20): 1.55,
    ("loop_grow", 1e20): 1.36,
    ("deep_vanilla", 1e20): 1.08,
}
#: and how many times the compute tied passes need for the loss of those with own weights
PRINTED_FACTOR = {1e18: 1.08, 1e20: 1.06}
DEPTHS = {1e18: 8, 1e20: 20}

Curves = dict[str, pd.DataFrame]
Fits = Mapping[str, Fit]


def curves(ladders: pd.DataFrame, corpus: str = "fineweb") -> Curves:
    """Arm -> its runs by compute."""
    rows = ladders[ladders["corpus"] == corpus].sort_values("compute")
    return {str(arm): own for arm, own in rows.groupby("arm", sort=False)}


def own_floors(curves: Curves) -> dict[str, Fit]:
    """Each arm's own E, A and gamma."""
    return {arm: fit(LADDER, (runs["compute"] / UNIT,), runs["loss"]) for arm, runs in curves.items()}


def vanillas_floor(draws: Sequence[Fits], arms: Iterable[str]) -> list[dict[str, Fit]]:
    """These arms' own A and gamma at vanilla's E, as the authors fit them, of each draw: the arms' own laws, on these
    losses or on fresh ones."""
    floors = [floor(own[PLAIN]) for own in draws]
    found = {arm: refits(draws[0][arm], [own[arm].loss for own in draws], L_inf=floors) for arm in arms}
    return [dict(zip(found, fits, strict=True)) for fits in zip(*found.values(), strict=True)]


def ways(draws: Sequence[Fits]) -> dict[str, Sequence[Fits]]:
    """The laws of each draw by four ways of fitting, from the arms' own: E and gamma own; E of vanilla, as the authors;
    one E for all; one gamma for all."""
    return {
        "own E, own gamma": draws,
        "vanilla's E": vanillas_floor(draws, draws[0]),
        "one E": sharing(draws, "L_inf"),
        "one gamma": sharing(draws, "z"),
    }


def exponents(curves: Curves, fresh: list[Fits]) -> pd.DataFrame:
    """One row a way of fitting and arm: gamma and E, each with its 95 % interval over ``fresh`` ladders (low, high),
    and the rms residual in nats. A last row of each way has how far GROWN is above vanilla."""
    rows = {}
    for way, (fits, *drawn) in ways([own_floors(curves), *fresh]).items():
        for arm, one in fits.items():
            rows[way, arm] = {
                **with_interval("gamma", gamma(one), [gamma(fit[arm]) for fit in drawn]),
                **with_interval("E", floor(one), [floor(fit[arm]) for fit in drawn]),
                "rms": one.rms_residual,
            }
        rows[way, f"{GROWN} less {PLAIN}"] = {
            **with_interval("gamma", above(gamma, fits), [above(gamma, fit) for fit in drawn]),
            **with_interval("E", above(floor, fits), [above(floor, fit) for fit in drawn]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["way", "arm"])


def above(number: Callable[[Fit], float], fits: Fits) -> float:
    """How far gamma, or the floor, of the grown ladder with own weights is above vanilla's."""
    return number(fits[GROWN]) - number(fits[PLAIN])


def gamma(fit: Fit) -> float:
    return fit.params["z"]


def floor(fit: Fit) -> float:
    return fit.params["L_inf"]


# ---- what an arm saves -----------------------------------------------------------------------------------------------


def compute_for(fit: Fit, loss: float) -> float:
    """FLOPs at which the law of an arm has this loss, inf below its floor: C = (A / (L - E))^(1/gamma)."""
    p = fit.params
    return float(UNIT * (p["Z"] / (loss - p["L_inf"])) ** (1 / p["z"])) if loss > p["L_inf"] else np.inf


def saved(fits: Fits, arm: str, compute: float, than: str = PLAIN) -> float:
    """How many times the compute of ``arm`` another needs for the loss that vanilla has at ``compute`` FLOPs, by their
    laws."""
    loss = float(fits[PLAIN].predict(compute / UNIT))
    return compute_for(fits[than], loss) / compute_for(fits[arm], loss)


def saved_as_measured(curves: Curves, arm: str, depth: int, than: str = PLAIN) -> float:
    """The same for the loss of vanilla's run of a depth, linear in log compute between two runs, as the authors read
    it; nan where the loss is not between two."""
    plain = curves[PLAIN]
    loss = float(plain["loss"][plain["depth"] == depth].item())
    ladders = [curves[name].sort_values("loss") for name in (than, arm)]
    other, own = (np.interp(loss, runs["loss"], np.log(runs["compute"]), np.nan, np.nan) for runs in ladders)
    return float(np.exp(other - own))


def multipliers(curves: Curves, fresh: list[Fits]) -> pd.DataFrame:
    """What is PRINTED, and the factor between tied and own weights, beside ours: printed; between, as the authors read
    it; law, by each arm's own law, and its 95 % interval over ``fresh`` ladders, low and high; at vanilla's E."""
    fits = own_floors(curves)
    (held,) = vanillas_floor([fits], fits)
    rows = {}
    asked = [(arm, PLAIN, compute, printed) for (arm, compute), printed in PRINTED.items()]
    for arm, than, compute, printed in [*asked, *((UNTIED, TIED, at, x) for at, x in PRINTED_FACTOR.items())]:
        low, high = percentile_interval([saved(one, arm, compute, than) for one in fresh])
        rows[arm, than, compute] = {
            "printed": printed,
            "between": saved_as_measured(curves, arm, DEPTHS[compute], than),
            "law": saved(fits, arm, compute, than),
            "low": low,
            "high": high,
            "vanilla's E": saved(held, arm, compute, than),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["arm", "than", "compute"])


def fresh_ladders(curves: Curves, resamples: int, seed: int) -> list[Fits]:
    """The arms' own laws on so many ladders that might have been trained instead."""
    return [*fresh_fits(own_floors(curves), resamples, seed)]


def steeper(draws: Sequence[Fits]) -> list[dict[str, float]]:
    """gamma of the grown ladder with own weights less vanilla's in each draw, by two readings: both at vanilla's E, as
    the authors fit, and each with an E of its own. draws: the arms' own laws, on these losses or on fresh ones."""
    return [
        {"vanilla's E": gamma(held[GROWN]) - gamma(own[PLAIN]), "own E": above(gamma, own)}
        for held, own in zip(vanillas_floor(draws, [GROWN]), draws, strict=True)
    ]

"""What arXiv 2609.19107 concludes, from its runs: by its ladders L = E + A C^-gamma what an arm saves, and whether its
exponent or its floor is another; by parabolas the best of a budget, how many parameters and how many loops. An arm is
``vanilla``, ``operator_1`` and so on (data/README.md)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib.fit import isoflop
from lib.fit.fits import Fit, Noise, fit, refits, sharing
from lib.fit.laws import POWER_WITH_FLOOR
from lib.papers.shared.reported import with_intervals

#: E + A C^-gamma, C in units of 1e18 FLOPs; its names for E, A and gamma are those of a law in T: L_inf, Z and z
UNIT = 1e18
CONSTANTS = {"gamma": "z", "E": "L_inf"}
PLAIN, TIED, UNTIED, GROWN = "vanilla", "loop_2", "untied_2", "untied_grow"
#: (arm, than, compute) -> how many times the compute of ``arm`` another needs for its loss, as the paper prints it; the
#: computes are those of vanilla at DEPTHS
PRINTED = {
    ("operator_1", PLAIN, 1e18): 1.12,
    ("operator_1", PLAIN, 1e20): 1.25,
    (UNTIED, PLAIN, 1e18): 1.19,
    (UNTIED, PLAIN, 1e20): 1.34,
    (GROWN, PLAIN, 1e18): 1.30,
    (GROWN, PLAIN, 1e20): 1.55,
    ("loop_grow", PLAIN, 1e20): 1.36,
    ("deep_vanilla", PLAIN, 1e20): 1.08,
    (UNTIED, TIED, 1e18): 1.08,
    (UNTIED, TIED, 1e20): 1.06,
}
DEPTHS = {1e18: 8, 1e20: 20}
#: tokens a stored parameter that arXiv 2609.19107 trains its ladders with as compute-optimal (ladder recipes)
PRINTED_RATIO = {"vanilla": 5.0, "operator_1": 6.0, "loop_2": 6.0, "untied_2": 6.0, "deep_vanilla": 6.0}
#: FLOPs at which the authors compare numbers of loops
BUDGETS = (0.846120e18, 1.419447e18, 2.381258e18, 3.994787e18, 6.701636e18)
#: recipe and arm of what is compared there
SETS = {
    "one epoch, tied": ("tuned", "tied"),
    "one epoch, own weights": ("tuned", "untied"),
    "one recipe, 1 epoch": ("fresh", "tied"),
    "one recipe, 4 epochs": ("replay250m4", "tied"),
    "one recipe, 10 epochs": ("replay100m10", "tied"),
}

Curves = Mapping[str, pd.DataFrame]
Fits = Mapping[str, Fit]


def law(compute: pd.Series, loss: pd.Series) -> Fit:
    """E + A C^-gamma at its optimum."""
    return fit(POWER_WITH_FLOOR, (compute / UNIT,), loss)


def vanillas_floor(draws: Sequence[Fits], arms: Iterable[str]) -> list[dict[str, Fit]]:
    """These arms' own A and gamma at vanilla's E, as the authors fit them, of each draw: the arms' own laws, on these
    losses or on fresh ones."""
    found = {
        arm: refits(
            draws[0][arm], [own[arm].loss for own in draws], L_inf=[own[PLAIN].params["L_inf"] for own in draws]
        )
        for arm in arms
    }
    return [dict(zip(found, fits, strict=True)) for fits in zip(*found.values(), strict=True)]


def constants(fits: Fits) -> pd.DataFrame:
    """gamma and E of each arm. A last row has how far GROWN is above vanilla."""
    table = pd.DataFrame({arm: {name: one.params[of] for name, of in CONSTANTS.items()} for arm, one in fits.items()}).T
    table.loc[f"{GROWN} less {PLAIN}"] = table.loc[GROWN] - table.loc[PLAIN]
    return table


def exponents(draws: Sequence[Fits]) -> pd.DataFrame:
    """One row a way of fitting and arm: its ``constants``, each with its 95 % interval (low, high), and the rms
    residual in nats. The ways: E and gamma own; E of vanilla, as the authors; one E for all; one gamma for all.

    draws: the arms' own laws on their ladders, and on so many that might have been."""
    ways = {
        "own E, own gamma": draws,
        "vanilla's E": vanillas_floor(draws, draws[0]),
        "one E": sharing(draws, "L_inf"),
        "one gamma": sharing(draws, "z"),
    }
    tables = {
        way: with_intervals(constants(fits), map(constants, drawn)).assign(
            rms=pd.Series({arm: one.rms_residual for arm, one in fits.items()})
        )
        for way, (fits, *drawn) in ways.items()
    }
    return pd.concat(tables, names=["way", "arm"])


def steeper(draws: Sequence[Fits]) -> list[dict[str, float]]:
    """gamma of GROWN less vanilla's in each draw, by two readings: both at vanilla's E, as the authors fit, and each
    with an E of its own."""
    return [
        {
            "vanilla's E": held[GROWN].params["z"] - own[PLAIN].params["z"],
            "own E": own[GROWN].params["z"] - own[PLAIN].params["z"],
        }
        for held, own in zip(vanillas_floor(draws, [GROWN]), draws, strict=True)
    ]


# ---- what an arm saves -----------------------------------------------------------------------------------------------


def compute_for(fit: Fit, loss: float) -> float:
    """FLOPs at which the law of an arm has this loss, inf below its floor: C = (A / (L - E))^(1/gamma)."""
    p = fit.params
    return float(UNIT * (p["Z"] / (loss - p["L_inf"])) ** (1 / p["z"])) if loss > p["L_inf"] else np.inf


def saved(fits: Fits, arm: str, than: str, compute: float) -> float:
    """How many times the compute of ``arm`` another needs for the loss that vanilla has at ``compute`` FLOPs, by their
    laws."""
    loss = float(fits[PLAIN].predict(compute / UNIT))
    return compute_for(fits[than], loss) / compute_for(fits[arm], loss)


def saved_as_measured(curves: Curves, arm: str, than: str, depth: int) -> float:
    """The same for the loss of vanilla's run of a depth, linear in log compute between two runs, as the authors read
    it; nan where the loss is not between two."""
    plain = curves[PLAIN]
    loss = float(plain["loss"][plain["depth"] == depth].item())
    other, own = (
        np.interp(loss, runs["loss"], np.log(runs["compute"]), np.nan, np.nan)
        for runs in (curves[than].sort_values("loss"), curves[arm].sort_values("loss"))
    )
    return float(np.exp(other - own))


def multipliers(curves: Curves, draws: Sequence[Fits]) -> pd.DataFrame:
    """What is PRINTED beside ours: printed; between, as the authors read it; law, by each arm's own law, and its 95 %
    interval (low, high); at vanilla's E. draws: of ``exponents``."""
    (held,) = vanillas_floor(draws[:1], draws[0])
    own, *drawn = (pd.DataFrame({"law": {key: saved(laws, *key) for key in PRINTED}}) for laws in draws)
    table = with_intervals(own, drawn).rename(columns=lambda name: name.removeprefix("law "))
    table.insert(0, "printed", pd.Series(PRINTED))
    table.insert(1, "between", [saved_as_measured(curves, arm, than, DEPTHS[at]) for arm, than, at in PRINTED])
    table["vanilla's E"] = [saved(held, *key) for key in PRINTED]
    return table.rename_axis(["arm", "than", "compute"])


# ---- how many parameters ---------------------------------------------------------------------------------------------


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row an arm and budget: the minimum of the parabola of the loss in log N, N the stored parameters
    (``isoflop.optima``); ``ratio``, tokens a stored parameter there; and ``gap``, how far the loss is above that of own
    weights, which have none themselves."""
    found = isoflop.optima(runs, ["arm", "budget"]).set_index(["arm", "budget"])
    gap = found["loss"] - found["loss"][UNTIED].reindex(found.index, level="budget")
    return found.assign(ratio=found["D"] / found["N"], gap=gap.where(found.index.get_level_values("arm") != UNTIED))


def fresh_optima(runs: pd.DataFrame, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``optima`` of so many sets of runs that might have been: the parabolas, and noise anew as large as they leave
    over."""
    curve, coefficients = isoflop.parabolas(runs, ["arm", "budget"])
    noise = Noise.left_over([runs["loss"] - curve], coefficients)
    return [
        optima(runs.assign(loss=curve + shifts))
        for shifts in noise.draws(resamples, len(runs), np.random.default_rng(seed))
    ]


def ratios(optima: pd.DataFrame) -> pd.DataFrame:
    """One row an arm: tokens a stored parameter at the optimum, the geometric mean over the budgets."""
    return np.exp(np.log(optima["ratio"]).groupby("arm").mean()).to_frame("ours")


def ratios_beside_printed(optima: pd.DataFrame, fresh: list[pd.DataFrame]) -> pd.DataFrame:
    """``ratios`` as printed and ours, with the 95 % interval over ``fresh_optima``, low and high."""
    printed = pd.Series(PRINTED_RATIO, name="printed").rename_axis("arm").to_frame()
    return printed.join(with_intervals(ratios(optima), map(ratios, fresh)))


# ---- how many loops --------------------------------------------------------------------------------------------------


def best_loops(loops: pd.DataFrame) -> pd.DataFrame:
    """One row a set and budget: K, the minimum of a parabola of the loss in log loops; ``inside`` where it lies between
    the loops that were tried there.

    loops: ``runs.loops``. The loss of a number of loops at a budget is read off its models of several sizes, linear in
    compute, and is missing where none is smaller or larger. One pass is the same model, tied or not."""
    rows = {}
    for name, (recipe, arm) in SETS.items():
        own = loops[(loops["recipe"] == recipe) & ((loops["arm"] == arm) | (loops["loops"] == 1))]
        ladders = {k: at.sort_values("compute") for k, at in own.groupby("loops")}
        for budget in BUDGETS:
            there = pd.Series(
                {k: np.interp(budget, at["compute"], at["loss"], np.nan, np.nan) for k, at in ladders.items()}
            ).dropna()
            found = isoflop.minimum(there.index.to_numpy(float), there)
            rows[name, budget] = {"K": found.x, "loss": found.loss, "inside": found.inside, "tried": len(there)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["set", "budget"])


def fresh_best_loops(loops: pd.DataFrame, noise: float, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``best_loops`` of so many sets of runs whose losses have another noise, of standard deviation ``noise`` nats."""
    return [
        best_loops(loops.assign(loss=loops["loss"] + shift))
        for shift in np.random.default_rng(seed).normal(0.0, noise, (resamples, len(loops)))
    ]

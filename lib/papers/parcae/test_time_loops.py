"""How the loss falls with test-time loops T and stops: 001, App. "Fitting Parametric Functions to Test-Time Looping".

It works on data frames with one row for each model and depth: key (of the model), mean_loops, T, loss in nats per
token, and for the unified law n_eff and D.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.fit import laws
from lib.fit.fits import Fit, fit, fit_parcae, power_law
from lib.fit.optimum import DELTA, huber

#: 001's candidates for L(T), a to d
FORMS = {
    "exponential": laws.SATURATION,
    "shifted power": laws.SHIFTED_POWER,
    "power with floor": laws.POWER_WITH_FLOOR,
    "power": laws.POWER,
}
#: 001's ablation of how the decay rate z mu_rec^-gamma depends on mu_rec: gamma, learned where it is None
CONDITIONINGS = {"learned gamma": None, "gamma = 1": 1.0, "no conditioning": 0.0}


def check_depths(deepest: int, mean_loops: Sequence[int]) -> None:
    """Raises InputError where test-time loops do not go beyond those trained."""
    if deepest <= max(mean_loops):
        raise InputError(f"deepest: {deepest} loops do not go beyond mean_loops {max(mean_loops)}, raise it")


def fits(curve: pd.DataFrame) -> dict[str, Fit]:
    """Each form on one model's curve, by least squares in log loss, as 001 fits them."""
    return {name: fit(law, (curve["T"],), curve["loss"], objective="squares") for name, law in FORMS.items()}


def foreseen(curves: pd.DataFrame, seen: int) -> dict[str, Fit]:
    """key -> the exponential of each model, fitted to its losses at T up to ``seen`` alone."""
    near = curves[curves["T"] <= seen].groupby("key")
    return {str(key): fit(laws.SATURATION, (own["T"],), own["loss"], objective="squares") for key, own in near}


def mean_huber(fitted: Fit, T: ArrayLike, loss: ArrayLike) -> float:
    """Mean over points of Huber(1e-3) of the log residuals, the measure of 001's table."""
    return float(huber(np.log(fitted.predict(T)) - np.log(loss), DELTA).mean())


def compare(curves: pd.DataFrame) -> pd.DataFrame:
    """One row a model and form with two mean Huber losses: ``in`` distribution, fitted and judged on all T; and
    ``beyond``, fitted on T <= mean_loops and judged at T > mean_loops. The latter is nan where mean_loops < 4 leaves
    too few points to fit every form."""
    rows = []
    for key, curve in curves.groupby("key", sort=False):
        mu = curve["mean_loops"].iloc[0]
        near, far = curve[curve["T"] <= mu], curve[curve["T"] > mu]
        below = fits(near) if len(near) > 3 and len(far) else {}
        for name, fitted in fits(curve).items():
            rows.append(
                {
                    "key": key,
                    "mean_loops": mu,
                    "form": name,
                    "in": mean_huber(fitted, curve["T"], curve["loss"]),
                    "beyond": mean_huber(below[name], far["T"], far["loss"]) if below else np.nan,
                }
            )
    return pd.DataFrame(rows)


def saturations(curves: pd.DataFrame) -> pd.DataFrame:
    """One row a model: L_inf, Z and z of its exponential, and ``on a bound``, which of them the fit's box holds; the
    loss at T = mean_loops, and how far L_inf lies from it, in percent; and ``left``, the share of the gain from T = 1
    to the best T that comes only after mean_loops."""
    rows = []
    for key, curve in curves.groupby("key", sort=False):
        mu = curve["mean_loops"].iloc[0]
        fitted = fits(curve)["exponential"]
        losses = curve.set_index("T")["loss"]
        rows.append(
            {
                "key": key,
                "mean_loops": mu,
                **fitted.params,
                "at mean_loops": losses[mu],
                "off, %": 100 * abs(fitted.params["L_inf"] / losses[mu] - 1),
                "left": (losses[mu] - losses.loc[mu:].min()) / (losses[1] - losses.min()),
                "on a bound": ", ".join(fitted.at_bound),
            }
        )
    return pd.DataFrame(rows)


def decay_exponent(table: pd.DataFrame) -> float:
    """gamma of z ~ mean_loops^-gamma over models, from ``saturations``."""
    return -power_law(table["mean_loops"], table["z"])[1]


def training_floor(curves: pd.DataFrame) -> dict[str, float]:
    """The training law fitted to the losses at T = mean_loops, in the unified law's names (001, Eq. "unified")."""
    at_mean = curves[curves["T"] == curves["mean_loops"]]
    law = fit_parcae(at_mean["n_eff"], at_mean["D"], at_mean["loss"]).params
    return {"E": law["E"], "X": law["A"], "x": law["a"], "Y": law["B"], "y": law["b"]}


def conditionings(curves: pd.DataFrame, floor: dict[str, float]) -> dict[str, Fit]:
    """The unified law's test-time decay fitted under each conditioning, its floor held at a training law's (001, Table
    of mu_rec conditioning)."""
    return {name: fit_decay(floor, gamma)(*columns(curves)) for name, gamma in CONDITIONINGS.items()}


def fit_decay(floor: dict[str, float], gamma: float | None) -> Callable[..., Fit]:
    """A function that fits Z and z of the unified law, and gamma where it is None. The floor is held."""
    law = laws.hold(laws.unified(gamma), **floor)
    return lambda *arrays: fit(law, arrays[:-1], arrays[-1])


def columns(curves: pd.DataFrame) -> tuple[pd.Series, ...]:
    """The arguments of ``fits.fit_unified``."""
    return tuple(curves[name] for name in ("n_eff", "D", "mean_loops", "T", "loss"))


def predict(fitted: Fit, curves: pd.DataFrame, oracle: bool = False) -> np.ndarray:
    """The unified law's loss for each point. ``oracle``: each model's measured loss at T = mean_loops takes the place
    of the training law's floor."""
    *inputs, _ = columns(curves)
    predicted = fitted.predict(*inputs)
    if not oracle:
        return predicted
    floor = fitted.predict(*inputs[:3], np.full(len(curves), 1e6))  # after so many loops nothing is left of the decay
    measured = curves[curves["T"] == curves["mean_loops"]].set_index("key")["loss"]
    return predicted - floor + curves["key"].map(measured).to_numpy()


def percent_off(predicted: np.ndarray, curves: pd.DataFrame) -> pd.Series:
    """Mean absolute error of each model's curve, in percent of the loss."""
    off = 100 * np.abs(predicted / curves["loss"] - 1)
    return off.groupby(curves["key"], sort=False).mean()

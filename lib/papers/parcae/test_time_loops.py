"""How the loss falls with test-time loops T and stops: 001, App. "Fitting Parametric Functions to Test-Time Looping".

It works on data frames with one row for each model and depth: key (of the model), mean_loops, T, loss in nats per
token, and for the unified law n_eff and D.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.fit import laws
from lib.fit.fits import Fit, fit
from lib.fit.optimum import DELTA, huber

#: 001's candidates for L(T), a to d
FORMS = {
    "exponential": laws.SATURATION,
    "shifted power": laws.SHIFTED_POWER,
    "power with floor": laws.POWER_WITH_FLOOR,
    "power": laws.POWER,
}
INPUTS = ("n_eff", "D", "mean_loops", "T")  # of the unified law


def fits(curve: pd.DataFrame) -> dict[str, Fit]:
    """Each form on one model's curve, by least squares in log loss, as 001 fits them."""
    return {name: fit(law, (curve["T"],), curve["loss"], objective="squares") for name, law in FORMS.items()}


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


def predict(fitted: Fit, curves: pd.DataFrame, oracle: bool = False) -> np.ndarray:
    """The unified law's loss for each point. ``oracle``: each model's measured loss at T = mean_loops takes the place
    of the training law's floor."""
    inputs = [curves[name] for name in INPUTS]
    predicted = fitted.predict(*inputs)
    if not oracle:
        return predicted
    floor = fitted.predict(*inputs[:3], np.full(len(curves), 1e6))  # after so many loops nothing is left of the decay
    measured = curves[curves["T"] == curves["mean_loops"]].set_index("key")["loss"]
    return predicted - floor + curves["key"].map(measured).to_numpy()

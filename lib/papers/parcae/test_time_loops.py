"""How the loss falls with test-time loops T and stops: 001, App. "Fitting Parametric Functions to Test-Time Looping".

It works on data frames with one row for each model and depth: key (of the model), mean_loops, T, loss in nats per
token, and for the unified law n_eff and D.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.fit import laws
from lib.fit.fits import Fit, fit, fit_parcae
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
COEFFICIENTS = 5  # of the training law, which needs more curves than that
BY_SEED = ["gamma", "needed in the fit", "needed held out", "apart", "law, %", "oracle, %"]


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
    loss at T = mean_loops, and how far L_inf lies from it, in percent; and ``beyond``, what the loops from mean_loops
    to the deepest T still gain, as a share of the gain from T = 1 to mean_loops: negative where the loss rises."""
    rows, exponentials = [], foreseen(curves, curves["T"].max())
    for key, curve in curves.groupby("key", sort=False):
        mu, fitted = curve["mean_loops"].iloc[0], exponentials[str(key)]
        losses = curve.set_index("T")["loss"]
        rows.append(
            {
                "key": key,
                "mean_loops": mu,
                **fitted.params,
                "at mean_loops": losses[mu],
                "off, %": 100 * abs(fitted.params["L_inf"] / losses[mu] - 1),
                "beyond": gain_beyond(losses, mu, int(losses.index.max())),
                "on a bound": ", ".join(fitted.at_bound),
            }
        )
    return pd.DataFrame(rows)


def gain_beyond(losses: pd.Series, mean_loops: int, T: int) -> float:
    """What the loops from mean_loops to T gain, as a share of the gain from T = 1 to mean_loops: negative where the
    loss rises. ``losses``: by T."""
    return float((losses[mean_loops] - losses[T]) / (losses[1] - losses[mean_loops]))


def plateaus(curves: pd.DataFrame, deepest: int, seeds: Sequence[int]) -> dict[str, list[float]]:
    """``gain_beyond`` of every model at twice its mean_loops and at the deepest T, one number a seed. ``curves``: with
    columns size and seed besides."""
    found: dict[str, list[float]] = {}
    for size, mu in curves[["size", "mean_loops"]].drop_duplicates().itertuples(index=False):
        own = curves[(curves["size"] == size) & (curves["mean_loops"] == mu)]
        losses = own.pivot(index="T", columns="seed", values="loss").reindex(columns=[*seeds])
        for T in sorted({min(2 * mu, deepest), deepest}):
            found[f"{size}, mean_loops {mu}, T = {T}"] = [gain_beyond(losses[seed], mu, T) for seed in seeds]
    return found


def ahead(forms: pd.DataFrame, column: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    """The log of each rival's mean Huber loss over the exponential's, of every size, one number a seed: means are over
    the models of a size, as in 001's table. ``forms``: from ``compare``, with columns size and seed besides."""
    means = forms.pivot_table(index="seed", columns=["size", "form"], values=column, dropna=False).reindex([*seeds])
    return {
        f"{rival}, {size}": np.log(means[size, rival] / means[size, "exponential"]).tolist()
        for size in forms["size"].unique()
        for rival in FORMS
        if rival != "exponential"
    }


def floors_off(table: pd.DataFrame, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """How far, in percent, L_inf lies from the loss at T = mean_loops: the mean over the models of a size, one number a
    seed. ``table``: from ``saturations``, with columns size and seed besides."""
    means = table.pivot_table(index="seed", columns="size", values="off, %").reindex([*seeds])
    return {str(size): means[size].to_numpy() for size in means}


def training_floor(curves: pd.DataFrame) -> dict[str, float]:
    """The training law fitted to the losses at T = mean_loops, in the unified law's names (001, Eq. "unified")."""
    at_mean = curves[curves["T"] == curves["mean_loops"]]
    law = fit_parcae(at_mean["n_eff"], at_mean["D"], at_mean["loss"]).params
    return {"E": law["E"], "X": law["A"], "x": law["a"], "Y": law["B"], "y": law["b"]}


def conditionings(curves: pd.DataFrame, floor: dict[str, float]) -> dict[str, Fit]:
    """The unified law's test-time decay, Z and z and, where it is learned, gamma, fitted under each conditioning; its
    floor is held at a training law's (001, Table of mu_rec conditioning)."""
    *inputs, loss = columns(curves)
    held = {name: laws.hold(laws.unified(gamma), **floor) for name, gamma in CONDITIONINGS.items()}
    return {name: fit(law, inputs, loss) for name, law in held.items()}


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


def seed_by_seed(curves: pd.DataFrame, others: pd.DataFrame, seeds: Sequence[int]) -> pd.DataFrame:
    """One row a seed, whose laws are fitted to its own ``curves`` and asked for its own held-out curve among
    ``others``; both with a column seed besides. Its gamma; the log ratios of Huber losses ``needed in the fit`` and
    ``needed held out``, no conditioning over gamma = 1, and ``apart``, gamma = 1 over learned, held out; and the
    error of the law fitted as a whole, in percent, from its own floor and from the oracle's. nan where a seed has too
    few curves."""
    rows = {}
    for seed in seeds:
        own, unseen = curves[curves["seed"] == seed], others[others["seed"] == seed]
        if own["key"].nunique() <= COEFFICIENTS or unseen.empty:
            continue
        fits, law = conditionings(own, training_floor(own)), fit(laws.unified(1.0), columns(own)[:-1], own["loss"])
        measured = np.log(unseen["loss"].to_numpy())
        held_out = {name: huber(np.log(predict(of, unseen)) - measured, DELTA).sum() for name, of in fits.items()}
        rows[seed] = {
            "gamma": fits["learned gamma"].params["gamma"],
            "needed in the fit": np.log(fits["no conditioning"].objective / fits["gamma = 1"].objective),
            "needed held out": np.log(held_out["no conditioning"] / held_out["gamma = 1"]),
            "apart": np.log(held_out["gamma = 1"] / held_out["learned gamma"]),
            "law, %": percent_off(predict(law, unseen), unseen).mean(),
            "oracle, %": percent_off(predict(law, unseen, oracle=True), unseen).mean(),
        }
    return pd.DataFrame.from_dict(rows, orient="index", columns=BY_SEED).reindex([*seeds])


def percent_off(predicted: np.ndarray, curves: pd.DataFrame) -> pd.Series:
    """Mean absolute error of each model's curve, in percent of the loss."""
    off = 100 * np.abs(predicted / curves["loss"] - 1)
    return off.groupby(curves["key"], sort=False).mean()

"""Which law? Laws of parameters and tokens on the same runs: how well each fits, and what it foretells of runs that it
has not seen.

Where models loop, N is N_once + r^phi N_rec in every law. All are fitted alike, by Huber's loss of log losses. The
predictions of runs that are left out are those of refits in which these runs weigh nothing.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.base.errors import InputError, first_line
from lib.fit import laws
from lib.fit.fits import Fit, fit, refits
from lib.fit.laws import AMPLITUDE, CHINCHILLA, EXPONENT, Law, Terms

ANY = (-200.0, 200.0)
MIDDLE = 1e7  # parameters, of the models that are compared

#: Kaplan et al. (2020, Eq. 1.5): coupled, without a floor; B D^-beta is the loss of a model of any size
KAPLAN = Law(
    "Kaplan",
    ("N", "D"),
    {"B": AMPLITUDE},
    {"alpha": EXPONENT, "beta": (0.02, 2.5), "log_q": (-60.0, 200.0)},
    lambda p, N, D: [p["beta"] * np.log(np.exp(p["log_q"] - p["alpha"] / p["beta"] * np.log(N)) + np.exp(-np.log(D)))],
    {"alpha": np.linspace(0.05, 0.5, 6), "beta": np.linspace(0.05, 0.5, 6), "log_q": np.linspace(-20, 60, 17)},
    formula="L = ((A / N)^(alpha/beta) + B / D)^beta",
)


def _farseer(p: Mapping[str, Any], N: np.ndarray, D: np.ndarray) -> Terms:
    def stretched(a: str, power: str, most: float) -> Any:
        return np.minimum(p[a] * np.expm1(p[power] * np.log(N / MIDDLE)) / p[power], most)  # in corners it overflows

    steepness = np.exp(stretched("a_1", "alpha", 5) + p["b_1"])
    return [stretched("a_3", "gamma", 300), stretched("a_2", "beta", 300) - steepness * np.log(D)]


#: Li et al. (2025, arXiv 2506.10972): floor, and amplitude and exponent of the data's term, are stretched exponentials,
#: a N^power: here from what they are at MIDDLE on, with the slope that they have there, so that the nine tell apart
FARSEER = Law(
    "Farseer",
    ("N", "D"),
    {"E": ANY, "B": ANY},
    {"a_1": ANY, "alpha": (-1.0, 1.0), "b_1": (-5.0, 2.0), "a_2": ANY, "beta": (-1.0, 1.0), "a_3": ANY}
    | {"gamma": (-1.0, 1.0)},
    _farseer,
    {"a_1": np.array([0.0]), "alpha": np.array([-0.1, 0.1]), "b_1": np.log([0.1, 0.3, 0.6]), "a_2": np.array([0.0])}
    | {"beta": np.array([-0.1, 0.1]), "a_3": np.array([-0.3, -0.1, -0.03]), "gamma": np.array([-0.6, -0.4, -0.2])},
    formula="L = E exp(a_3 n(gamma)) + B exp(a_2 n(beta)) D^-exp(a_1 n(alpha) + b_1), n(s) = ((N / 1e7)^s - 1) / s",
)


def _repeated(p: Mapping[str, Any], N: np.ndarray, D: np.ndarray, unique: np.ndarray) -> Terms:
    again = np.maximum(D / unique - 1, 0)
    worth = np.minimum(D, unique) + unique * p["R"] * (1 - np.exp(-again / p["R"]))
    return [-p["alpha"] * np.log(N), -p["beta"] * np.log(worth), 0]


#: the data's term of Muennighoff et al. (2023, arXiv 2305.16264, Eq. 5): what tokens are worth that were read before
REPEATED = dataclasses.replace(
    CHINCHILLA,
    name="Muennighoff",
    inputs=("N", "D", "unique"),
    shapes={**CHINCHILLA.shapes, "R": (0.1, 1000.0)},
    grids={"alpha": np.linspace(0.05, 1, 6), "beta": np.linspace(0.05, 1, 6), "R": np.geomspace(1, 100, 5)},
    log_terms=_repeated,
    fixed=("unique",),
    formula="L = E + A N^-alpha + B D'^-beta, D' = unique (1 + R (1 - exp(-(D/unique - 1)/R)))",
)

RIVALS = {
    "additive": CHINCHILLA,
    "coupled": laws.coupled(CHINCHILLA, "free"),
    "Kaplan": KAPLAN,
    "Farseer": FARSEER,
    "Muennighoff": REPEATED,
}


# ---- the comparison --------------------------------------------------------------------------------------------------


class Bakeoff(NamedTuple):
    """table: a row a law. fits: law -> its fit to all runs. left_out: a row for each law and run that was left out:
    ``by`` cell, budget or top, ``group``, the run's row in ``runs``, and L_fit - L, ``off``, in nats."""

    table: pd.DataFrame
    fits: dict[str, Fit]
    left_out: pd.DataFrame
    runs: pd.DataFrame


def named(runs: pd.DataFrame | str | Path, names: Mapping[str, str], words: Sequence[str] = ()) -> pd.DataFrame:
    """A table, a CSV or a Parquet file, its columns under our names. names: ours -> what the table calls it; words: of
    ours those that are text also where they look like numbers. Raises InputError in a line."""
    if not isinstance(runs, pd.DataFrame):
        try:
            runs = (
                pd.read_parquet(runs)
                if Path(runs).suffix == ".parquet"
                else pd.read_csv(runs, dtype={names.get(word, word): str for word in words})
            )
        except Exception as error:  # whatever a reader of either format raises
            raise InputError(f"path: {runs} cannot be read ({first_line(error)}), give a CSV or Parquet file") from None
    laws.columns(runs, [*names.values()])
    return runs.assign(**{ours: runs[theirs] for ours, theirs in names.items()})


def read(runs: pd.DataFrame | str | Path, **names: str) -> pd.DataFrame:
    """Runs with columns N, or N_once, N_rec and r where r varies; D; loss, and where there are some budget, cell and
    unique: the means over the seeds of each. names: what a column is called in the table, ``loss="loss_nats"``, say.

    N, N_once, N_rec parameters; D and unique tokens; loss nats per token; budget what runs are left out by, else the
    FLOPs 6 N D in steps of a third of a decade. Raises InputError in a line for what is missing."""
    table = named(runs, names)
    if "N_rec" in table and table["r"].nunique() < 2:  # then phi is in the amplitude
        table = table.assign(N=table["N_once"] + table["N_rec"]).drop(columns="N_rec")
    size = ["N_once", "N_rec", "r"] if "N_rec" in table else ["N"]
    given = laws.columns(table, [*size, "D", "loss"])
    frame = pd.DataFrame(
        dict(zip(given, laws.points(given, {"N_once": laws.NOT_NEGATIVE}), strict=True))
        | {name: table[name].to_numpy() for name in ("budget", "cell", "unique") if name in table}
    )
    if "budget" not in frame:
        once = frame["N"] if "N" in frame else frame["N_once"] + frame["r"] * frame["N_rec"]
        frame["budget"] = 10 ** (np.round(3 * np.log10(6 * once * frame["D"])) / 3)
    return frame.groupby([name for name in frame if name != "loss"], as_index=False, dropna=False, sort=False).mean()


@np.errstate(over="ignore", invalid="ignore")  # in far corners of Farseer's box
def bakeoff(
    runs: pd.DataFrame | str | Path, rivals: Sequence[str] = tuple(RIVALS), lowest: int = 0, **names: str
) -> Bakeoff:
    """Laws of ``RIVALS`` on the same runs, as ``read`` takes them, the best on budgets left out first.

    constants: how many are free. r2, rmse: of losses, in nats. aic, bic: of log losses with normal noise, at least
    squares. cell, budget, top: rmse in nats of runs left out one by one, a budget at a time, and of all budgets above
    the ``lowest`` (0: half of them), with the mean there of L_fit - L, top_bias. phi, c, E where the law has them;
    at_bound: constants that sit on their bound. Muennighoff's needs a column ``unique``."""
    frame = read(runs, **names)
    budgets = np.unique(frame["budget"])
    if unknown := {*rivals} - {*RIVALS}:
        raise InputError(f"rivals: {min(unknown)!r} is not known, use some of {', '.join(RIVALS)}")
    if len(budgets) < 3:
        raise InputError(f"budget: there are {len(budgets)}, give at least three, so that one can be left out")
    low = budgets[lowest - 1 if lowest else (len(budgets) - 1) // 2]
    ways = {"cell": frame.index.to_numpy(), "budget": frame["budget"].to_numpy()}
    rows, fits = {}, {}
    off: list[pd.DataFrame] = []
    for name in rivals:
        law = laws.looped(RIVALS[name], "N_once", "N_rec") if "N_rec" in frame else RIVALS[name]
        if not {*law.inputs} <= {*frame}:
            continue
        inputs, loss = [frame[x].to_numpy() for x in law.inputs], frame["loss"].to_numpy()
        fits[name] = own = fit(law, inputs, loss)
        (squares,) = refits(dataclasses.replace(own, delta=np.inf), loss[None])
        spread = len(loss) * np.log(np.mean(squares.residuals**2))
        rows[name] = {
            "constants": own.free,
            "r2": own.r2,
            "rmse": own.rms_residual,
            "aic": spread + 2 * own.free,
            "bic": spread + np.log(len(loss)) * own.free,
        }
        for by, group in ways.items():
            rows[name][by] = _foretold(own, np.unique(group)[:, None] == group, by, name, off)
        rows[name]["top"] = _foretold(own, (frame["budget"].to_numpy() > low)[None], "top", name, off)
        rows[name]["top_bias"] = off[-1]["off"].mean()
        rows[name] |= {x: own.params.get(x, np.nan) for x in ("phi", "c", "E")}
        rows[name]["at_bound"] = ", ".join(own.at_bound)
    table = pd.DataFrame.from_dict(rows, orient="index").sort_values("budget").rename_axis("law")
    return Bakeoff(table, fits, pd.concat(off, ignore_index=True), frame)


def _foretold(own: Fit, out: np.ndarray, by: str, name: str, off: list[pd.DataFrame]) -> float:
    """The rmse of groups ``out`` [groups, n] of runs, each foretold by a refit without it. ``off`` receives all."""
    residuals = np.array([one.residuals for one in refits(own, np.broadcast_to(own.loss, out.shape), 1.0 - out)])
    group, run = np.nonzero(out)
    nats = own.loss[run] * np.expm1(residuals[group, run])
    off.append(pd.DataFrame({"law": name, "by": by, "group": group, "run": run, "off": nats}))
    return float(np.sqrt(np.mean(nats**2)))

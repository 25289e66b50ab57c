"""make bench: times fits on one core, holds them against other people's ways, and checks that nothing beats their
optimum and intervals cover the truth."""

import math
import sys
import time

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.stats

from lib.base.statistics import percentile_interval
from lib.fit import laws
from lib.fit.fits import bootstrap, fit_chinchilla, fit_joint, fit_unified, resampled
from lib.fit.optimum import Problem
from lib.papers.isodepth import published
from lib.papers.isodepth.designs import PUBLISHED
from tests.benches import Bounds, in_turn
from tests.fit.known import by_scipy, iso_depth_grid, joint_arrays, unified_grid
from tests.fit.rivals import MIDDLE, SCALE, STARTS, TIGHT, grid, lbfgs, misfit, published_runs, refined

#: ways to fit Chinchilla's law: N, D, losses -> theta
WAYS = {
    "ours": lambda *arrays: fit_chinchilla(*arrays).theta,
    "grid of .01": lambda *arrays: grid(*arrays, step=0.01),
    "grid of .001": lambda *arrays: grid(*arrays, step=0.001),
    "grid of .01, refined": refined,
    "grid of .01, refined with 100 passes": lambda *arrays: refined(*arrays, passes=100),
    "L-BFGS-B, 1 start": lambda *arrays: lbfgs(*arrays, [MIDDLE]),
    "L-BFGS-B, 4,500 starts": lambda *arrays: lbfgs(*arrays, STARTS),
    "L-BFGS-B, tight, 1 start": lambda *arrays: lbfgs(*arrays, [MIDDLE], SCALE, **TIGHT),
    "L-BFGS-B, tight, 500 starts": lambda *arrays: lbfgs(*arrays, STARTS[::9], SCALE, **TIGHT),
}


def speed() -> dict[str, float]:
    """Seconds of the joint fit of 116 runs with 200 resamples of its 24 cells, and of the unified law on 540 points."""
    frame, (arrays, _) = iso_depth_grid(0.005), unified_grid(0.002)

    def joint(_) -> None:
        fit_joint(*joint_arrays(frame))
        bootstrap(fit_joint, joint_arrays(frame), frame[["budget", "r"]])

    fits = {"joint fit with 200 resamples": joint, "unified law": lambda _: fit_unified(*arrays)}
    return {name: took for name, (took,) in in_turn(fits, rounds=1, warmup=0).items()}


def many_at_once(refits: int = 1000, one_by_one: int = 20) -> tuple[float, float]:
    """CPU seconds of 1,000 bootstrap refits of the joint law on the 116 published runs, and of as many by scipy's least
    squares with Huber's loss, one by one: each from the optimum of all runs, which is where ours begin."""
    runs = published.sets(published.runs())["all"]
    arrays, cells = joint_arrays(runs), runs[["budget", "r"]]
    point = fit_joint(*arrays)
    begin = time.process_time()
    bootstrap(fit_joint, arrays, cells, refits)
    ours, begin = time.process_time() - begin, time.process_time()
    for weights in resampled(point.law, arrays, cells, one_by_one, 0):
        kept = Problem.of(point.law, [x.repeat(weights) for x in point.inputs], point.loss.repeat(weights)[None], 1e-3)
        scipy.optimize.least_squares(
            lambda theta, of: of.residuals(theta[None])[0],
            point.theta,
            lambda theta, of: of.derivatives(theta[None])[2][0].T,
            point.law.box,
            loss="huber",
            f_scale=1e-3,
            x_scale="jac",
            xtol=1e-12,
            ftol=1e-12,
            args=(kept,),
        )
    return ours, (time.process_time() - begin) * refits / one_by_one


def against_restarts(restarts: int = 500) -> dict[str, float]:
    """Our objective over the best of 500 tight starts of scipy's L-BFGS-B, less one: at most 1e-9 wanted."""
    frame = iso_depth_grid(0.005)
    plain = frame[frame.r == 4]
    plain = plain.n_once + plain.n_rec, plain.D, plain.loss
    runs = published.sets(published.runs())["all"]
    cases = {
        "Chinchilla": (laws.CHINCHILLA, fit_chinchilla, plain),
        "joint": (laws.JOINT, fit_joint, joint_arrays(frame)),
        "Chinchilla, published runs": (laws.CHINCHILLA, fit_chinchilla, published_runs(4)),
        "joint, published runs": (laws.JOINT, fit_joint, joint_arrays(runs)),
    }
    return {
        name: fit(*arrays).objective / by_scipy(law, arrays, restarts) - 1 for name, (law, fit, arrays) in cases.items()
    }


def rivals(rounds: int = 3) -> pd.DataFrame:
    """One row a way, ours first. objective: of the published runs of r = 4, over ours, less one. off: how far the worse
    exponent ends from a truth that no grid holds, at the same points without noise. seconds: on the runs, least of
    rounds in which each way has its turn."""
    arrays = published_runs(4)
    exact = *arrays[:2], laws.CHINCHILLA.loss(PUBLISHED, *arrays[:2])
    truth = [PUBLISHED["alpha"], PUBLISHED["beta"]]
    found = {}

    def one(name: str) -> None:
        found[name] = WAYS[name](*arrays)

    spent = in_turn({name: lambda _, name=name: one(name) for name in WAYS}, rounds, warmup=0)
    ours = misfit(found["ours"], *arrays)
    rows = {
        name: {
            "objective": misfit(found[name], *arrays) / ours - 1,
            "off": np.abs(way(*exact)[3:] - truth).max(),
            "seconds": min(spent[name]),
        }
        for name, way in WAYS.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def coverage(seeds: int = 100, level: float = 0.95) -> tuple[float, float]:
    """The Wilson interval of the share of seeds whose block-bootstrap interval of phi holds the true phi."""
    inside = 0
    for seed in range(seeds):
        frame = iso_depth_grid(0.005, seed)
        draws = bootstrap(fit_joint, joint_arrays(frame), frame[["budget", "r"]], seed=seed)
        low, high = percentile_interval(draws["phi"], level)
        inside += low <= PUBLISHED["phi"] <= high
    interval = scipy.stats.binomtest(inside, seeds).proportion_ci(method="wilson")
    return interval.low, interval.high


def bias(noise: float, seeds: int = 40) -> tuple[float, float]:
    """Mean error of phi over seeds, and its standard error."""
    errors = [
        fit_joint(*joint_arrays(iso_depth_grid(noise, seed))).params["phi"] - PUBLISHED["phi"] for seed in range(seeds)
    ]
    return float(np.mean(errors)), float(np.std(errors, ddof=1) / math.sqrt(seeds))


def main() -> int:
    bounds = Bounds()
    for name, measured in speed().items():
        bounds.at_most(f"{name}, seconds", measured, 3)
    ours, scipys = many_at_once()
    bounds.at_most("1,000 refits of the joint law at once, CPU seconds", ours, 2)
    print(f"{scipys / ours:.1f} times as fast as scipy's least squares one by one")
    for name, excess in against_restarts().items():
        bounds.at_most(f"{name}: over the best of 500 starts of scipy", excess, 1e-9)
    ways = rivals()
    bounds.at_most("ours: exponents from the truth", ways.loc["ours", "off"], 1e-12)
    for name, way in ways.drop("ours").iterrows():
        bounds.at_least(f"{name}: objective over ours", way["objective"], -1e-9)
        times = way["seconds"] / ways.loc["ours", "seconds"]
        print(f"{name}: exponents {way['off']:.0e} from the truth, {times:.3g} x our time")
    for noise in (0.0, 0.002, 0.005, 0.01):
        mean, stderr = bias(noise)
        bounds.at_most(f"phi at {noise:.1%} noise, off by", abs(mean), 3 * stderr + 1e-9)
    low, high = coverage()
    bounds.at_least("95 % intervals that hold phi, highest share that fits", high, 0.95)
    bounds.at_most("95 % intervals that hold phi, lowest share that fits", low, 0.95)
    return bounds.status()


if __name__ == "__main__":
    sys.exit(main())

"""make bench: times fits on one core, and checks that nothing beats their optimum."""

import time

from lib.fit import laws
from lib.fit.fits import bootstrap, fit_chinchilla, fit_joint, fit_unified
from lib.papers.isodepth import published
from tests.benches import Bounds
from tests.fit.known import by_scipy, iso_depth_grid, joint_arrays, unified_grid


def speed() -> dict[str, float]:
    """CPU seconds of 1,000 bootstrap refits of the joint law on the 116 published runs, and of the unified law on 540
    points."""
    runs, (arrays, _) = published.sets(published.runs())["all"], unified_grid(0.002)
    begin = time.process_time()
    bootstrap(fit_joint, joint_arrays(runs), runs[["budget", "r"]], 1000)
    between = time.process_time()
    fit_unified(*arrays)
    return {"1,000 refits of the joint law at once": between - begin, "unified law": time.process_time() - between}


def against_restarts(restarts: int = 500) -> dict[str, float]:
    """Our objective over the best of 500 tight starts of scipy's L-BFGS-B, less one: at most 1e-9 wanted."""
    frame = iso_depth_grid(0.005)
    plain = frame[frame.r == 4]
    plain = plain.n_once + plain.n_rec, plain.D, plain.loss
    runs = published.sets(published.runs())["all"]
    of_four = tuple(runs.loc[runs.r == 4, name] for name in ("N", "D", "loss"))
    cases = [("Chinchilla", laws.CHINCHILLA, fit_chinchilla, (plain, of_four))]
    cases += [("joint", laws.JOINT, fit_joint, (joint_arrays(frame), joint_arrays(runs)))]
    return {
        f"{name}, {points}": fit(*own).objective / by_scipy(law, own, restarts) - 1
        for name, law, fit, arrays in cases
        for points, own in zip(("noise", "published runs"), arrays, strict=True)
    }


def main() -> None:
    bounds = Bounds()
    for name, measured in speed().items():
        bounds.at_most(f"{name}, CPU seconds", measured, 2)
    for name, excess in against_restarts().items():
        bounds.at_most(f"{name}: over the best of 500 starts of scipy", excess, 1e-9)
    bounds.end()


if __name__ == "__main__":
    main()

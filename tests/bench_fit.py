"""make bench: times fits on one core, and checks that nothing beats their optimum."""

import time

from lib.fit import laws
from lib.fit.fits import bootstrap, fit_chinchilla, fit_joint, fit_unified
from lib.papers.isodepth import published
from tests.benches import Bounds, in_turn
from tests.fit.known import by_scipy, iso_depth_grid, joint_arrays, unified_grid


def speed() -> dict[str, float]:
    """Seconds of the joint fit of 116 runs with 200 resamples of its 24 cells, and of the unified law on 540 points."""
    frame, (arrays, _) = iso_depth_grid(0.005), unified_grid(0.002)

    def joint(_) -> None:
        fit_joint(*joint_arrays(frame))
        bootstrap(fit_joint, joint_arrays(frame), frame[["budget", "r"]])

    fits = {"joint fit with 200 resamples": joint, "unified law": lambda _: fit_unified(*arrays)}
    return {name: took for name, (took,) in in_turn(fits, rounds=1, warmup=0).items()}


def many_at_once(refits: int = 1000) -> float:
    """CPU seconds of bootstrap refits of the joint law on the 116 published runs."""
    runs = published.sets(published.runs())["all"]
    begin = time.process_time()
    bootstrap(fit_joint, joint_arrays(runs), runs[["budget", "r"]], refits)
    return time.process_time() - begin


def against_restarts(restarts: int = 500) -> dict[str, float]:
    """Our objective over the best of 500 tight starts of scipy's L-BFGS-B, less one: at most 1e-9 wanted."""
    frame = iso_depth_grid(0.005)
    plain = frame[frame.r == 4]
    plain = plain.n_once + plain.n_rec, plain.D, plain.loss
    runs = published.sets(published.runs())["all"]
    of_four = tuple(runs.loc[runs.r == 4, name] for name in ("N", "D", "loss"))
    cases = {
        "Chinchilla": (laws.CHINCHILLA, fit_chinchilla, plain),
        "joint": (laws.JOINT, fit_joint, joint_arrays(frame)),
        "Chinchilla, published runs": (laws.CHINCHILLA, fit_chinchilla, of_four),
        "joint, published runs": (laws.JOINT, fit_joint, joint_arrays(runs)),
    }
    return {
        name: fit(*arrays).objective / by_scipy(law, arrays, restarts) - 1 for name, (law, fit, arrays) in cases.items()
    }


def main() -> None:
    bounds = Bounds()
    for name, measured in speed().items():
        bounds.at_most(f"{name}, seconds", measured, 3)
    bounds.at_most("1,000 refits of the joint law at once, CPU seconds", many_at_once(), 2)
    for name, excess in against_restarts().items():
        bounds.at_most(f"{name}: over the best of 500 starts of scipy", excess, 1e-9)
    bounds.end()


if __name__ == "__main__":
    main()

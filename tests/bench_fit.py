"""make bench: times fits on one core. That nothing beats their optimum is seen in tests/fit/test_fits.py."""

import time

from lib.fit.fits import bootstrap, fit_joint, fit_unified
from lib.papers.isodepth import published
from tests.benches import Bounds
from tests.fit.known import joint_arrays, unified_grid


def main() -> None:
    """CPU seconds of 1,000 bootstrap refits of the joint law on the 116 published runs, and of the unified law on 540
    points."""
    runs, (arrays, _), bounds = published.sets(published.runs())["all"], unified_grid(0.002), Bounds()
    begin = time.process_time()
    bootstrap(fit_joint, joint_arrays(runs), runs[["budget", "r"]], 1000)
    between = time.process_time()
    fit_unified(*arrays)
    bounds.at_most("1,000 refits of the joint law at once, CPU seconds", between - begin, 2)
    bounds.at_most("unified law, CPU seconds", time.process_time() - between, 2)
    bounds.end()


if __name__ == "__main__":
    main()

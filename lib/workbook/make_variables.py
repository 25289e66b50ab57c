"""What make was asked, checked before anything runs. Any Python 3 can run this, without an environment.

make passes those of its variables that are checked through the environment, and three more: GIVEN, the names of the
variables on its command line; GOALS, what it is to make; NOTEBOOKS, the names of all notebooks. The answer is "fine",
or the first thing that is wrong, in one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

PROFILES = ["smoke", "cpu", "desk", "gpu", "paper", "addendum", "second-text"]
ON_A_CLUSTER = ["RAY_ADDRESS", "RUN_CPUS", "RUN_GPUS", "RUN_MEMORY"]
VARIABLES = ["PROFILE", "ONLY", "JOBS", "MINUTES", "SHARD", "SEED", "PYTHON", "TORCH", "ENGINE", *ON_A_CLUSTER]


def answer(asked: Mapping[str, str]) -> str:
    """ "fine", or a line that names a variable, what is wrong with it, and the remedy."""
    profile, only, jobs, minutes = asked["PROFILE"], asked["ONLY"].split(), asked["JOBS"], asked["MINUTES"]
    engine, torch, given, shard = asked["ENGINE"], asked["TORCH"], asked["GIVEN"].split(), asked["SHARD"]
    seed = asked["SEED"]
    goals, notebooks = asked["GOALS"].split(), asked["NOTEBOOKS"].split()
    for name in given:
        if name not in VARIABLES:
            return f"{name}: unknown variable, use {', '.join(VARIABLES[:-1])} or {VARIABLES[-1]}"
    if profile not in PROFILES:
        return f"PROFILE: '{profile}' is not known, use {', '.join(PROFILES[:-1])} or {PROFILES[-1]}"
    if engine not in ("", "ray"):
        return f"ENGINE: '{engine}' is not known, use ray, or leave it out for the cores of this machine"
    for name in only:
        if name not in notebooks:
            return f"ONLY: there is no notebook '{name}', use one of: {' '.join(notebooks)}"
    if not re.fullmatch("[0-9]+", jobs):
        return f"JOBS: '{jobs}' is not a number of processes, use 0 for one a core"
    if minutes and not (re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", minutes) and float(minutes) > 0):
        return f"MINUTES: '{minutes}' is not a time, use a positive number of minutes, or leave it out for no limit"
    part = re.fullmatch("([1-9][0-9]*)/([1-9][0-9]*)", shard)
    if shard and not (part and int(part[1]) <= int(part[2])):
        return f"SHARD: '{shard}' is no share of the runs, use 1/2 on one machine and 2/2 on another, or leave it out"
    if seed and not re.fullmatch("[0-9]+", seed):
        return f"SEED: '{seed}' is not a number to draw by, use 0 or any other, or leave it out"
    for goal in goals:
        if minutes and goal not in ("records", "audit"):
            return f"MINUTES: make {goal} has no limit, use it with make records or make audit alone"
        if seed and goal != "audit":
            return f"SEED: make {goal} draws nothing, use it with make audit alone"
        if shard and goal != "records":
            return f"SHARD: make {goal} is not shared by machines, use it with make records alone"
    for goal in ("records", "audit"):
        if engine and goal in goals:
            return f"ENGINE: make {goal} trains on this machine, leave it out, or use make reproduce-figures"
    for name in ON_A_CLUSTER:
        if name in given and not engine:
            return f"{name}: only a cluster needs it, use ENGINE=ray, or leave it out"
    if torch not in ("cpu", "cuda"):
        return f"TORCH: '{torch}' is not known, use cpu or cuda"
    return "fine"


if __name__ == "__main__":
    print(" ".join(answer(os.environ).split()))

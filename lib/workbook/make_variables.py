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
VARIABLES = [
    "PROFILE",
    "ONLY",
    "JOBS",
    "MINUTES",
    "SHARD",
    "SEED",
    "BESIDE",
    "PYTHON",
    "TORCH",
    "ENGINE",
    *ON_A_CLUSTER,
]


def one_of(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


#: variable -> what it looks like, and what is said of it where it does not
VALUES = {
    "PROFILE": ("|".join(PROFILES), f"is not known, use {one_of(PROFILES)}"),
    "ENGINE": ("|ray", "is not known, use ray, or leave it out for the cores of this machine"),
    "JOBS": ("[0-9]+", "is not a number of processes, use 0 for one a core"),
    "MINUTES": (
        r"|(?=.*[1-9])([0-9]+\.?[0-9]*|\.[0-9]+)",
        "is not a time, use a positive number of minutes, or leave it out for no limit",
    ),
    "SHARD": (
        "|[1-9][0-9]*/[1-9][0-9]*",
        "is no share of the runs, use 1/2 on one machine and 2/2 on another, or leave it out",
    ),
    "SEED": ("[0-9]*", "is not a number to draw by, use 0 or any other, or leave it out"),
    "BESIDE": (r"[^'\"\\$`]*", "has a quote, a dollar or a backslash, rename the folder"),
    "TORCH": ("cpu|cuda", "is not known, use cpu or cuda"),
}
#: variable -> the goals that heed it, and why others do not
HEEDED = {
    "MINUTES": (["records", "audit"], "has no limit"),
    "SEED": (["audit"], "draws nothing"),
    "SHARD": (["records"], "is not shared by machines"),
    "BESIDE": (["report", "site"], "shows no second folder"),
}


def answer(asked: Mapping[str, str]) -> str:
    """ "fine", or a line that names a variable, what is wrong with it, and the remedy."""
    given, goals, notebooks = asked["GIVEN"].split(), asked["GOALS"].split(), asked["NOTEBOOKS"].split()
    wrong = [
        *(f"{name}: unknown variable, use {one_of(VARIABLES)}" for name in given if name not in VARIABLES),
        *(
            f"{name}: '{asked[name]}' {said}"
            for name, (looks, said) in VALUES.items()
            if not re.fullmatch(looks, asked[name])
        ),
        *(
            f"ONLY: there is no notebook '{name}', use one of: {' '.join(notebooks)}"
            for name in asked["ONLY"].split()
            if name not in notebooks
        ),
        *(
            f"{name}: make {goal} {why}, use it with {' or '.join(f'make {one}' for one in heeding)} alone"
            for name, (heeding, why) in HEEDED.items()
            for goal in goals
            if asked[name] and goal not in heeding
        ),
        *(
            f"ENGINE: make {goal} trains on this machine, leave it out, or use make reproduce-figures"
            for goal in ("records", "audit")
            if asked["ENGINE"] and goal in goals
        ),
        *(
            f"{name}: only a cluster needs it, use ENGINE=ray, or leave it out"
            for name in ON_A_CLUSTER
            if name in given and not asked["ENGINE"]
        ),
    ]
    return wrong[0] if wrong else "fine"


if __name__ == "__main__":
    print(" ".join(answer(os.environ).split()))

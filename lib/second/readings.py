"""Which numbers the second opinion reads off the records by itself, and which are of nothing that was recorded."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lib.second import at_init, injections

#: (name of a measurement -> what was recorded, and "runs" -> config, status and summary of each; the notebook's
#: parameters) -> claim -> one row a seed, one column a comparison
Reading = Callable[[Mapping[str, list[dict[str, Any]]], Mapping[str, Any]], dict[str, pd.DataFrame]]

#: of every notebook that has six seeds at some profile
READINGS: dict[str, Reading] = {"injection_ablation": injections.numbers, "residual_scaling_init": at_init.numbers}

#: computed in the notebook without a run, or against an entropy of the text: their second opinion is on the notebook's
#: own numbers
WITHOUT_RUNS = (
    "002-theorem-1-in-its-model",
    "002-theorem-2-in-its-model",
    "002-gaussian-gain-on-the-cone",
    "000-passthrough-fails",
    "001-base-diverges-before-residual-norm",
    "001-residual-norm-diverges-before-parcae",
    "001-parcae-trains-past-base",
    "001-base-diverged-rho-at-least-one",
    "001-base-converged-rho-below-one",
    "001-base-state-explodes",
    "001-base-lowest-diverging-rate",
    "001-residual-norm-lowest-diverging-rate",
)

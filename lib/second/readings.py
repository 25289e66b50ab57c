"""Which numbers the second opinion reads off the records by itself, and which are of nothing that was recorded."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lib.second import at_init

#: what was recorded of each measurement, the notebook's parameters -> claim -> one row a seed, one column a comparison
Reading = Callable[[Mapping[str, list[dict[str, Any]]], Mapping[str, Any]], dict[str, pd.DataFrame]]

#: of every notebook that has six seeds at some profile
READINGS: dict[str, Reading] = {"residual_scaling_init": at_init.numbers}

#: computed in the notebook, without a run: their second opinion is on the notebook's own numbers
WITHOUT_RUNS = ("002-theorem-1-in-its-model", "002-theorem-2-in-its-model", "002-gaussian-gain-on-the-cone")

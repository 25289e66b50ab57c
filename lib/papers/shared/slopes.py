"""Exponents: how one quantity grows with another, read off a log-log plot."""

import numpy as np
import pandas as pd


def log_slope(x: pd.Series, y: pd.Series) -> float:
    """The slope of log y against log x; nan where there is one x alone, or a y is nan."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if x.nunique() > 1 else np.nan


def slopes(table: pd.DataFrame, by: list[str], quantity: str, over: str) -> pd.Series:
    """``log_slope`` of the column ``quantity`` against the column ``over``, for each combination of the columns
    ``by``."""
    return table.groupby(by, sort=False)[[over, quantity]].apply(lambda cell: log_slope(cell[over], cell[quantity]))

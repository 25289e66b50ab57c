"""A table of margins as a claim takes it: one comparison a column, one number a seed."""

from typing import Any

import pandas as pd


def comparisons(table: pd.DataFrame | pd.Series, seeds: list[int]) -> list[float] | dict[str, list[float]]:
    """Each column of a table with one row a seed as the numbers of ``seeds``, in their order, by its name: "L = 4, N =
    1" where the levels of the columns are L and N, the value alone where a level has no name. Of a series the numbers
    alone, of one comparison without a name."""
    if isinstance(table, pd.Series):
        return [float(x) for x in table[seeds]]

    def name(column: Any) -> str:
        values = column if isinstance(column, tuple) else (column,)
        levels = zip(table.columns.names, values, strict=True)
        shown = ((level, f"{value:g}" if isinstance(value, float) else str(value)) for level, value in levels)
        return ", ".join(f"{level} = {value}" if level else value for level, value in shown)

    return {name(column): [float(x) for x in values[seeds]] for column, values in table.items()}

"""A bad parameter of a notebook is refused in one line with a remedy, before anything is trained.

What papermill shows of it stands in test_notebooks.py, what is wrong of itself in workbook/test_parameters.py.
"""

import math

import pytest

from lib.workbook import plans
from tests.lines import everything, one_line

PARAMETERS = [
    # what papermill -p, -y and -f make of the command line: text, numbers, lists, mappings
    ("instability", {"steps": 1}, "optim.warmup_steps:", "shorten them"),
    ("instability", {"width": 33}, "width: 33", "change one of them"),
    ("instability", {"architectures": "[base, rnn]"}, "architectures: 'rnn' is not known", "use"),
    ("instability", {"max_hours": math.nan}, "max_hours:", "finite number"),
    ("instability", {"limit_ngram": 9}, "limit_ngram: 9-grams of 256", "use 1 or a smaller vocabulary"),
    ("instability", {"source": "no/such.txt"}, "data.source: no/such.txt", "check the path"),
    ("instability", {"outputs": "x" * 300}, "outputs: ", "xxx cannot be written to"),
    ("end_to_end", {"sizes": {"wide": 1}}, "sizes.wide", "valid integer"),
    ("extrapolation", {"widths": {1.0e9: [20, 24]}}, "widths: has none for the budget", "change together"),
    ("isodepth_isoflop", {"recurrences": [1, 3]}, "recurrences: 8 looped layers", "use divisors of 8"),
    ("isodepth_isoflop", {"recurrences": [2, 4]}, "recurrences: [2, 4] needs 1, the plain model, and another"),
    ("recurrence_exponent", {"budgets": [1.0e9]}, "budgets: [1000000000.0] is too few", "list 2 at least"),
    ("extrapolation", {"recurrences": [1, 2], "widths": {1e9: [20, 24], 1.15e9: [20]}}, "widths: 6 runs", "7 runs at"),
    ("downstream_axes", {"whole_recurrences": [4]}, "whole_recurrences: [4] needs 1, the plain model"),
    ("residual_scaling_beyond", {"kept_lr": -1.0}, "lrs", "three rates, kept_lr -1 too"),
    ("generate", {"top_p": 1.5}, "top_p: ", "less than or equal to 1"),
    ("downstream_core", {"training_seeds": [5]}, "training_seeds: none is of [1]", "add one of them"),
    ("downstream_axes", {"budgets": [3.0, 1e9]}, "budgets: 3 is none of recurrence_exponent at smoke", "use 1e+09"),
    ("downstream_axes", {"tasks": "no/such/folder"}, "tasks: no/such/folder is not a folder", "give one"),
]


@pytest.mark.parametrize(("name", "given", "words"), [(n, g, w) for n, g, *w in PARAMETERS])
def test_a_parameter(tmp_path, name, given, words):
    with one_line(*words):
        plans.plan(name, "smoke", **{"outputs": str(tmp_path / "outputs"), **given})
    assert not everything(tmp_path)

"""A frame of runs has the parts of their labels, and no loss of what diverged."""

import numpy as np

from lib.papers.shared.frames import labelled
from tests.runs import ended, small_run


def test_a_row_a_run_in_the_order_of_the_plan():
    plan = {("a", seed): small_run(train={"seed": seed}) for seed in (2, 1)}
    results = [ended(plan["a", 1], None), ended(plan["a", 2], 2.5)]
    frame = labelled(results, plan, ["group", "seed"])
    assert frame["seed"].tolist() == [2, 1] and frame["status"].tolist() == ["finished", "diverged"]
    assert frame["loss"][0] == 2.5 and np.isnan(frame["loss"][1]) and frame["label"].tolist() == [*plan]
    assert [*labelled([], {}, ["group", "seed"])] == ["label", "group", "seed", "status", "tokens", "loss"]

"""A frame of runs has the parts of their labels, and no loss of what diverged."""

import numpy as np
import pandas as pd

from lib.papers.shared.frames import finished, labelled, with_labels
from tests.runs import ended, small_run


def test_a_row_a_run_in_the_order_of_the_plan():
    plan = {("a", seed): small_run(train={"seed": seed}) for seed in (2, 1)}
    results = [ended(plan["a", 1], None), ended(plan["a", 2], 2.5)]
    frame = labelled(results, plan, ["group", "seed"])
    assert frame["seed"].tolist() == [2, 1] and frame["status"].tolist() == ["finished", "diverged"]
    assert frame["loss"][0] == 2.5 and np.isnan(frame["loss"][1]) and frame["label"].tolist() == [*plan]
    assert [*labelled([], {}, ["group", "seed"])] == ["label", "group", "seed", "status", "tokens", "bpb", "loss"]


def test_what_finished_has_its_sizes_and_a_run_of_two_labels_its_rows_twice():
    plan = {("a", seed): small_run(train={"seed": seed}) for seed in (2, 1)}
    results = [ended(plan["a", 1], None), ended(plan["a", 2], 2.5)]
    (row,) = finished(results, plan, ["group", "seed"], lambda cfg: {"width": cfg.model.width}).to_dict("records")
    assert (row["seed"], row["width"], row["loss"]) == (2, 32, 2.5)
    table = pd.DataFrame({"key": [plan["a", 2].key, "another", plan["a", 1].key], "T": [1, 2, 3]})
    named = with_labels(table, plan | {("b", 1): plan["a", 1]}, ["group", "seed"])
    assert named[["T", "group", "seed"]].to_numpy().tolist() == [[1, "a", 2], [3, "a", 1], [3, "b", 1]]

"""003's models count and cost what it says, and known optima are found."""

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.flops import count
from lib.papers.nanochat.parameters import UsageWeighted
from lib.papers.shared.frames import finished
from tests.cells import function, run
from tests.given import given
from tests.runs import ended

P = given(UsageWeighted, context=32, val_rows=16, max_bytes=300_000, batch=4)


def test_usage_counts_each_parameter_as_often_as_it_runs():
    model = function("usage_weighted", "model")
    cfg = model(P, 16)
    counts = count(cfg)
    assert (cfg.prelude, cfg.recur, cfg.coda, cfg.mean_loops) == (2, 4, 2, 4)
    looped = 4 * (12 * 16 * 16 + 4 * 16) + 2 * 16 * 16  # four sandwich blocks and the injection
    assert counts.n_usage - counts.n_params == 3 * looped
    with pytest.raises(InputError, match="widths: 20 is not a multiple of head_dim 8"):
        model(P, 20)


def planned(p):
    return run("usage_weighted", "configs = ", p=p).configs


def test_a_budget_buys_the_same_flops_at_every_width():
    plan = planned(P.replace(widths={2e9: [8, 16, 24]}, seeds=[3]))
    assert [*plan] == [("2e9 FLOPs", 2e9, width, 3) for width in (8, 16, 24)]
    for cfg in plan.values():
        assert cfg.tokens * count(cfg.model, 32).published["003"] == pytest.approx(2e9, rel=0.06)
    with pytest.raises(InputError, match=r"budgets: 1e\+08 FLOPs are \d steps at width 8"):
        planned(P.replace(widths={1e8: [8]}))
    results = [ended(cfg, None if cfg.model.width == 8 else 2.0) for cfg in plan.values()]
    frame = finished(results, plan, ["group", "budget", "width", "seed"], function("usage_weighted", "size"))
    assert frame["width"].tolist() == [16, 24] and (frame["budget"] == 2e9).all() and (frame["seed"] == 3).all()
    assert (frame["usage"] > frame["physical"]).all() and frame["D"][0] > frame["D"][1]


def sweep(noise=0.0) -> pd.DataFrame:
    """Losses with their least at physical = 1000 sqrt(C), where 20 tokens a parameter are bought, whatever C."""
    rows = []
    for budget in (1.0, 4.0, 16.0):
        for width in range(8, 17):
            N = 1000 * budget**0.5 * (width / 12) ** 2
            loss = 3 - 0.1 * np.log(budget) + 0.2 * np.log(N / 1000 / budget**0.5) ** 2
            sizes = {"physical": N, "usage": N**1.1, "D": 20_000 * budget / (N / 1000)}
            rows.append({"budget": budget, "seed": 1, "width": width, **sizes, "loss": loss})
    return pd.DataFrame(rows)


def test_optima_are_of_either_count():
    optimum = function("usage_weighted", "optimum")
    physical = optimum(sweep(), "physical")
    assert physical["N"].tolist() == pytest.approx([1000.0, 2000.0, 4000.0])
    assert physical["ratio"].tolist() == pytest.approx([20.0, 20.0, 20.0])
    usage = optimum(sweep(), "usage")["ratio"]
    assert usage.tolist() == pytest.approx([20.0 * N**-0.1 for N in physical["N"]])
    one_side = optimum(sweep().query("width > 13"), "usage")
    assert one_side["N"].isna().all() and one_side["ratio"].isna().all()

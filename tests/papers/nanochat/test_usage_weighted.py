"""003's table of sizes comes out to the digit, its ratios drift less by usage, and known optima are found."""

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.flops import count
from lib.papers.nanochat import usage_weighted
from lib.papers.nanochat.parameters import UsageWeighted
from tests.given import given
from tests.runs import ended

P = given(UsageWeighted, context=32, val_rows=16, max_bytes=300_000, batch=4)


def test_the_table_of_sizes_is_the_logs_to_the_digit():
    table = usage_weighted.table_of_sizes()
    assert (table["parameters"] == table["printed parameters"]).all() and len(table) == 7
    rounded = [float(f"{flops:.6e}") for flops in table["FLOPs / token"]]
    assert rounded == table["printed FLOPs / token"].tolist()


def test_what_the_formula_leaves_out_is_no_hundredth():
    shares = usage_weighted.excluded_shares()
    assert [*shares] == [f"s{size}" for size in usage_weighted.PUBLISHED_SIZES]
    lookup, softmax = 6 * 65_536 * 512, 9 * 4 * 2048 * 20
    assert shares["s8"] == pytest.approx(100 * (lookup + softmax) / (7.678034e08 + lookup + softmax))
    assert 20 < shares["s8"] < 22 and 12.5 < shares["s20"] < 14


def test_usage_counts_each_parameter_as_often_as_it_runs():
    cfg = usage_weighted.model(P, 16)
    counts = count(cfg)
    assert (cfg.prelude, cfg.recur, cfg.coda, cfg.mean_loops) == (2, 4, 2, 4)
    looped = 4 * (12 * 16 * 16 + 4 * 16) + 2 * 16 * 16  # four sandwich blocks and the injection
    assert counts.n_usage - counts.n_params == 3 * looped
    with pytest.raises(InputError, match="widths: 20 is not a multiple of head_dim 8"):
        usage_weighted.model(P, 20)


def test_a_budget_buys_the_same_flops_at_every_width():
    plan = usage_weighted.grid(P.replace(widths={2e9: [8, 16, 24]}, seeds=[3]))
    assert [*plan] == [("2e9 FLOPs", 2e9, width, 3) for width in (8, 16, 24)]
    for cfg in plan.values():
        assert cfg.tokens * count(cfg.model, 32).published["003"] == pytest.approx(2e9, rel=0.06)
    with pytest.raises(InputError, match=r"budgets: 1e\+08 FLOPs are \d steps at width 8"):
        usage_weighted.grid(P.replace(widths={1e8: [8]}))
    results = [ended(cfg, None if cfg.model.width == 8 else 2.0) for cfg in plan.values()]
    frame = usage_weighted.frame(results, plan)
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


def test_optima_and_the_drift_of_their_ratio():
    optima = usage_weighted.optima(sweep())
    physical = optima[optima["N is"] == "physical"]
    assert physical["N"].tolist() == pytest.approx([1000.0, 2000.0, 4000.0])
    assert physical["ratio"].tolist() == pytest.approx([20.0, 20.0, 20.0])
    assert usage_weighted.drift(optima, "physical") == pytest.approx(0, abs=1e-9)
    assert usage_weighted.drift(optima, "usage") == pytest.approx(-0.05)  # N^1.1 grows by C^.55, D by C^.5
    one_side = usage_weighted.optima(sweep().query("width > 13"))
    assert one_side["N"].isna().all() and np.isnan(usage_weighted.drift(one_side, "usage"))


def test_a_mean_ratio_needs_every_budget():
    optima = pd.DataFrame(
        {"N is": "usage", "budget": [1, 2, 1, 2], "seed": [7, 7, 8, 8], "ratio": [6.0, 7.0, 6.0, np.nan]}
    )
    found = usage_weighted.ratios(optima, "usage")
    assert found[7] == 6.5 and np.isnan(found[8])


def test_the_published_ratios_drift_less_by_usage():
    published = usage_weighted.published_optima()
    assert len(published) == 8
    drifts = usage_weighted.drift(published, "physical"), usage_weighted.drift(published, "usage")
    assert 0 < drifts[1] < drifts[0] / 2

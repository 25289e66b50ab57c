import numpy as np
import pandas as pd
import pytest

from lib.transfer import best_rates


def sweep(best: float, condition: str, noise=0.0, curvature=0.02, rates=(0.01, 0.02, 0.04, 0.08)) -> pd.DataFrame:
    loss = 2 + curvature * np.log(np.array(rates) / best) ** 2
    loss += np.random.default_rng(len(condition)).normal(0, noise, len(rates))
    return pd.DataFrame({"r": 1, "condition": condition, "lr": rates, "loss": loss})


def test_the_best_rate_is_the_parabolas_and_regret_is_measured():
    runs = pd.concat([sweep(0.03, "near"), sweep(0.06, "off"), sweep(1.0, "far")])
    table = best_rates(runs, ["r", "condition"], kept=0.02).set_index("condition")
    assert table["lr"][["near", "off"]].tolist() == pytest.approx([0.03, 0.06])
    assert table["inside"].tolist() == [True, True, False]
    assert table["best tried"].tolist() == [0.04, 0.08, 0.08]
    expected = 0.02 * (np.log(0.02 / 0.06) ** 2 - np.log(0.08 / 0.06) ** 2)
    assert table["regret"]["off"] == pytest.approx(expected)
    assert (table["stderr"][:2] < 1e-6).all()


def test_its_stderr_is_its_spread():
    found = [best_rates(sweep(0.03, "x" * i, noise=0.003), ["condition"], 0.02).iloc[0] for i in range(1, 200)]
    spread = np.log([row["lr"] for row in found]).std()
    assert np.median([row["stderr"] for row in found]) == pytest.approx(spread, rel=0.6)


def test_seeds_are_averaged_and_what_cannot_be_read_off_is_nan():
    runs = pd.concat([sweep(0.02, "a"), sweep(0.045, "a")])  # the mean of two parabolas is at the mean of their logs
    assert best_rates(runs, ["condition"], 0.5).iloc[0][["lr", "regret"]].tolist() == pytest.approx(
        [0.03, np.nan], nan_ok=True
    )
    falling = sweep(0.03, "a").assign(loss=[4.0, 3.0, 2.5, 2.4])[:2]
    row = best_rates(falling, ["condition"], 0.01).iloc[0]
    assert np.isnan(row["lr"]) and not row["inside"] and row["regret"] == pytest.approx(1.0)

"""Best rates, their errors, drifts and regrets are those of parabolas with known optima."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.shared.transfer import MINIMUM, best_rates, drift, final_losses, loss_curves, regrets, slopes
from tests.runs import ended, small_run


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
    noisy = best_rates(sweep(0.03, "x", noise=0.003), ["condition"], 0.02).iloc[0]
    half = 12.706205 * noisy["stderr"]  # four rates leave one degree of freedom
    assert np.log([noisy["lr"] / noisy["low"], noisy["high"] / noisy["lr"]]) == pytest.approx([half, half], rel=1e-6)


def test_far_rates_can_be_left_out():
    rates = tuple(0.01 * 2.0**i for i in range(-3, 4))
    runs = sweep(0.012, "a", rates=rates)
    runs.loc[runs["lr"] > 0.05, "loss"] = 9.0  # where nothing is learned
    assert best_rates(runs, ["condition"], 0.01)["lr"][0] < 0.006
    near = best_rates(runs, ["condition"], 0.01, within=4).iloc[0]
    assert near["lr"] == pytest.approx(0.012) and near["inside"]
    edge = best_rates(sweep(0.1, "a"), ["condition"], 0.01, within=2).iloc[0]
    assert np.isnan(edge["lr"]) and not edge["inside"]  # two rates are no parabola


def test_seeds_are_averaged_and_what_cannot_be_read_off_is_nan():
    runs = pd.concat([sweep(0.02, "a"), sweep(0.045, "a")])  # the mean of two parabolas is at the mean of their logs
    found = best_rates(runs, ["condition"], 0.5).iloc[0]
    assert found["lr"] == pytest.approx(0.03) and np.isnan(found["regret"])
    falling = sweep(0.03, "a").assign(loss=[4.0, 3.0, 2.5, 2.4])[:2]
    row = best_rates(falling, ["condition"], 0.01).iloc[0]
    assert np.isnan(row["lr"]) and not row["inside"] and row["regret"] == pytest.approx(1.0)


def moving(exponent: float, seed: int, loops=(1, 2, 4, 8)) -> pd.DataFrame:
    """Sweeps whose best rate is 0.03 N^exponent."""
    parts = [sweep(0.03 * N**exponent, str(N)).assign(N=N, seed=seed) for N in loops]
    return pd.concat(parts)


def test_a_drift_is_the_exponent_of_the_best_rate():
    runs = pd.concat([moving(-0.5, 1).assign(rule="sqrt"), moving(0.0, 1).assign(rule="linear")])
    best = best_rates(runs, ["rule", "seed", "N"], 0.02)
    found = drift(best, ["rule"], "N").set_index("rule")["drift"]
    assert found.to_dict() == pytest.approx({"sqrt": -0.5, "linear": 0.0}, abs=1e-9)
    # an optimum outside the rates tried has no number, nor has a line that falls
    for loss in (lambda f: 2 + 0.02 * np.log(f["lr"] / 9) ** 2, lambda f: 2 - 0.1 * np.log(f["lr"])):
        two = pd.concat([moving(0.0, 1, loops=(1,)), moving(0.0, 1, loops=(2,)).assign(loss=loss)])
        assert np.isnan(drift(best_rates(two, ["seed", "N"], 0.02), ["seed"], "N")["drift"][0])


def test_no_seed_judges_a_rate_that_it_chose():
    """Three seeds: two agree on a rate at N = 1 and on another at N = 8, the third would choose others."""
    table = {
        (1, 0.01): (2.0, 2.0, 2.5),
        (1, 0.02): (2.2, 2.2, 2.4),
        (8, 0.01): (3.0, 3.0, 2.0),
        (8, 0.02): (2.5, 2.5, 4.0),
    }
    runs = pd.DataFrame(
        [
            {"N": N, "lr": lr, "seed": seed, "loss": loss}
            for (N, lr), losses in table.items()
            for seed, loss in zip((1, 2, 3), losses, strict=True)
        ]
    )
    found = regrets(runs, "N", 1)
    assert found.index.tolist() == [8] and found.columns.tolist() == [1, 2, 3]
    # seeds 1 and 2 are judged by rates that the third has a say in: .01 at N = 1, and .01 at N = 8 (2.5 against 3.25)
    assert found.loc[8].tolist() == pytest.approx([0.0, 0.0, 2.0 / 4.0 - 1])
    alone = regrets(runs.query("seed == 1"), "N", 1)
    assert alone.loc[8].tolist() == pytest.approx([3.0 / 2.5 - 1])
    both = regrets(runs.assign(L=1), ["L", "N"], (1, 1))
    assert both.index.tolist() == [(1, 8)] and both.to_numpy().tolist() == found.to_numpy().tolist()


def test_noise_is_no_regret():
    """All rates alike but for noise: keeping one costs nothing in the mean, where the best of each would cost .8 %."""
    random, rates = np.random.default_rng(0), (0.01, 0.02, 0.04, 0.08)
    unbiased, best = [], []
    for _ in range(40):
        rows = [
            {"N": N, "lr": lr, "seed": s, "loss": 2 + random.normal(0, 0.015)}
            for N in (1, 8)
            for lr in rates
            for s in (1, 2, 3)
        ]
        runs = pd.DataFrame(rows)
        unbiased.append(regrets(runs, "N", 1).to_numpy().mean())
        tried = runs.pivot_table(index=["N", "seed"], columns="lr", values="loss")
        tuned = tried.loc[1].idxmin(axis=1)
        best.append(np.mean([tried.at[(8, s), tuned[s]] - tried.loc[8, s].min() for s in (1, 2, 3)]) / 2)
    assert abs(np.mean(unbiased)) < 0.002 and np.mean(best) > 0.005


def test_a_run_that_diverged_or_ended_far_up_knows_nothing():
    plan = {(seed,): small_run(train={"seed": seed}) for seed in (1, 2, 3)}
    results = [ended(cfg, loss) for cfg, loss in zip(plan.values(), (2.5, None, 80.0), strict=True)]
    assert final_losses(results, plan, ["seed"])["loss"].tolist() == [2.5, *[pytest.approx(np.log(256))] * 2]


MEASURED = pd.DataFrame(
    [
        {"rule": rule, "seed": seed, "N": N, "square": 3.0 * N**a if N > 2 else 7.0}
        for rule, a in (("none", 2.0), ("1/N", 0.0))
        for seed in (1, 2)
        for N in (1, 2, 4, 8, 16)
    ]
)


def test_exponents_are_those_of_each_group():
    found = slopes(MEASURED[MEASURED["N"] >= 4], ["rule", "seed"], "square", "N")
    assert [*found.index] == [(rule, seed) for rule in ("none", "1/N") for seed in (1, 2)]
    assert found.tolist() == pytest.approx([2, 2, 0, 0], abs=1e-9)
    assert slopes(MEASURED[MEASURED["N"] == 16], ["rule"], "square", "N").isna().all()  # one point has no slope
    unknown = MEASURED.assign(square=MEASURED["square"].mask(MEASURED["N"] == 8))
    assert np.isnan(slopes(unknown, ["rule", "seed"], "square", "N")).all()


# ---- the figure -----------------------------------------------------------------------------------------------------


@pytest.fixture
def runs():
    return pd.DataFrame(
        [
            {"group": group, "condition": condition, "lr": lr, "loss": 2 + abs(i - best) / 10}
            for group in ("r = 1", "r = 4")
            for condition, best in (("d = 16", 1), ("d = 24", 2))
            for i, lr in enumerate((0.01, 0.02, 0.04, 0.08))
        ]
    )


LOOK = {"r = 1": "transformer", "r = 4": "isodepth"}


@pytest.mark.usefixtures("style")
def test_a_loss_far_above_the_others_is_said_and_leaves_room_for_them(runs):
    best = best_rates(runs, ["group", "condition"], 0.02)
    near = loss_curves(runs, best, "group", "condition", LOOK).axes
    assert not [text for axis in near for text in axis.texts]
    triangles = [line.get_xdata()[0] for axis in near for line in axis.lines if line.get_marker() == MINIMUM]
    assert triangles == pytest.approx(best["lr"].tolist())
    runs.loc[3, "loss"] = 9.5
    first, second = loss_curves(runs, best, "group", "condition", LOOK, "learning rate of the table").axes
    assert [text.get_text() for text in first.texts] == [r"9.50 $\uparrow$"] and not second.texts
    assert first.texts[0].xy[0] == 0.08 and 2.2 <= first.get_ylim()[1] < 9
    assert first.get_xlabel() == "learning rate of the table"

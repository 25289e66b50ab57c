import numpy as np
import pandas as pd
import pytest

from lib import looping, parcae
from lib.errors import InputError
from lib.fit import fit_parcae
from lib.flops import count
from tests.test_parcae import P

SMALL = {**P, "width": 64, "layers": 1, "head_dim": 32, "vocab_size": 256, "context": 64, "batch": 8, "micro_batch": 0,
         "precision": "fp32", "loops": [1, 2, 4, 8], "budgets": [2e11, 4e11], "seeds": [7]}  # fmt: skip


def parabolas(exponent=0.4, budgets=(1.0, 2.0, 4.0, 8.0), loops=(1, 2, 4, 8, 16)) -> pd.DataFrame:
    """Losses whose optimum over the loops is 4 C^exponent, with F = 3 + loops."""
    rows = [
        {"budget": C, "mean_loops": mu, "seed": 1, "n_eff": 1.0 + mu, "F": 3.0 + mu, "D": C / (3 + mu),
         "loss": 3 - 0.1 * np.log(C) + 0.2 * np.log(mu / (4 * C**exponent)) ** 2 + (mu == 1) * 0.5}
        for C in budgets for mu in loops
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_every_run_of_the_grid_costs_its_budget():
    configs = looping.grid(SMALL)
    assert len(configs) == 8
    for (_, budget, mu, seed), cfg in configs.items():
        flops = count(cfg.model, 64).published["001"]
        assert cfg.tokens * flops == pytest.approx(budget, rel=0.02)
        assert cfg.model.mean_loops == mu and cfg.train.seed == seed
        assert looping.size(cfg) == {"n_eff": count(cfg.model).n_eff(1.0), "F": flops, "D": cfg.tokens}
    with pytest.raises(InputError, match=r"budgets: 1e\+09 FLOPs are . steps at 8 loops, raise them"):
        looping.steps_for(SMALL, 8, 1e9)


def test_effective_parameters_are_those_of_the_unrolled_model():
    one, eight = (count(parcae.model(SMALL, mean_loops=mu)) for mu in (1, 8))
    assert eight.n_eff(1.0) - one.n_eff(1.0) == 7 * one.n_rec


def test_optima_and_their_exponents():
    optima = looping.optima(parabolas())
    assert optima["mean_loops"].tolist() == pytest.approx([4 * C**0.4 for C in (1, 2, 4, 8)])
    assert optima["loss"].tolist() == pytest.approx([3 - 0.1 * np.log(C) for C in (1, 2, 4, 8)])
    assert optima["D"].tolist() == pytest.approx([C / (3 + 4 * C**0.4) for C in (1, 2, 4, 8)])
    assert optima["inside"].all()
    slope, (low, high) = looping.exponent(optima, "mean_loops")
    assert slope == pytest.approx(0.4) and low == pytest.approx(0.4) and high == pytest.approx(0.4)


def test_an_optimum_outside_the_loops_trained_does_not_count():
    optima = looping.optima(parabolas(loops=(1, 8, 12, 16)))  # the first budgets want fewer than 8
    assert optima["inside"].tolist() == [False, False, False, True]
    assert np.isnan(looping.exponent(optima, "mean_loops")[0])
    falling = parabolas().assign(loss=lambda runs: 3 - runs["mean_loops"] ** 0.5)
    assert not looping.optima(falling)["inside"].any()
    assert looping.exponent(looping.optima(parabolas()).iloc[:2], "D")[1] == (-np.inf, np.inf)


def test_gaps_are_positive_where_looping_is_better():
    runs = parabolas()
    gaps = looping.gaps_to_fixed_depth(runs, looping.optima(runs))
    fixed = runs[runs["mean_loops"] == 1].set_index("budget")["loss"]
    assert gaps.tolist() == pytest.approx([fixed[C] - (3 - 0.1 * np.log(C)) for C in (1.0, 2.0, 4.0, 8.0)])
    assert (gaps > 0).all()


def test_what_the_law_wants_is_its_least_loss_at_the_budget():
    loops, budgets = [1, 2, 4, 8, 16], [2e11, 8e11, 3.2e12]
    counts = {mu: count(parcae.model(SMALL, mean_loops=mu), 64) for mu in loops[1:]}
    truth = dict(E=1.2, A=400.0, a=0.5, B=900.0, b=0.5)
    points = [(c.n_eff(1.0), C / c.published["001"]) for c in counts.values() for C in budgets]
    n_eff, D = np.array(points).T
    law = fit_parcae(n_eff, D, truth["E"] + truth["A"] * n_eff ** -truth["a"] + truth["B"] * D ** -truth["b"])
    assert law.params == pytest.approx(truth, rel=1e-3)
    wanted = looping.best_by_law(law, SMALL, budgets, loops)
    for row in wanted.itertuples():
        trained = [float(law.predict(c.n_eff(1.0), row.budget / c.published["001"])) for c in counts.values()]
        assert row.loss <= min(trained) + 1e-9
    assert wanted["mean_loops"].is_monotonic_increasing  # more compute, more loops
    off = looping.errors(law, pd.DataFrame({"n_eff": n_eff, "D": D, "loss": law.predict(n_eff, D) / 1.01}))
    assert off.tolist() == pytest.approx([1.0] * len(n_eff))

"""The iso-depth grid is 000's at its sizes, and optima, frontiers and phi are read off it as published."""

import numpy as np
import pandas as pd
import pytest
import yaml

from lib.base.errors import InputError
from lib.config import DataConfig
from lib.fit.fits import fit_joint
from lib.fit.frontier import with_phi
from lib.fit.laws import JOINT
from lib.flops import count
from lib.model.looped import LoopedLM
from lib.papers.isodepth import designs
from lib.presets import preset
from lib.train.loop import train
from tests.lines import one_line
from tests.workbooks import ROOT

LAYOUT = dict(head_dim=8, looped=8, once=2, vocab_size=256, context=32)
DATA = dict(context=32, val_rows=16, max_bytes=300_000)
RATES = dict(muon_lr=0.058, embedding_lr=0.175, head_lr=0.175, norm_lr=0.05)


def test_every_recurrence_has_the_same_depth_and_fewer_parameters():
    models = {r: designs.model(r, 16, **LAYOUT) for r in (1, 2, 4, 8)}
    assert {cfg.prelude + cfg.coda + cfg.mean_loops * cfg.recur for cfg in models.values()} == {10}
    assert (models[1].injection, models[4].injection) == ("none", "concat-identity")
    sizes = [count(cfg).n_params for cfg in models.values()]
    assert sizes == sorted(sizes, reverse=True)
    flops = [count(cfg).published["000"] for cfg in models.values()]
    assert max(flops) / min(flops) < 1.15  # an injection a loop
    with pytest.raises(InputError, match="recurrences: 8 looped layers are not shared by 3 loops"):
        designs.model(3, 16, **LAYOUT)
    with pytest.raises(InputError, match="widths: 20 is not a multiple of head_dim 8"):
        designs.model(2, 20, **LAYOUT)


def test_at_the_papers_sizes_it_is_the_papers_model():
    layout = dict(head_dim=128, looped=16, once=4, vocab_size=32_064, context=2048)
    for r in (1, 2, 4, 8):
        assert designs.model(r, 640, **layout) == preset(f"isodepth-s10-r{r}")


def test_the_injections_of_the_ablation():
    models = {name: designs.model(4, 16, **LAYOUT, **designs.injection(name)) for name in designs.INJECTIONS}
    assert [cfg.injection for cfg in models.values()] == ["concat-identity", "add", "none", "hyper-connections"]
    sizes = {name: designs.parameters(cfg) for name, cfg in models.items()}
    assert sizes["linear"] - sizes["additive"] == 2 * 16 * 16 and sizes["additive"] == sizes["passthrough"]
    assert sizes["hyper-connections"] - sizes["passthrough"] == 4 * (2 * 2 + 2 * 2)
    with pytest.raises(InputError, match="injections: 'glue' is not known, use linear"):
        designs.injection("glue")


def small_grid(seeds=(1,), batch=4):
    data, widths = DataConfig(**DATA), {1e9: [8, 16, 24]}
    return designs.grid([1, 4], [1e9], widths, list(seeds), LAYOUT, data, RATES, dict(batch=batch))


def test_a_budget_buys_the_same_flops_at_every_width():
    for (group, budget, r, width, seed), cfg in small_grid().items():
        assert group == f"r = {r}" and cfg.train.seed == seed and cfg.model.width == width
        spent = cfg.tokens * count(cfg.model, 32).published["000"]
        assert spent == pytest.approx(budget, rel=0.06)  # to a step
        assert cfg.optim.name == "muonh" and cfg.optim.scaling == "hyperp" and cfg.optim.final == 0.1
        assert cfg.optim.cooldown_steps == cfg.train.steps
    with pytest.raises(InputError, match=r"budgets: 1e\+09 FLOPs are \d steps at width 8"):
        small_grid(batch=64)
    with pytest.raises(InputError, match=r"widths: has none for the budget 2e\+09"):
        designs.grid([1], [2e9], {1e9: [8]}, [1], LAYOUT, DataConfig(**DATA), RATES, dict(batch=4))


def test_where_seeds_are_repeated():
    assert designs.noise_cell([1, 2, 4], [3.0, 1.0, 2.0], {1.0: [8, 16, 24]}) == ([1, 4], [1.0], {1.0: [16]})


def test_a_frame_of_runs(store):
    configs = dict(list(small_grid().items())[1:3])  # the narrowest takes most steps
    results = [train(cfg, store) for cfg in configs.values()]
    frame = designs.frame(results, configs)
    assert frame["width"].tolist() == [16, 24] and (frame["N"] == frame["n_once"] + frame["n_rec"]).all()
    model = LoopedLM(results[1].config.model)
    tables = model.embed.weight.numel() + model.head.weight.numel()
    assert frame["N"][1] == sum(p.numel() for p in model.parameters()) - tables
    assert frame["loss"].tolist() == [r.summary["val_loss"] for r in results]


# ---- what is read off, on the paper's own law


@pytest.fixture(scope="module")
def published():
    return designs.published_grid()


@pytest.fixture(scope="module")
def published_fit(published):
    return fit_joint(*designs.joint_arrays(published))


def test_the_published_grid_is_the_papers(published, published_fit):
    assert len(published) == 116
    reference = published[(published["budget"] == 1e18) & (published["width"] == 640) & (published["r"] == 4)].iloc[0]
    assert reference["N"] == 40_152_960 and reference["F"] == 1_047_336_960 and round(reference["D"] / 1e6) == 955
    assert published_fit.params == pytest.approx(designs.PUBLISHED, rel=1e-7)


def test_optima_are_the_parabolas_minima(published):
    optima = designs.optima(published)
    assert len(optima) == 24 and (optima["budget"] / optima["D"] > 0).all()
    for _, row in optima.iterrows():
        cell = published[(published["budget"] == row["budget"]) & (published["r"] == row["r"])]
        assert row["loss"] <= cell["loss"].min() + 1e-3
        assert row["inside"] == (cell["N"].min() <= row["N"] <= cell["N"].max())
        if row["inside"]:
            assert cell["width"].min() <= row["width"] <= cell["width"].max()
            F = np.interp(np.log(row["N"]), np.log(cell["N"].sort_values()), np.log(cell.sort_values("N")["F"]))
            assert row["D"] == pytest.approx(row["budget"] / np.exp(F))
    # losses that fall with N have no optimum inside
    falling = published.assign(loss=4 - 0.1 * np.log(published["N"]))
    assert not designs.optima(falling)["inside"].any()


def test_what_a_recurrence_is_worth_at_the_published_phi(published):
    worth = designs.worth(designs.published_families(), 0.459).set_index("r")
    assert worth.loc[1].tolist() == [1, 1, 1]
    assert worth["unique"][4] == pytest.approx(0.41, abs=0.005)  # 410M for 1B
    assert worth["effective"][4] == pytest.approx(0.59, abs=0.01)  # with the injection; 0.58 without
    assert worth["flops"].max() < 1.07
    at_one = designs.worth(designs.published_families(), 1.0)
    assert at_one["effective"].between(1, 1.07).all()  # unrolled, all are the plain model and their injections


def test_frontiers_keep_the_order_of_the_paper(published, published_fit):
    one = fit_joint(*designs.joint_arrays(published), phi=1.0)
    lines = designs.frontiers(published_fit, one, designs.published_families(), [1e18, 1e19])
    table = lines.pivot(index="budget", columns="r", values="loss").dropna()
    assert len(table) > 5 and (np.diff(table[[1, 2, 4, 8]], axis=1) > 0).all()
    unrolled = lines.pivot(index="budget", columns="r", values="loss_unrolled").dropna()
    assert (unrolled.max(axis=1) - unrolled.min(axis=1)).max() < 0.02  # one curve, but for the injection's FLOPs


# ---- probes, pairs, noise


def test_a_probe_changes_the_looped_models_alone():
    for name in ("truncated", "hyper-connections"):
        assert designs.model(1, 16, **LAYOUT, **designs.intervention(name, 1)) == designs.model(1, 16, **LAYOUT)
    kept = [
        designs.model(r, 16, **LAYOUT, **designs.intervention("truncated", r)).max_backprop_loops for r in (2, 4, 8)
    ]
    assert kept == [1, 2, 4]
    lanes = designs.model(4, 16, **LAYOUT, **designs.intervention("hyper-connections", 4))
    assert lanes.injection == "hyper-connections" and lanes.lanes == 2
    with pytest.raises(InputError, match="probes: 'glue' is not known, use baseline"):
        designs.intervention("glue", 4)
    data = DataConfig(**DATA)
    plan = designs.grid([4], [1e9], {1e9: [8]}, [1], LAYOUT, data, RATES, dict(batch=4), "truncated")
    ((label, cfg),) = plan.items()
    (full,) = designs.grid([4], [1e9], {1e9: [8]}, [1], LAYOUT, data, RATES, dict(batch=4)).values()
    assert label == ("truncated", 1e9, 4, 8, 1) and 1.2 < cfg.tokens / full.tokens < 1.35


def test_truncation_buys_the_papers_tokens():
    assert designs.published_token_gain("truncated") == pytest.approx(1.315, abs=0.0015)
    s10 = preset("isodepth-s10-r4", **designs.intervention("truncated", 4))
    assert count(s10).published["000"] == 799_569_920


def test_a_lower_phi_wants_wider_models(published_fit):
    families = designs.published_families()
    at = {
        phi: designs.allocations(with_phi(published_fit, phi), families[4], 4, [1e18, 4.64e18])
        for phi in designs.PUBLISHED_PROBES.values()
    }
    widths = [at[phi]["width"].to_numpy() for phi in (0.38, 0.45, 0.65)]
    assert (widths[0] > widths[1]).all() and (widths[1] > widths[2]).all() and not at[0.45]["at_edge"].any()


def test_a_pair_has_the_same_tokens():
    pair = designs.matched_tokens([1, 4], 16, 2e9, LAYOUT, DataConfig(**DATA), RATES, dict(batch=4, seed=7))
    (_, budget, r, width, seed), four = list(pair.items())[1]
    assert (budget, r, width, seed, four.model.mean_loops) == (2e9, 4, 16, 7, 4)
    plain = next(iter(pair.values()))
    assert plain.tokens == four.tokens
    assert plain.tokens * count(plain.model, 32).published["000"] == pytest.approx(2e9, rel=0.05)


def test_seed_noise_is_the_t_interval_of_a_run():
    rows = [(1.0, r, 8, seed, loss) for r, losses in ((1, (2.0, 2.1, 2.2)), (8, (3.0, 3.1, 3.2)), (2, (5.0,)))
            for seed, loss in enumerate(losses)]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["budget", "r", "width", "seed", "loss"])
    assert designs.seed_noise(frame) == pytest.approx(2.776445 * 0.1)  # 4 degrees of freedom
    assert designs.seed_noise(frame[frame["r"] == 2]) == np.inf


def test_phi_drifts_where_the_halves_differ(published):
    still = designs.drift_of_phi(published, 3, 0)
    np.testing.assert_allclose(still, 0, atol=1e-6)
    moved = published.copy()
    high = moved["budget"] > 2.2e18
    moved.loc[high, "loss"] = JOINT.loss(
        {**designs.PUBLISHED, "phi": 0.7}, *(moved.loc[high, c] for c in ("n_once", "n_rec", "r", "D"))
    )
    np.testing.assert_allclose(designs.drift_of_phi(moved, 3, 0), 0.7 - 0.459, atol=1e-5)


def test_settings_are_what_a_notebook_says():
    parameters = yaml.safe_load((ROOT / "params" / "paper" / "isodepth_isoflop.yaml").read_text())
    data, rates, training = designs.settings(parameters)
    assert designs.model(4, 640, **designs.layout(parameters)) == preset("isodepth-s10-r4", vocab_size=32_064)
    assert data.max_bytes == 60_000_000_000 and designs.settings({**parameters, "max_bytes": 0})[0].max_bytes is None
    assert rates == dict(muon_lr=0.014, embedding_lr=0.3, head_lr=0.004, norm_lr=0.005)
    assert training == dict(batch=128, micro_batch=16, precision="bf16-mixed")


def test_a_shift_of_phi_is_found_with_and_without_the_other_constants(published, published_fit):
    moved = published.assign(
        loss=JOINT.loss({**designs.PUBLISHED, "phi": 0.65}, *(published[c] for c in ("n_once", "n_rec", "r", "D")))
    )
    sets = {"baseline": published, "lanes": moved[(moved["budget"] != 1e18) | (moved["r"] != 8)]}  # a cell blew up
    for fitting in (fit_joint, designs.phi_alone(published_fit)):
        shifts = designs.phi_shifts(sets, fitting, 4, 0)
        assert shifts.loc["baseline", ["delta", "delta_low", "delta_high"]].tolist() == [0, 0, 0]
        found = shifts.loc["lanes", ["delta", "delta_low", "delta_high"]].tolist()
        assert found == pytest.approx([0.191] * 3, abs=1e-5)


def test_gaps_are_against_the_plain_model_and_need_both_optima():
    optima = pd.DataFrame({"budget": [1.0, 1.0, 2.0, 2.0], "r": [1, 4, 1, 4], "loss": [2.0, 2.1, 1.8, 1.95],
                           "inside": [True, True, True, False]})  # fmt: skip
    gaps = designs.frontier_gaps(optima)
    assert gaps.columns.tolist() == [4] and gaps[4][1.0] == pytest.approx(0.1) and np.isnan(gaps[4][2.0])


def test_a_model_of_410_is_worth_580_at_the_cost_of_1000(published_fit):
    table = designs.equivalences(published_fit, designs.published_families(), 4.64e18).loc[4]
    assert table["unique"] == pytest.approx(0.41, abs=0.005) and table["cost"] == pytest.approx(1.03, abs=0.01)
    assert table["worth"] == pytest.approx(0.59, abs=0.01)  # 0.58 without the injection
    assert table["tokens"] > 1.2 and 0.9 < table["phi to cross"] < 1.1


def test_held_at_one_the_published_law_fits_worse_than_at_zero(published):
    margin, (low, high) = designs.held_phi_margin(published[::2], 5, 0)
    assert low <= high and 0 < margin < 0.1  # two R2 near 1
    r2_low, r2_high = designs.r2_interval(published[::3], 4, 0)
    assert r2_low == pytest.approx(1) and r2_high == pytest.approx(1)


def test_a_d_is_the_exponent_of_the_optimal_parameters(published_fit):
    line = designs.allocations(published_fit, designs.published_families()[1], 1, [1e18, 2e18, 4e18])
    exponent = np.polyfit(np.log(line["budget"]), np.log(line["N"]), 1)[0]
    assert exponent == pytest.approx(designs.a_D(published_fit), abs=0.02)
    assert designs.a_D({"alpha": 0.2, "beta": 0.3}) == pytest.approx(0.6)


def test_a_prediction_has_its_bootstraps_interval(published, published_fit):
    draws = pd.DataFrame([{**designs.PUBLISHED, "E": e} for e in np.linspace(1.5, 1.6, 101)])
    frame = designs.predicted(published.assign(loss=published["loss"] / 1.01), published_fit, draws)
    np.testing.assert_allclose(frame["error (%)"], 1, rtol=1e-6)
    np.testing.assert_allclose(frame["high"] - frame["low"], 0.095, rtol=1e-6)


def test_the_grid_of_a_notebook_repeats_seeds_in_one_cell():
    parameters = yaml.safe_load((ROOT / "params" / "cpu" / "isodepth_isoflop.yaml").read_text())
    plan = designs.grid_with_noise(parameters | {"content": "text"})
    repeated = [label for label in plan if label[-1] != parameters["seed"]]
    assert {label[1:4] for label in repeated} == {(4.64e10, 1, 16), (4.64e10, 8, 16)} and len(repeated) == 4
    with pytest.raises(InputError, match=r"widths: has fewer than two for the budget 4.64e\+10"):
        designs.grid_with_noise(parameters | {"widths": {b: [16] for b in parameters["budgets"]}})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: designs.model(0, 16, **LAYOUT), "recurrences: 8 looped layers are not shared by 0 loops"),
        (lambda: designs.model(2, 16, **{**LAYOUT, "head_dim": 0}), "widths: 16 is not a multiple of head_dim 0"),
        (lambda: designs.model(2, 16, **{**LAYOUT, "once": 3}), "once: 3 layers are no prelude and coda"),
        (lambda: small_grid(batch=0), "batch: 0 rows train nothing"),
    ],
)
def test_bad_parameters_are_one_line(call, message):
    with one_line(message):
        call()

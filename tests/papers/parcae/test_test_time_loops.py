"""Curves of test-time loops give back the decay they were made with, and the exponential beats its rivals."""

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.base.statistics import all_of
from lib.fit.fits import fit_unified
from lib.papers.parcae import test_time_loops
from lib.workbook.claims import CONTRADICTED, REPRODUCED, verdict
from tests.cases import claim

ALL = tuple(range(1, 25))


def curve(key, mu, z, T=ALL, floor=1.5, Z=0.8, **columns) -> pd.DataFrame:
    T = np.array(T)
    return pd.DataFrame({"key": key, "mean_loops": mu, "T": T, "loss": floor + Z * np.exp(-z * T), **columns})


@pytest.fixture(scope="module")
def curves():
    """Three models whose decay rate goes like mean_loops^-1.2."""
    return pd.concat([curve(f"m{mu}", mu, 6 * mu**-1.2) for mu in (4, 8, 16)], ignore_index=True)


@pytest.fixture(scope="module")
def compared(curves):
    return test_time_loops.compare(curves)


def test_the_exponential_is_found_and_beats_its_rivals(curves, compared):
    found = test_time_loops.saturations(curves)
    table = found.set_index("mean_loops")
    for mu in (4, 8, 16):
        assert table.loc[mu, ["L_inf", "Z", "z"]].tolist() == pytest.approx([1.5, 0.8, 6 * mu**-1.2], rel=1e-4)
    forms = compared.pivot(index="key", columns="form", values="in")
    assert (forms["exponential"] < 1e-3 * forms.drop(columns="exponential").min(axis=1)).all()
    assert (forms["power"] > forms["power with floor"]).all()  # which it is a case of


def test_extrapolation_is_judged_beyond_mean_loops_alone(compared):
    beyond = compared.pivot(index="mean_loops", columns="form", values="beyond")
    assert (beyond["exponential"] < beyond.drop(columns="exponential").min(axis=1)).all()
    shallow = test_time_loops.compare(curve("m2", 2, 3.0))  # T = 1, 2 cannot fit three parameters
    assert shallow["beyond"].isna().all() and shallow["in"].notna().all()


def test_who_has_seen_less_foresees_the_same_curve_or_none(curves):
    changed = curves.assign(loss=curves["loss"].where(curves["T"] <= 6, 9.0))  # which nobody has seen
    assert test_time_loops.foreseen(changed, 6)["m8"].params["L_inf"] == pytest.approx(1.5, rel=1e-4)
    assert test_time_loops.foreseen(changed, 24)["m8"].params["L_inf"] > 5
    with pytest.raises(InputError, match="3 points cannot fit the 3 parameters"):
        test_time_loops.foreseen(curves, 3)


def test_what_loops_beyond_mean_loops_still_gain():
    own = curve("m4", 4, 0.5)
    row = test_time_loops.saturations(own).iloc[0]
    losses = own.set_index("T")["loss"]
    assert row["beyond"] == pytest.approx((losses[4] - losses[24]) / (losses[1] - losses[4]))
    assert test_time_loops.gain_beyond(losses, 4, 8) == pytest.approx((losses[4] - losses[8]) / (losses[1] - losses[4]))
    assert row["on a bound"] == "" and row["off, %"] == pytest.approx(100 * (1 - 1.5 / losses[4]), rel=1e-3)


@pytest.fixture(scope="module")
def sized():
    """Two sizes, two mean_loops, two seeds; that of the second seed is as good as the first but for its floor."""
    curves = [
        curve(f"{d}{mu}{seed}", mu, 6 / mu, floor=1.5 + seed, size=f"d = {d}", seed=seed)
        for d in (32, 64)
        for mu in (4, 16)
        for seed in (7, 8)
    ]
    return pd.concat(curves, ignore_index=True)


def test_a_loss_that_rises_again_is_no_plateau(sized):
    flat = test_time_loops.plateaus(sized, 24, [7, 8])
    assert [*flat] == [f"d = {d}, mean_loops {mu}, T = {T}" for d in (32, 64) for mu, T in ((4, 8), (4, 24), (16, 24))]
    assert 0 < max(flat["d = 32, mean_loops 16, T = 24"]) < 0.05
    risen = sized.assign(loss=sized["loss"] + 0.1 * (sized["T"] > sized["mean_loops"]))
    rising = test_time_loops.plateaus(risen, 24, [7, 8])
    assert verdict(claim("tie", effect=0.05), all_of(flat), "cpu") == REPRODUCED
    assert verdict(claim("tie", effect=0.05), all_of(rising), "cpu") == CONTRADICTED
    missing = test_time_loops.plateaus(sized, 24, [7, 9])["d = 32, mean_loops 4, T = 8"]
    assert missing[0] == flat["d = 32, mean_loops 4, T = 8"][0] and np.isnan(missing[1])


def test_forms_and_floors_are_compared_in_the_mean_over_a_sizes_models(sized):
    about = sized.drop_duplicates("key").set_index("key")[["size", "seed"]]
    forms = test_time_loops.compare(sized).join(about, on="key")
    ahead = test_time_loops.ahead(forms, "in", [7, 8, 9])
    assert [*ahead] == [f"{form}, d = {d}" for d in (32, 64) for form in ("shifted power", "power with floor", "power")]
    means = forms[(forms["size"] == "d = 64") & (forms["seed"] == 8)].groupby("form")["in"].mean()
    assert ahead["power, d = 64"][1] == pytest.approx(np.log(means["power"] / means["exponential"]))
    assert np.isnan(ahead["power, d = 64"][2])
    nowhere = forms.assign(beyond=np.nan)
    assert all(np.isnan(of).all() for of in test_time_loops.ahead(nowhere, "beyond", [7, 8]).values())
    table = test_time_loops.saturations(sized).join(about, on="key")
    off = test_time_loops.floors_off(table, [8, 9])
    of_size = table[(table["size"] == "d = 32") & (table["seed"] == 8)]["off, %"]
    assert [*off] == ["d = 32", "d = 64"] and off["d = 32"][0] == pytest.approx(of_size.mean())
    assert np.isnan(off["d = 32"][1])


@pytest.fixture(scope="module")
def grid():
    """Curves of the unified law with gamma 1.1 over sizes, tokens and loops."""
    rows = []
    for mu in (2, 4, 8, 12):
        for D in (1e5, 3e5, 1e6):
            n_eff = 2e4 + 1e4 * mu
            floor = 1.2 + 300 * n_eff**-0.6 + 500 * D**-0.5
            rows.append(curve(f"{mu}-{D:g}", mu, 6 * mu**-1.1, (1, 2, 4, 6, 8, 12, 16, 24), floor, n_eff=n_eff, D=D))
    return pd.concat(rows, ignore_index=True)


def test_conditioning_on_mean_loops_is_what_the_curves_need(grid):
    floor = test_time_loops.training_floor(grid)  # of losses that have not quite reached it
    assert {name: floor[name] for name in ("E", "x", "y")} == pytest.approx({"E": 1.2, "x": 0.6, "y": 0.5}, rel=0.2)
    fits = test_time_loops.conditionings(grid, {"E": 1.2, "X": 300, "x": 0.6, "Y": 500, "y": 0.5})
    assert fits["learned gamma"].params["gamma"] == pytest.approx(1.1, rel=1e-3)
    assert fits["gamma = 1"].params["E"] == pytest.approx(1.2)  # held
    assert fits["learned gamma"].objective < fits["gamma = 1"].objective < fits["no conditioning"].objective
    assert fits["no conditioning"].objective > 3 * fits["gamma = 1"].objective


def test_every_seed_has_laws_and_a_held_out_curve_of_its_own(grid):
    both = pd.concat([grid.assign(seed=1), grid.assign(seed=2, key="s2 " + grid["key"])], ignore_index=True)
    others = both[(both["mean_loops"] == 8) & (both["D"] == 3e5)]
    others = others.assign(loss=others["loss"] * np.where(others["seed"] == 2, 1.02, 1.0))
    found = test_time_loops.seed_by_seed(both, others, [1, 2, 3])
    assert found["gamma"].tolist()[:2] == pytest.approx([1.1, 1.1], abs=0.15) and found.loc[3].isna().all()
    assert found["needed held out"][1] > 0.5  # it is a curve of the fit
    assert found["needed in the fit"].min() > 1 and found["needed in the fit"].nunique() == 1
    assert found.loc[2, "law, %"] - found.loc[1, "law, %"] == pytest.approx(2, abs=0.3)
    assert found.loc[2, "oracle, %"] < 0.5 * found.loc[2, "law, %"]
    few = both[(both["seed"] == 1) | (both["D"] == 3e5)]  # four curves of the second seed
    assert test_time_loops.seed_by_seed(few, others, [1, 2])["gamma"].isna().tolist() == [False, True]


def test_the_oracles_floor_is_the_measured_loss_at_mean_loops(grid):
    fitted = fit_unified(*test_time_loops.columns(grid), gamma=1.0)
    held_out = grid[grid["mean_loops"] == 8].assign(loss=lambda rows: rows["loss"] + 0.3)  # a floor the law misses
    plain, oracle = (test_time_loops.predict(fitted, held_out, oracle=which) for which in (False, True))
    off, off_oracle = (test_time_loops.percent_off(p, held_out) for p in (plain, oracle))
    assert off_oracle.max() < 0.3 * off.min()
    decay = fitted.params["Z"] * np.exp(-fitted.params["z"] / 8 * held_out["T"])
    at_mean = held_out[held_out["T"] == 8].set_index("key")["loss"]
    assert oracle == pytest.approx((held_out["key"].map(at_mean) + decay).to_numpy())


def test_depths_have_to_go_beyond_those_trained():
    test_time_loops.check_depths(24, [2, 16])
    with pytest.raises(InputError, match="deepest: 16 loops do not go beyond mean_loops 16, raise it"):
        test_time_loops.check_depths(16, [2, 16])

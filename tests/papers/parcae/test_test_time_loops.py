"""Curves of test-time loops give back the decay they were made with, and the exponential beats its rivals."""

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.fit.fits import fit_unified
from lib.papers.parcae import test_time_loops

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
    assert test_time_loops.decay_exponent(found) == pytest.approx(1.2, rel=1e-3)
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


def test_what_is_left_after_mean_loops():
    own = curve("m4", 4, 0.5)
    row = test_time_loops.saturations(own).iloc[0]
    losses = own.set_index("T")["loss"]
    assert row["left"] == pytest.approx((losses[4] - losses[24]) / (losses[1] - losses[24]))
    early = own.assign(
        loss=own["loss"] + 0.1 * (own["T"] > 3)
    )  # a model that is best before mean_loops has no gain left
    flat = test_time_loops.saturations(early.assign(loss=early["loss"].where(early["T"] <= 3, 2.0))).iloc[0]
    assert flat["left"] == 0 and row["on a bound"] == ""
    assert row["off, %"] == pytest.approx(100 * (1 - 1.5 / losses[4]), rel=1e-3)


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

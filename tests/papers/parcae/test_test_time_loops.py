"""Curves of test-time loops give back the decay they were made with, and the exponential beats its rivals."""

import numpy as np
import pandas as pd
import pytest

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
    for mu, own in curves.groupby("mean_loops"):
        found = test_time_loops.fits(own)["exponential"].params
        assert found == pytest.approx({"L_inf": 1.5, "Z": 0.8, "z": 6 * mu**-1.2}, rel=1e-4)
    forms = compared.pivot(index="key", columns="form", values="in")
    assert (forms["exponential"] < 1e-3 * forms.drop(columns="exponential").min(axis=1)).all()
    assert (forms["power"] > forms["power with floor"]).all()  # which it is a case of


def test_extrapolation_is_judged_beyond_mean_loops_alone(compared):
    beyond = compared.pivot(index="mean_loops", columns="form", values="beyond")
    assert (beyond["exponential"] < beyond.drop(columns="exponential").min(axis=1)).all()
    shallow = test_time_loops.compare(curve("m2", 2, 3.0))  # T = 1, 2 cannot fit three parameters
    assert shallow["beyond"].isna().all() and shallow["in"].notna().all()


def unified_curves(gamma: float) -> pd.DataFrame:
    """Curves of the unified law over sizes, tokens and loops."""
    rows = []
    for mu in (2, 4, 8, 12):
        for D in (1e5, 3e5, 1e6):
            n_eff = 2e4 + 1e4 * mu
            floor = 1.2 + 300 * n_eff**-0.6 + 500 * D**-0.5
            rows.append(curve(f"{mu}-{D:g}", mu, 6 * mu**-gamma, (1, 2, 4, 6, 8, 12, 16, 24), floor, n_eff=n_eff, D=D))
    return pd.concat(rows, ignore_index=True)


def test_the_oracles_floor_is_the_measured_loss_at_mean_loops():
    grid = unified_curves(gamma=1.1)
    fitted = fit_unified(*(grid[name] for name in test_time_loops.INPUTS), grid["loss"], gamma=1.0)
    held_out = grid[grid["mean_loops"] == 8].assign(loss=lambda rows: rows["loss"] + 0.3)  # a floor the law misses
    plain, oracle = (test_time_loops.predict(fitted, held_out, oracle=which) for which in (False, True))
    off, off_oracle = (np.abs(p / held_out["loss"] - 1).groupby(held_out["key"]).mean() for p in (plain, oracle))
    assert off_oracle.max() < 0.3 * off.min()
    decay = fitted.params["Z"] * np.exp(-fitted.params["z"] / 8 * held_out["T"])
    at_mean = held_out[held_out["T"] == 8].set_index("key")["loss"]
    assert oracle == pytest.approx((held_out["key"].map(at_mean) + decay).to_numpy())

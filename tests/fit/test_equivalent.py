"""phi without a law of loops comes back from losses whose phi is known, run by run."""

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.fit import fits, laws
from lib.fit.equivalent import r2_of_gaps, run_phi
from lib.papers.isodepth import published
from tests.fit.known import iso_depth_grid, joint_arrays

CELL = ["budget", "r"]
COUPLED = laws.coupled(laws.CHINCHILLA, "free")
TRUTH = dict(A=24.4, B=112.6, E=1.195, alpha=0.165, beta=0.221, c=0.39)


def with_phi(phi, law=COUPLED, noise=0.0, seed=0) -> pd.DataFrame:
    """000's grid, with the losses of plain models of n_once + r^phi n_rec; phi: a number, or one a run."""
    frame = iso_depth_grid()
    loss = law.loss(TRUTH, frame.n_once + frame.r**phi * frame.n_rec, frame.D)
    return frame.assign(loss=loss * np.exp(np.random.default_rng(seed).normal(0, noise, len(frame))))


def of(frame, n=8, **options):
    return run_phi(*joint_arrays(frame), frame[CELL], n=n, **options)


def slope(frame) -> pd.DataFrame:
    return pd.DataFrame({"slope": np.log(frame.D / frame.N), "one": 1.0})


@pytest.mark.parametrize("law", [laws.CHINCHILLA, COUPLED], ids=lambda law: law.name)
def test_phi_of_a_joint_law_comes_back_at_every_ratio_of_tokens(law):
    frame = with_phi(0.45, law)
    found, looped = of(frame, surface=law), frame.r.to_numpy() > 1
    inside = ~np.isnan(found.phi[0])
    assert found.outside == np.sum(looped & ~inside) <= 2 and not inside[~looped].any()
    assert np.ptp(np.log((frame.D / frame.N)[inside])) > 3
    assert found.phi[0, inside] == pytest.approx(0.45, abs=1e-6)
    assert np.nanmax(np.abs(found.phi - 0.45)) < 1e-4  # and from every resample
    row = found.told_by(slope(frame)).loc["slope"]
    assert row["value"] == pytest.approx(0, abs=1e-6) and row["n"] == inside.sum()


@pytest.mark.parametrize("degree, run, mean", [(2, 0.06, 0.01), (3, 0.02, 0.002)])
def test_a_polynomial_is_off_by_its_misfit_and_a_higher_one_by_less(degree, run, mean):
    frame = with_phi(0.45)
    off = of(frame, surface=degree).phi[0] - 0.45
    assert np.nanmax(np.abs(off)) < run and abs(np.nanmean(off)) < mean


def test_a_phi_that_differs_from_run_to_run_is_told_run_by_run():
    ratio = iso_depth_grid().eval("D / N").to_numpy()
    phi = 0.3 + 0.05 * np.log(ratio)
    frame = with_phi(phi)
    found = of(frame, surface=COUPLED)
    known = ~np.isnan(found.phi[0])
    assert found.phi[0, known] == pytest.approx(phi[known], abs=1e-6)
    told = found.told_by(slope(frame))
    assert told["value"].tolist() == pytest.approx([0.05, 0.3], abs=1e-5)
    by_budget = found.told_by(pd.get_dummies(frame.budget))["value"]
    assert by_budget.to_numpy() == pytest.approx(
        pd.Series(phi[known]).groupby(frame.budget.to_numpy()[known]).mean().to_numpy(), abs=1e-6
    )
    implied = of(frame, surface=COUPLED, law=laws.coupled(laws.JOINT, "free"))
    left = found._replace(phi=found.phi - implied.phi).told_by(slope(frame)).loc["slope"]
    assert abs(left["value"] - 0.05) < 0.01  # a law of one phi has none of it


def test_what_a_law_implies_of_its_own_losses_is_what_is_measured():
    frame = with_phi(0.45)
    measured, implied = of(frame), of(frame, law=laws.coupled(laws.JOINT, "free"))
    assert np.array_equal(np.isnan(measured.phi[0]), np.isnan(implied.phi[0]))
    assert np.nanmax(np.abs(measured.phi[0] - implied.phi[0])) < 1e-4


def test_a_resample_is_a_table_of_its_own():
    frame = with_phi(0.45, noise=0.003)
    found, looped = of(frame), frame.r.to_numpy() > 1
    counts = fits.resampled(laws.JOINT, joint_arrays(frame), frame[CELL], 8, 0)
    of_three = [w for w in counts if frame.budget[(frame.r == 1) & (w > 0)].nunique() > 2]
    assert len(of_three) > 2
    for drawn, phi, weights in zip(of_three, found.phi[1:], found.weights[1:], strict=False):
        assert np.array_equal(weights, drawn * looped)
        rows = np.r_[np.repeat(np.flatnonzero(~looped), drawn[~looped]), np.flatnonzero(looped)]
        table = frame.iloc[rows]
        least, most = (frame.N[~looped].agg(how) for how in ("min", "max"))
        if (table.N[table.r == 1].min(), table.N[table.r == 1].max()) == (least, most):  # asked as far as of all
            assert of(table).phi[0, -looped.sum() :] == pytest.approx(phi[looped], abs=1e-6, nan_ok=True)
    table = found.told_by(slope(frame))
    known = ~np.isnan(found.phi[0])
    line = np.linalg.lstsq(slope(frame).to_numpy()[known], found.phi[0, known])[0]
    assert table["value"].tolist() == pytest.approx(line.tolist())
    assert (table["low"] <= table["high"]).all()


def test_nothing_is_told_beyond_the_sizes_and_below_what_runs_once():
    frame = with_phi(0.45)
    much, little = np.flatnonzero(frame.r == 8)[[3, 20]]
    changed = frame.copy()
    changed.loc[changed.index[much], "loss"] = 1.5  # better than any plain model twice as large as the largest
    changed.loc[changed.index[little], "loss"] = 4.0
    before, after = of(frame, surface=COUPLED), of(changed, surface=COUPLED)
    assert np.isnan(after.phi[:, [much, little]]).all() and after.outside == before.outside + 2
    others = np.delete(np.arange(len(frame)), [much, little])
    assert np.array_equal(before.phi[:, others], after.phi[:, others], equal_nan=True)
    huge = frame.assign(n_once=np.where(frame.index == frame.index[much], 1e12, frame.n_once))
    assert of(huge).outside == of(frame).outside + 1 and np.isnan(of(huge).phi[0, much])
    told = after.told_by(pd.get_dummies(frame.r))
    assert told["n"].tolist()[0] == 0 and np.isnan(told.loc[1, ["value", "low", "high"]]).all()


def test_the_order_of_runs_and_the_seed():
    frame = with_phi(0.45, noise=0.003)
    order = np.random.default_rng(3).permutation(len(frame))
    one, other = of(frame), of(frame.iloc[order])
    assert other.phi == pytest.approx(one.phi[:, order], abs=1e-9, nan_ok=True)
    assert np.array_equal(other.weights, one.weights[:, order])
    assert np.array_equal(of(frame).phi, one.phi, equal_nan=True)
    assert not np.array_equal(of(frame, seed=1).weights, one.weights)


@pytest.mark.parametrize(
    "keep, message", [("r > 1", "r: 0 of 87"), ("r == 1", "r: 29 of 29"), ("r > 1 or budget < 2e18", "r: 9 of 96")]
)
def test_runs_that_make_no_surface_are_refused(keep, message):
    with pytest.raises(InputError, match=message) as error:
        of(with_phi(0.45).query(keep))
    assert "\n" not in str(error.value)


def test_bad_arrays_are_refused():
    frame = with_phi(0.45)
    for column, value, message in [("loss", np.nan, "loss: nan"), ("r", 0.5, "r: 0.5"), ("D", 0, "D: 0")]:
        with pytest.raises(InputError, match=message):
            of(frame.assign(**{column: np.where(frame.index == frame.index[5], value, frame[column])}))
    with pytest.raises(InputError, match="cells: give one label"):
        run_phi(*(x.to_numpy() for x in joint_arrays(frame)), [1, 2])
    with pytest.raises(InputError, match="indices differ"):
        run_phi(*joint_arrays(frame), frame[CELL].iloc[::-1])
    with pytest.raises(InputError, match="design: has 3 rows"):
        of(frame).told_by(pd.DataFrame({"one": np.ones(3)}))


def test_r2_of_gaps_is_of_gaps_and_not_of_losses():
    frame = iso_depth_grid()
    exact = fits.fit_joint(*joint_arrays(frame))
    assert r2_of_gaps(exact, frame[["budget", "width"]]) == pytest.approx(1, abs=1e-9)
    blind = fits.fit_joint(*joint_arrays(frame), phi=-0.3)
    paired = frame.assign(told=blind.loss + blind.off).pivot(
        index=["budget", "width"], columns="r", values=["loss", "told"]
    )
    gaps, told = ((paired[name].sub(paired[name][1], axis=0))[[2, 4, 8]].to_numpy() for name in ("loss", "told"))
    expected = 1 - np.mean((told - gaps) ** 2) / np.var(gaps)
    assert r2_of_gaps(blind, frame[["budget", "width"]]) == pytest.approx(expected) and expected < blind.r2 - 0.2
    assert np.isnan(r2_of_gaps(exact, frame[CELL]))  # no looped run has its plain one
    with pytest.raises(InputError, match="r: is not there"):
        r2_of_gaps(fits.fit_chinchilla(frame.N, frame.D, frame.loss), frame[CELL])


def test_the_published_runs_have_gaps_that_the_additive_law_tells_better():
    runs = published.runs("loop").query("probe == 'baseline'")
    found = {
        c: r2_of_gaps(fits.fit_joint(*joint_arrays(runs), coupling=c), runs[["budget", "width"]]) for c in (1, 0.388)
    }
    assert found == pytest.approx({1: 0.924, 0.388: 0.867}, abs=2e-3)


@pytest.mark.long
@pytest.mark.parametrize("truth", [0.0, 0.07])
def test_the_interval_of_a_slope_holds_the_truth(truth):
    """At noise of .003 in logs, through the coupled surface and the quadratic: of 60 sets."""
    phi = 0.25 + truth * np.log(iso_depth_grid().eval("D / N").to_numpy())
    for surface in (2, COUPLED):
        held = []
        for seed in range(60):
            frame = with_phi(phi, noise=0.003, seed=seed)
            row = of(frame, 200, surface=surface, seed=seed).told_by(slope(frame)).loc["slope"]
            held.append(row["low"] <= truth <= row["high"])
        assert np.mean(held) > 0.85

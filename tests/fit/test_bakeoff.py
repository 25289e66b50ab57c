"""Each law of the comparison comes back from its own losses, and what it foretells of runs is a fit without them."""

import numpy as np
import pandas as pd
import pytest

from lib.fit import bakeoff, fits
from lib.fit.bakeoff import CHINCHILLA, KAPLAN, REPEATED, RIVALS, read
from lib.fit.laws import looped
from lib.papers.isodepth.designs import PUBLISHED
from tests.fit.known import iso_depth_grid, joint_arrays
from tests.lines import one_line

COUPLED = {**PUBLISHED, "c": 0.4}


def grid(noise=0.0, seed=0) -> pd.DataFrame:
    """000's design with losses of coupled terms."""
    frame = iso_depth_grid().rename(columns={"n_once": "N_once", "n_rec": "N_rec"})
    exact = looped(RIVALS["coupled"]).loss(COUPLED, *(frame[x] for x in ("N_once", "N_rec", "r", "D")))
    return frame.assign(loss=exact * np.exp(np.random.default_rng(seed).normal(0, noise, len(frame))))


def test_a_looped_law_is_the_law_on_effective_parameters():
    frame = iso_depth_grid()
    once, rec, r, D, loss = (x.to_numpy() for x in joint_arrays(frame))
    assert looped(CHINCHILLA).loss(PUBLISHED, once, rec, r, D) == pytest.approx(loss)
    p = dict(B=20.0, alpha=0.08, beta=0.1, log_q=2.0, phi=0.5)
    assert looped(KAPLAN).loss(p, once, rec, r, D) == pytest.approx(KAPLAN.loss(p, once + r**0.5 * rec, D))


REUSED = dict(A=400.0, alpha=0.34, B=2000.0, beta=0.37, E=1.7, R=15.4)
TRUTHS = {
    "Kaplan": lambda N, D: ((np.exp(9) / N) ** (0.076 / 0.103) + 6e10 / D) ** 0.103,
    "Farseer": lambda N, D: 1.2 * np.exp(50 * N**-0.3) + 200 * np.exp(-0.2 * N**0.05) * D ** -np.exp(0.3 * N**0.05 - 2),
    "Muennighoff": lambda *inputs: REPEATED.loss(REUSED, *inputs),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_rival_comes_back_from_its_own_losses(name):
    law = RIVALS[name]
    N, D = (x.ravel() for x in np.meshgrid(np.geomspace(1e7, 3e9, 8), np.geomspace(1e9, 3e11, 8)))
    inputs = [N, D, np.full_like(N, 1e10)][: len(law.inputs)]
    own = fits.fit(law, inputs, TRUTHS[name](*inputs), "squares")
    assert np.abs(own.residuals).max() < 1e-10
    if name == "Muennighoff":
        truth = REUSED
        assert own.params == pytest.approx(truth, rel=1e-4)
        more = law.loss(truth, 1e9, [1e10, 2e10, 1e15], [1e10] * 3)
        plain = CHINCHILLA.loss(truth, 1e9, [1e10, 2e10, 16.4e10])
        assert more[0] == pytest.approx(plain[0]) and more[1] > plain[1] and more[2] == pytest.approx(plain[2])


def test_the_law_that_made_the_losses_foretells_best_and_as_a_fit_without_them():
    runs = grid(noise=0.0005)
    found = bakeoff(runs, ["additive", "coupled", "Kaplan"], lowest=3)  # Farseer's takes a quarter of a minute
    table = found.table
    assert table.index[0] == "coupled"
    assert table["c"]["coupled"] == pytest.approx(0.4, abs=0.1) and table["bic"].idxmin() == "coupled"
    for way in ("cell", "budget", "top"):
        assert table[way]["coupled"] < 0.6 * table[way]["additive"]
    off = found.left_out.query("law == 'additive' and by == 'budget'")
    assert len(off) == len(runs) and set(off["run"]) == set(range(len(runs)))
    one = found.runs["budget"] == found.runs["budget"].min()
    rest = found.runs[~one]
    without = fits.fit_joint(*(rest[x] for x in ("N_once", "N_rec", "r", "D", "loss")))
    expected = without.predict(*(found.runs[one][x] for x in ("N_once", "N_rec", "r", "D"))) - found.runs[one]["loss"]
    first = off[off["run"].isin(np.flatnonzero(one))].set_index("run")["off"].sort_index()
    assert first.to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-7)
    top = found.left_out.query("law == 'coupled' and by == 'top'")
    assert table["top_bias"]["coupled"] == pytest.approx(top["off"].mean())
    assert table["top"]["coupled"] == pytest.approx(np.sqrt((top["off"] ** 2).mean()))


def test_runs_are_read_by_their_names_and_seeds_are_means(tmp_path):
    runs = pd.DataFrame({"size": [1e6, 1e6, 2e6], "D": [1e8, 1e8, 1e8], "nats": [3.0, 3.2, 2.9], "seed": [1, 2, 1]})
    runs.to_csv(tmp_path / "mine.csv")
    frame = read(tmp_path / "mine.csv", N="size", loss="nats")
    assert frame["loss"].tolist() == [3.1, 2.9] and frame["budget"].nunique() == 2
    with one_line("D: is not there"):
        read(runs.drop(columns="D"), N="size", loss="nats")
    with one_line("loss: -1 lies outside"):
        read(runs.assign(nats=-1.0), N="size", loss="nats")
    with one_line("rivals: 'Hooke' is not known, use some of additive"):
        bakeoff(grid(), ["Hooke"])
    with one_line("budget: there are 2, give at least three"):
        bakeoff(runs, N="size", loss="nats")

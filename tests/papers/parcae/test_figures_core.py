"""The figures of CORE put every size, rung and budget at the numbers of their tables."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.parcae import figures_core
from lib.tasks.suites import CORE, CORE_EXTENDED
from tests.scored import sized

pytestmark = pytest.mark.usefixtures("style")


def test_by_size():
    runs = sized(tasks=CORE_EXTENDED)
    figure = figures_core.by_size(runs)
    core, _, lambada = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["Core", "Core-Extended", "LAMBADA per token"]
    transformer, parcae = (container.lines[0] for container in core.containers)
    np.testing.assert_allclose(transformer.get_ydata(orig=False), [8, 16, 24])
    np.testing.assert_allclose(parcae.get_ydata(orig=False), [18, 26, 34])
    sizes = sorted(runs["parameters"][runs["architecture"] == "parcae"].unique())
    np.testing.assert_allclose(parcae.get_xdata(orig=False), sizes)  # where they are
    assert lambada.get_yscale() == "log" and lambada.containers[0].has_yerr
    # what none of its own tasks was asked of has no panel
    assert [axis.get_title() for axis in figures_core.by_size(sized(tasks=CORE)).axes] == ["Core", "LAMBADA per token"]


def test_ladder_and_frontier():
    rows = [
        {"variant": rung, "seed": seed, "T": T, "Core": T + seed, "Core stderr": 1.0}
        for rung in ("RDM", "+ constrained A", "+ prelude norm")
        for seed in (1, 3)
        for T in (1.0, 4.0)
    ]
    ladder = pd.DataFrame(rows)
    ladder.loc[ladder["variant"] == "RDM", ["T", "Core", "Core stderr"]] = np.nan  # it diverged
    edge = pd.DataFrame(
        [
            {"which": which, "width": 64, "budget": budget, "Core": i + budget / 1e9, "Core stderr": 1.0}
            for i, which in enumerate(("looped", "fixed depth"))
            for budget in (1e9, 2e9)
        ]
    )
    left, right = figures_core.ladder_and_frontier(ladder, edge).axes
    assert [[*container.lines[0].get_ydata()] for container in left.containers] == [[3.0, 6.0], [3.0, 6.0]]
    assert [[*container.lines[0].get_ydata()] for container in right.containers] == [[1.0, 2.0], [2.0, 3.0]]
    assert len({tuple(container.lines[0].get_xdata()) for container in left.containers}) == 2  # beside one another

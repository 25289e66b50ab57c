"""The iso-depth notebooks refuse in one line what leaves a grid, a comparison or a measurement without a part."""

import pytest

from lib.papers.isodepth import designs, parameters
from lib.papers.isodepth.parameters import InjectionAblation, LrTransferHyperp, PhiProbes
from tests.given import given
from tests.lines import one_line

GRIDS = [parameters.IsodepthIsoflop, parameters.RecurrenceExponent, parameters.Extrapolation]


@pytest.mark.parametrize("kind", GRIDS)
def test_a_grid_has_widths_for_every_budget_and_two_for_its_lowest(kind):
    with one_line("widths: has none for the budget 2e+09", "-p widths '{2e+09: ["):
        given(kind, budgets=[1e9, 2e9], widths={1e9: [8, 16]})
    with one_line("widths: has fewer than two for the budget 4.64e+10, where seeds are repeated, list more"):
        given(kind, widths={budget: [16] for budget in given(kind).budgets})


@pytest.mark.parametrize("kind", [PhiProbes, InjectionAblation])
def test_lanes_are_those_of_hyper_connections(kind):
    forms = designs.INJECTIONS
    lanes = {name: 0.1 for name in forms if forms[name].get("injection") == "hyper-connections"}
    assert given(kind).lanes_lr.keys() == given(kind, lanes_lr=lanes).lanes_lr.keys() == {*lanes}
    with one_line("lanes_lr.truncated", "hyper-connections"):
        given(kind, lanes_lr={"truncated": 0.1})


def test_a_comparison_has_what_is_compared():
    """The baseline, the plain model and a looped one; and the rate whose regret is measured."""
    p = given(PhiProbes)
    for changes in ({"recurrences": [2, 4]}, {"shown": 16}, {"shown": 1}):
        recurrences, shown = changes.get("recurrences", p.recurrences), changes.get("shown", p.shown)
        with one_line(f"recurrences: {recurrences} needs 1, the plain model, and shown, {shown}, above 1"):
            given(PhiProbes, **changes)
    with one_line("probes: baseline is what probes are compared with, leave it out"):
        given(PhiProbes, probes=["baseline", "truncated"])
    with one_line("muon_lr: 0.5 is not among muon_lrs, add it: regret is measured at that rate"):
        given(LrTransferHyperp, muon_lr=0.5)

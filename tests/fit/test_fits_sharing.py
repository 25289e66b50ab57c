"""Groups that share one parameter are fitted at the least sum of their objectives, and know a law from elsewhere."""

import numpy as np
import pytest

from lib.fit import laws
from lib.fit.fits import fit, fit_joint, objective_at, sharing
from tests.fit.known import iso_depth_grid, joint_arrays

LADDER = laws.POWER_WITH_FLOOR
TRUTH = {"a": dict(L_inf=1.7, Z=1.65, z=0.11), "b": dict(L_inf=1.7, Z=1.6, z=0.12), "c": dict(L_inf=1.7, Z=1.5, z=0.1)}
INPUTS = {name: (np.geomspace(0.3, 100, 8 - i),) for i, name in enumerate(TRUTH)}


def noisy(sd):
    random = np.random.default_rng(0)
    return {
        name: LADDER.loss(p, *INPUTS[name]) * np.exp(random.normal(0, sd, len(INPUTS[name][0])))
        for name, p in TRUTH.items()
    }


def shared(name, losses):
    (found,) = sharing([{group: fit(LADDER, INPUTS[group], loss) for group, loss in losses.items()}], name)
    return found


@pytest.mark.parametrize("name", ["L_inf", "z"])
def test_no_other_value_fits_all_groups_better(name):
    losses = noisy(1e-3)
    found = shared(name, losses)
    best = sum(one.objective for one in found.values())
    value = found["a"].params[name]
    for other in value * np.array([0.3, 0.9, 0.99, 0.999, 1.001, 1.01, 1.05, 1.15]):
        held = laws.hold(LADDER, **{name: float(other)})
        assert sum(fit(held, INPUTS[group], losses[group]).objective for group in TRUTH) >= best * (1 - 1e-6)
    alone = sum(fit(LADDER, INPUTS[group], losses[group]).objective for group in TRUTH)
    assert best >= alone * (1 - 1e-9)


def test_each_group_is_at_its_own_optimum_with_what_is_shared():
    losses = noisy(1e-3)
    for name, one in shared("z", losses).items():
        held = fit(one.law, INPUTS[name], losses[name])  # at this z each group is at its own optimum
        assert one.objective == pytest.approx(held.objective, rel=1e-6) and one.free == 2
        assert one.loss == pytest.approx(losses[name], rel=1e-12)
        assert one.predict(*INPUTS[name]) == pytest.approx(losses[name] * np.exp(one.residuals), rel=1e-9)


def test_the_objective_of_a_law_from_elsewhere_is_that_of_a_fit():
    *inputs, loss = joint_arrays(iso_depth_grid(0.005))
    own = fit_joint(*inputs, loss)
    assert objective_at(laws.JOINT, own.params, inputs, loss) == pytest.approx(own.objective, rel=1e-12)
    assert objective_at(laws.JOINT, own.params | {"phi": own.params["phi"] + 0.05}, inputs, loss) > own.objective

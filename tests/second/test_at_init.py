"""The second opinion reads off the records what the notebook computes, by other code."""

import itertools

import numpy as np
import pandas as pd
import pytest

from lib.papers.residual import designs
from lib.papers.residual.parameters import ResidualScalingInit
from tests.cells import run
from tests.given import of_profile
from tests.second import at_init as again


def measured():
    """(parameters, the claims of the notebook, what the second opinion reads) of real first steps at a tiny size."""
    small = dict(width=16, head_dim=8, mlp_width=16, context=8, loops=[1, 2, 4, 8], least=4, steps=2, cosine_loops=3)
    p = ResidualScalingInit(**of_profile("smoke", "residual_scaling_init") | small | {"seeds": [1, 2], "lr": 0.01})
    cases = {
        (model, rule, N, p.width, seed): designs.steps_from_init(make(p, rule, N, 1), p.lr, 1, seed, p.steps)
        for model, make in designs.MAKERS.items()
        for rule in designs.RULES
        for N in p.loops
        for seed in p.seeds
    }
    looks = {
        (model, seed): designs.Start(model=make(p, "none", p.cosine_loops, 1), block=1, seed=seed)
        for model, make in designs.MAKERS.items()
        for seed in p.seeds
    }
    # beside them stand a rate of the ladder and a block of several layers, which are of other claims
    others = [designs.steps_from_init(designs.model(p, "1/N", 8, 1), 0.02, 1, 1, p.steps)]
    others += [designs.steps_from_init(designs.model(p, "1/N", 8, 2), p.lr, 2, 1, 1)]
    asked = [(again.STEPS, designs.first_steps, [*cases.values(), *others])]
    asked += [(again.INCREMENTS, designs.initial_increments, [*looks.values()])]
    records = {
        name: [{"case": case.model_dump(mode="json"), "measured": function(case)} for case in some]
        for name, function, some in asked
    }
    own = [record["measured"] for record in records[again.STEPS]]
    states, changes = designs.tidy(cases, ["model", "rule", "N", "d", "seed"], own[: len(cases)])
    cosines = {
        label: np.array(record["measured"]["cosines"])
        for label, record in zip(looks, records[again.INCREMENTS], strict=True)
    }
    relu = designs.relu_models(p.width, p.loops, p.lr, p.seeds).assign(d=p.width)
    # of other claims, and made up: a ladder of rates, and blocks of several layers
    rungs = states[["rule", "seed", "step", "norm"]].drop_duplicates(["rule", "seed", "step"]).assign(lr=p.lr)
    kinds = itertools.product(("1/N", "1/(N sqrt(L))"), p.deep_loops, p.deep, p.seeds)
    blocks = pd.DataFrame(kinds, columns=["rule", "N", "L", "seed"]).assign(square=1.0, branches=1.0, change=1.0)
    of = dict(p=p, states=states, changes=changes, cosines=cosines, relu=relu, rungs=rungs, blocks=blocks)
    cells = ("predicted = ", "exponents = ", "moved = ", "by_layers = ", "pairs = ")
    return p, run("residual_scaling_init", *cells, **of).said.claims, again.numbers(records, p.model_dump())


@pytest.mark.usefixtures("style")
def test_the_numbers_at_the_init_are_the_notebooks():
    p, first, second = measured()
    # a pair of increments counts once there and twice here, which moves a quantile of so few
    loose = {"002-looped-increments-parallel": 0.1}
    for id, table in second.items():
        assert table.index.tolist() == p.seeds
        own = first[id] if isinstance(first[id], dict) else {"": first[id]}
        np.testing.assert_allclose(table.to_numpy(), pd.DataFrame(own).to_numpy(), rtol=1e-9, atol=loose.get(id, 1e-9))

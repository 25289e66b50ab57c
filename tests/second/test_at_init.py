"""The second opinion reads off the records what the notebook computes, by other code."""

import numpy as np

from lib.papers.residual import at_init, designs
from lib.papers.residual.parameters import ResidualScalingInit
from lib.workbook.parameters import of_profile
from tests.second import at_init as again


def measured():
    """(parameters, what the notebook reads, what the second opinion reads) of real first steps at a tiny size."""
    small = dict(width=16, head_dim=8, mlp_width=16, context=8, loops=[1, 2, 4, 8], least=4, steps=2, cosine_loops=3)
    p = ResidualScalingInit(**of_profile("smoke", "residual_scaling_init") | small | {"seeds": [1, 2], "lr": 0.01})
    makers = {"looped": designs.model, "stack": designs.stack}
    cases = {
        (model, rule, N, 1, seed): designs.steps_from_init(make(p, rule, N, 1), p.lr, 1, seed, p.steps)
        for model, make in makers.items()
        for rule in at_init.RULES
        for N in p.loops
        for seed in p.seeds
    }
    looks = {
        (model, seed): at_init.Start(model=make(p, "none", p.cosine_loops, 1), block=1, seed=seed)
        for model, make in makers.items()
        for seed in p.seeds
    }
    # beside them stand a rate of the ladder and a block of several layers, which are of other claims
    others = [designs.steps_from_init(designs.model(p, "1/N", 8, 1), 0.02, 1, 1, p.steps)]
    others += [designs.steps_from_init(designs.model(p, "1/N", 8, 2), p.lr, 2, 1, 1)]
    asked = [(again.STEPS, at_init.first_steps, [*cases.values(), *others])]
    asked += [(again.INCREMENTS, at_init.initial_increments, [*looks.values()])]
    records = {
        name: [{"case": case.model_dump(mode="json"), "measured": function(case)} for case in some]
        for name, function, some in asked
    }
    own = [record["measured"] for record in records[again.STEPS]]
    labels = [dict(zip(["model", "rule", "N", "L", "seed"], label, strict=True)) for label in cases]
    states, changes = at_init.tidy(labels, own[: len(cases)])
    cosines = {
        label: np.array(record["measured"]["cosines"])
        for label, record in zip(looks, records[again.INCREMENTS], strict=True)
    }
    relu = at_init.relu_models(p.width, p.loops, p.lr, p.seeds)
    notebook = at_init.statistics(states, changes, relu, cosines, p.least)
    return p, notebook, again.numbers(records, p.model_dump())


def test_the_numbers_at_the_init_are_the_notebooks():
    p, of, second = measured()
    few, many = of["few loops"]["1/N"], of["changes"]["looped", "1/N", 1]
    apart = of["squares"]["looped"] - of["squares"]["stack"]
    first = {
        "002-unscaled-grows-quadratically": of["squares"]["looped", "none"],
        "002-sqrt-does-not-suffice": of["squares"]["looped", "1/sqrt(N)"],
        "002-linear-keeps-the-norm": of["squares"]["looped", "1/N"],
        "002-stack-grows-linearly": of["squares"]["stack", "none"],
        "002-sqrt-suffices-for-stacks": of["squares"]["stack", "1/sqrt(N)"],
        "002-sharing-is-the-cause": apart[["none", "1/sqrt(N)"]],
        "002-stack-increments-orthogonal": 0.15 - of["cosines"]["absolute", "stack"],
        "002-looped-increments-parallel": of["cosines"]["5 %", "looped"],
        "002-unscaled-change-grows-linearly": of["changes"]["looped", "none", 1],
        "002-sqrt-change-grows": of["changes"]["looped", "1/sqrt(N)", 1],
        "002-linear-change-is-bounded": many,
        "002-linear-change-saturates": few.to_frame().assign(less=few - many),
        "002-changes-persist": of["changes"]["looped"]["1/N"],
        "002-sqrt-changes-persist": of["changes"]["looped"]["1/sqrt(N)"],
        "002-unscaled-changes-persist": of["changes"]["looped"]["none"],
    }
    assert first.keys() == second.keys()
    # a pair of increments counts once there and twice here, which moves a quantile of so few
    loose = {"002-looped-increments-parallel": 0.1}
    for id, numbers in first.items():
        assert second[id].index.tolist() == p.seeds
        table = numbers.to_frame() if numbers.ndim == 1 else numbers
        np.testing.assert_allclose(second[id].to_numpy(), table.to_numpy(), rtol=1e-9, atol=loose.get(id, 1e-9))

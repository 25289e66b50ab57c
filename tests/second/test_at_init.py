"""The second opinion reads off the records what the notebook computes, by other code."""

import numpy as np


def test_the_numbers_at_the_init_are_the_notebooks(measured):
    p, of, second = measured
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

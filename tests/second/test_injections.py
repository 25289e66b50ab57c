"""The second opinion on the ablation reads differences off the runs of the judged seeds, and none of the others."""

import math

import numpy as np


def test_differences_are_those_of_the_losses(ablation):
    losses, second = ablation
    np.testing.assert_allclose(second["000-additive-trails-linear"][""], losses["additive"] - losses["linear"])
    behind = second["000-passthrough-is-worst"]
    for name in ("linear", "additive"):
        np.testing.assert_allclose(behind[name], losses["passthrough"] - losses[name])
    assert second["000-additive-gap-in-nats"].equals(second["000-additive-trails-linear"])
    assert behind.index.tolist() == [1, 2] and losses["passthrough"][1] == math.log(256)  # which diverged

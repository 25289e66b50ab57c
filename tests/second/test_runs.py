"""A run's loss is what it ended with, or that of knowing nothing where it diverged."""

import math

import pytest

from lib.second.runs import loss_of


def test_a_diverged_run_knows_nothing():
    config = {"model": {"vocab_size": 64}}
    assert loss_of({"config": config, "status": "finished", "summary": {"val_loss": 1.5}}) == 1.5
    assert loss_of({"config": config, "status": "diverged", "summary": {}}) == pytest.approx(math.log(64))

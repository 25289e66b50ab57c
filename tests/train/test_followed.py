"""What is followed of a run has a number in each row that is logged, or none where it was not measured."""

import math

import pytest

from lib.train import followed
from lib.train.loop import train
from tests.runs import native_run

pytestmark = pytest.mark.precision


def test_every_metric_is_followed(store):
    result = train(native_run(train={"eval_every": 2, "trace_every": 3}), store)
    expected = {"step", "loss", "state_norm", "residual", "state_rms", "grad_norm", "rho", "a_norm", "b_norm"}
    expected |= {"c_norm", "val_loss", "val_perplexity", "val_bpb", "tokens_per_s"}
    traced = {name for name in result.metrics if name.startswith("trace ")}
    assert expected | traced == set(result.metrics) and {"trace e", "trace loop 24"} <= traced
    assert {len(column) for column in result.metrics.values()} == {6}
    assert [v == v for v in result.metrics["trace loop 1"]] == [False, False, True] * 2
    assert result.metrics["step"] == [1, 2, 3, 4, 5, 6]
    seconds = [result.summary["tokens"] / 6 / rate for rate in result.metrics["tokens_per_s"]]
    assert sum(seconds) == pytest.approx(result.summary["seconds"])
    assert [v == v for v in result.metrics["val_loss"]] == [False, True] * 3
    assert all(0 < rho < 1 for rho in result.metrics["rho"])  # the default injection is LTI
    assert all(math.isfinite(v) for name in ("state_norm", "residual", "grad_norm") for v in result.metrics[name])
    assert {"attention", "text", "commit", "torch", "device", "recipe"} <= set(result.provenance)


def test_a_validation_is_logged_whatever_else_is(store, monkeypatch):
    monkeypatch.setattr(followed, "LOGGED", 2)  # every fifth step of ten
    result = train(native_run(train={"steps": 10, "eval_every": 3}), store)
    assert result.metrics["step"] == [3, 5, 6, 9, 10]
    assert [v == v for v in result.metrics["val_loss"]] == [True, False, True, True, True]
    assert [v == v for v in result.metrics["rho"]] == [True] * 5

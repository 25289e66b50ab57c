import copy
import math

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from lib.config import ModelConfig
from lib.errors import InputError
from lib.model import Draw, HeadLoss, LoopedLM, load_strictly, load_weights, token_losses

KINDS = {
    "parcae": dict(injection="lti", state_init="like-init", prelude_norm=True, readout=True),
    "base": dict(injection="concat", state_init="like-init"),
    "residual": dict(injection="concat", state_init="like-init", block="sandwich", loop_norm="final", mlp="swiglu"),
    "iso-depth": dict(injection="concat-identity", state_init="prelude", loop_norm="own", embed_norm=True, tied=False),
    "additive": dict(injection="add", state_init="zero", rope="half-split"),
    "passthrough": dict(injection="none", state_init="prelude", prelude=0, coda=0, recur=2),
    "values": dict(injection="lti", state_init="unit", value_embeddings=True, mlp="half-relu2", init="scaled-zero"),
    "normal": dict(injection="lti", state_init="normal", norm_gain=False),
}


def config(kind="parcae", **changes) -> ModelConfig:
    sizes = dict(vocab_size=61, width=32, heads=2, mlp_width=48, context=24, mean_loops=4, backprop_loops=2)
    return ModelConfig(**{**sizes, **KINDS[kind], **changes})


def randomized(cfg: ModelConfig) -> LoopedLM:
    """A model whose every parameter is random, so that no zero or identity of the init hides a fault."""
    model = LoopedLM(cfg)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def tokens(rows=4, length=16, vocab=61):
    return torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("kind", KINDS)
def test_per_sequence_depth_equals_each_sequence_alone(kind):
    model, x, loops = randomized(config(kind)).eval(), tokens(), torch.tensor([3, 1, 6, 2])
    together = model(x, loops)
    for row, n in enumerate(loops.tolist()):
        torch.testing.assert_close(together[row : row + 1], model(x[row : row + 1], n), rtol=1e-4, atol=1e-5)
    assert together.dtype == torch.float32 and together.shape == (4, 16, 61)


@pytest.mark.parametrize("kind", KINDS)
def test_per_sequence_gradients_equal_each_sequence_alone(kind):
    cfg = config(kind)
    model, x, loops = randomized(cfg).train(), tokens(), torch.tensor([3, 1, 6, 2])

    def gradients(parts):
        model.zero_grad()
        for rows in parts:
            loss, _ = model.loss(x[rows], x[rows].roll(-1, 1), loops[rows], Draw(0, 0, range(rows[0], rows[-1] + 1)))
            (loss * len(rows)).backward()
        return [p.grad.clone() for p in model.parameters()]

    for a, b in zip(gradients([[0, 1, 2, 3]]), gradients([[0], [1], [2], [3]]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loops", [1, 2, 5])
def test_truncated_gradients_equal_autograd_through_a_detach(kind, loops):
    cfg = config(kind)
    model, x = randomized(cfg).train(), tokens()
    draw = Draw(0, 0, range(4))
    model.loss(x, x.roll(-1, 1), loops, draw)[0].backward()
    ours = [p.grad.clone() for p in model.parameters()]

    model.zero_grad()
    embedded = model.embed(x)
    if model.embed_norm is not None:
        embedded = model.embed_norm(embedded)
    e = model._stack(model.prelude, 0, embedded, x)
    if model.prelude_norm is not None:
        e = model.prelude_norm(e)
    h = model._initial_state(e, draw)
    for t in range(loops):
        if 0 < t == loops - cfg.max_backprop_loops:  # where all loops backpropagate, so does h_0
            h = h.detach()
        h = model._step(h, model.injection.prepare(e), x)
    out = h if model.readout is None else F.linear(h, model.readout.weight)
    out = model.final_norm(model._stack(model.coda, cfg.prelude + cfg.recur, out, x))
    logits = F.linear(out, model.head_weight)
    F.cross_entropy(logits.flatten(0, 1), x.roll(-1, 1).flatten()).backward()
    for a, p in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-3, atol=1e-6)


def test_loops_unrolled_into_layers_give_the_same_logits():
    model = randomized(config("passthrough")).eval()
    unrolled = LoopedLM(model.cfg.replace(recur=0, prelude=6, mean_loops=1, depth="fixed"))
    weights = {k: v for k, v in model.state_dict().items() if not k.startswith("recur")}
    for layer in range(6):
        source = {k: v for k, v in model.state_dict().items() if k.startswith(f"recur.{layer % 2}.")}
        weights |= {k.replace(f"recur.{layer % 2}.", f"prelude.{layer}."): v for k, v in source.items()}
    load_strictly(unrolled, weights)
    torch.testing.assert_close(model(tokens(), 3), unrolled.eval()(tokens()), rtol=1e-4, atol=1e-5)


def test_eval_runs_mean_loops_and_train_follows_the_rule():
    cfg = config(depth="poisson")
    model, x = randomized(cfg).eval(), tokens()
    torch.testing.assert_close(model(x), model(x, cfg.mean_loops))
    assert torch.equal(model(x), model(x))
    model.train()
    draws = [model(x, draw=Draw(0, step, range(4))) for step in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert not torch.equal(model(x), model(x))


def test_causality():
    model, x = randomized(config("values")).eval(), tokens()
    changed = x.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % 61
    torch.testing.assert_close(model(x)[:, :10], model(changed)[:, :10])
    # a prefix sees the same initial state, so that generation can grow a sequence
    torch.testing.assert_close(model(x[:, :10]), model(x)[:, :10], rtol=1e-4, atol=1e-5)


def test_the_initial_state_is_what_its_name_says():
    e = torch.randn(256, 16, 32)
    draw = Draw(0, 0, range(256))
    states = {
        kind: LoopedLM(config(state_init=kind))._initial_state(e, draw) for kind in ("like-init", "normal", "unit")
    }
    sigma = math.sqrt(2 / (5 * 32))
    like = states["like-init"]
    assert like.abs().max() <= 3 * sigma + 1e-6
    assert like.std().item() == pytest.approx(sigma * 0.9867, rel=0.01)  # a normal cut at three sigma
    assert states["normal"].std().item() == pytest.approx(1, rel=0.01)
    torch.testing.assert_close(states["unit"].std(-1), torch.ones(256, 16))
    assert torch.equal(LoopedLM(config("iso-depth"))._initial_state(e, draw), e)
    assert not LoopedLM(config("additive"))._initial_state(e, draw).any()
    again = LoopedLM(config(state_init="normal"))._initial_state(e[:3], Draw(0, 0, range(5, 8)))
    assert torch.equal(again, states["normal"][5:8])


def test_loss_at_init_is_about_the_entropy_of_the_vocabulary():
    # 001's 140M starts at 10.6255 where ln V is 10.3972, at any loop count
    model = LoopedLM(config("values", state_init="like-init", prelude_norm=True, readout=True)).eval()
    losses = [token_losses(model, tokens(), tokens().roll(-1, 1), n).mean().item() for n in (1, 4, 8)]
    assert max(losses) - min(losses) < 0.2
    assert losses[0] == pytest.approx(math.log(61), abs=0.4)


def test_scaled_zero_is_orthogonal_with_zero_branch_outputs():
    model = LoopedLM(config("values", readout=True))
    std = math.sqrt(2 / (5 * 32))
    for name, weight in model.named_parameters():
        if name.endswith(("attn.out.weight", "mlp.down.weight")):
            assert not weight.any()
        elif name.endswith(("attn.q.weight", "mlp.up.weight", "embed.weight")) and "value" not in name:
            gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
            torch.testing.assert_close(gram, torch.eye(len(gram)) * std**2 * max(weight.shape), atol=1e-4, rtol=1e-4)
    singular = torch.linalg.svdvals(model.readout.weight)
    torch.testing.assert_close(singular, torch.full_like(singular, 0.6325), atol=1e-3, rtol=1e-3)


def test_scaled_divides_branch_outputs_by_the_effective_depth():
    cfg = config("base", width=128, mlp_width=512, mean_loops=4)
    model, std = LoopedLM(cfg), math.sqrt(2 / (5 * 128))
    assert model.recur[0].attn.q.weight.std().item() == pytest.approx(std, rel=0.03)
    assert model.recur[0].mlp.down.weight.std().item() == pytest.approx(std / math.sqrt(2 * 6), rel=0.03)
    assert model.injection.weight.std().item() == pytest.approx(std, rel=0.03)


def test_init_depends_on_the_seed_alone():
    a, b, c = LoopedLM(config(), seed=3), LoopedLM(config(), seed=3), LoopedLM(config(), seed=4)
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    assert not torch.equal(a.embed.weight, c.embed.weight)


def test_chunked_head_equals_cross_entropy(monkeypatch):
    monkeypatch.setattr("lib.model.HEAD_CHUNK", 10)
    x = torch.randn(33, 16, dtype=torch.float64, requires_grad=True)
    w = torch.randn(50, 16, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(50, (33,))
    ours = HeadLoss.apply(x, w, targets)
    expected = F.cross_entropy(x @ w.T, targets)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-6, atol=1e-6)
    grads = torch.autograd.grad(3 * ours, (x, w))
    for ours_, theirs in zip(grads, torch.autograd.grad(3 * expected, (x, w)), strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-5, atol=1e-6)


def test_token_losses_are_those_of_the_logits():
    model, x = randomized(config()).eval(), tokens()
    expected = F.cross_entropy(model(x, 3).flatten(0, 1), x.flatten(), reduction="none").view_as(x)
    torch.testing.assert_close(token_losses(model, x, x, 3), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["parcae", "residual", "values"])
def test_precisions_agree_within_bf16(kind):
    model, x = LoopedLM(config(kind)).eval(), tokens()
    reference = token_losses(model, x, x.roll(-1, 1)).mean()
    for precision in ("bf16", "bf16-mixed"):
        again = copy.deepcopy(model).set_precision(precision)
        torch.testing.assert_close(token_losses(again, x, x.roll(-1, 1)).mean(), reference, rtol=0.01, atol=0.01)


def test_a_compiled_block_computes_the_same_at_every_depth_without_compiling_again():
    model, x = randomized(config()).train(), tokens()
    draw = Draw(0, 0, range(4))
    expected = {n: model.loss(x, x, n, draw)[0].item() for n in (1, 3, 5)}
    model.compile_blocks()
    torch._dynamo.reset()
    counter = torch._dynamo.utils.counters
    for n, loss in expected.items():
        assert model.loss(x, x, n, draw)[0].item() == pytest.approx(loss, rel=1e-4)
        if n == 1:
            model.loss(x, x, 3, draw)  # with and without gradient are two graphs
            seen = counter["stats"]["unique_graphs"]
    assert counter["stats"]["unique_graphs"] == seen


# ---- weights


def test_weights_survive_saving(tmp_path):
    model = randomized(config("iso-depth")).eval()
    model.save(tmp_path / "model.safetensors")
    again = load_weights(tmp_path)
    assert again.cfg == model.cfg and not again.training
    assert torch.equal(again(tokens()), model(tokens()))


def test_loading_is_strict_and_says_which_names_differ(tmp_path):
    model = LoopedLM(config())
    weights = model.state_dict()
    del weights["embed.weight"]
    weights["extra"] = torch.zeros(1)
    weights["readout.weight"] = torch.zeros(3, 3)
    with pytest.raises(InputError) as error:
        load_strictly(model, weights)
    message = str(error.value)
    assert "embed.weight is missing" in message and "extra is unknown" in message
    assert "readout.weight has shape (3, 3) instead of (32, 32)" in message


def test_unreadable_weights_are_one_line(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00\x00")
    with pytest.raises(InputError, match="cannot be read as safetensors"):
        load_weights(tmp_path)
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="carries no config"):
        load_weights(tmp_path)


def test_bad_calls_are_one_line():
    model = LoopedLM(config()).eval()
    with pytest.raises(InputError, match="context: a sequence of 30"):
        model(tokens(length=30))
    with pytest.raises(InputError, match="loops: 0 is too few"):
        model(tokens(), 0)
    plain = LoopedLM(config("passthrough", prelude=2, recur=0, mean_loops=1)).eval()
    with pytest.raises(InputError, match="loops: 2 loops over no layer"):
        plain(tokens(), 2)

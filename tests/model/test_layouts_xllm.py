"""xLLM's checkpoints, LoopedLM-P2 among them, give the logits of their equations, or are refused in one line."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F

from lib.flops import count
from lib.model.layouts import XLLM as LAYOUT
from lib.model.looped import Draw, load_weights
from tests import equations as eq
from tests.checkpoints import XLLM, saved, xllm, xllm_about, xllm_shapes
from tests.lines import one_line
from tests.models import D, V

config = functools.partial(LAYOUT.config, tensors={})

S = 24


def by_its_equations(w, model, tokens, loops, h):
    """Logits of the published code, with its own tensor names; of a looped Transformer h is not used."""
    w = {name: t.float() for name, t in w.items()}
    D, eps, prelude, coda = model["head_dim"], model["rmsnorm_eps"], 1, 1

    def norm(x, name):
        return eq.rms(x, 1 + w[f"{name}.weight"], eps)

    def layer(x, i):
        at = f"layers.{i}.attention"
        q, k, v = (F.linear(norm(x, f"{at}.norm"), w[f"{at}.w{part}.weight"]).unflatten(-1, (-1, D)) for part in "qkv")
        q, k = (eq.rope(part, model["rope_base"], interleaved=True) for part in (q, k))
        x = x + F.linear(eq.attention(q, k, v), w[f"{at}.wo.weight"])
        mlp = (w[f"layers.{i}.nffn.{part}.weight"] for part in ("fc1", "fc3", "fc2"))
        return x + eq.swiglu(norm(x, f"layers.{i}.nffn.norm"), *mlp)

    def inject(h, e):
        if model["huginn_input_injection"] == "none":
            return h
        if model["huginn_input_injection"] == "linear":
            adapter = (w[f"input_injection.adapter.{part}"] for part in ("weight", "bias"))
            return F.linear(torch.cat((h, e), -1), *adapter)
        dt = F.softplus(w["input_injection.dt_bias"])
        kept = torch.exp(-dt * w["input_injection.A_log"].exp()) * h
        added = dt * F.linear(e, w["input_injection.input_adapter.weight"])
        if model["huginn_prelude_orthogonal"]:
            along = (kept * added).sum(-1, keepdim=True) / (added.square().sum(-1, keepdim=True) + 1e-6)
            kept = kept - along * added
        return kept + added

    def head(x):
        return F.linear(norm(x, "output.final_norm"), w["output.output.weight"])

    x = w["embed.weight"][tokens]
    if model["arch"] == "transformer":
        start, end = model["loop_start_layer"], model["loop_end_layers"]
        for i in [*range(start), *list(range(start, end)) * loops, *range(end, model["num_layers"])]:
            x = layer(x, i)
        return head(x)
    for i in range(prelude):
        x = layer(x, i)
    e = norm(x, "huginn_prelude_norm_module") if model["huginn_prelude_norm"] == "rms" else x
    h = {"normal": h, "zero": torch.zeros_like(e), "input": e}[model["huginn_state_init"]]
    for _ in range(loops):
        h = inject(h, e)
        for i in range(prelude, model["num_layers"] - coda):
            h = layer(h, i)
        if model["huginn_recurrent_exit_norm"] == "parameterless_rms":
            h = eq.rms(h, 1, eps)
    for i in range(model["num_layers"] - coda, model["num_layers"]):
        h = layer(h, i)
    return head(h)


def compare(folder, about, tensors, loops):
    """Ours and theirs, from the same state; the model that was loaded."""
    model = load_weights(saved(folder, about, tensors)).train()
    x = torch.randint(V, (3, S), generator=torch.Generator().manual_seed(1))
    draw = Draw(0, 0, range(3))
    with torch.no_grad():
        h = model.initial_state(torch.zeros(3, S, D), draw)
        theirs = by_its_equations(tensors, about["model"], x, loops, h)
        torch.testing.assert_close(model(x, loops, draw), theirs, rtol=1e-4, atol=1e-4)
    return model


@pytest.mark.parametrize("loops", [1, 2, 5])
@pytest.mark.parametrize("recipe", [recipe for recipe in XLLM if recipe != "d4"])
def test_its_logits_are_those_of_its_equations(tmp_path, recipe, loops):
    cfg = compare(tmp_path, *xllm(recipe), loops).cfg
    injection = {"linear": "concat", "orthoinj": "orthogonal"}.get(recipe, "lti")
    assert (cfg.injection, cfg.mean_loops, cfg.state_init, cfg.kv_heads) == (injection, 5, "narrow", 2)
    sampled = ("fixed", 5) if recipe == "diagonal" else ("lognormal-poisson", 10)
    assert (cfg.depth, cfg.max_backprop_loops) == sampled


def test_so_are_those_with_other_groups_of_heads_and_states_that_start_without_a_draw(tmp_path):
    """LoopedLM-P1's."""
    for heads in (4, 1):
        compare(tmp_path, *xllm("parcae", num_heads=4, num_kv_heads=heads), 2)
    for state in ("zero", "input"):
        compare(tmp_path, *xllm("diagonal", huginn_state_init=state, huginn_depth_control=False), 3)


def test_its_dense_baseline_is_a_plain_transformer_whose_layers_may_loop(tmp_path):
    """LoopedLM-P1's dense model without injection."""
    cfg = compare(tmp_path, *xllm("d4"), 1).cfg
    assert (cfg.prelude, cfg.recur, cfg.coda, cfg.injection) == (4, 0, 0, "none")
    for loops in (1, 3):
        cfg = compare(tmp_path, *xllm("d4", loop_times=4), loops).cfg
        assert (cfg.prelude, cfg.recur, cfg.coda, cfg.mean_loops, cfg.injection) == (1, 2, 1, 4, "none")


def test_its_random_state_has_the_size_of_its_training(tmp_path):
    model = load_weights(saved(tmp_path, *xllm("diagonal")))
    h = model.initial_state(torch.zeros(1, 4096, D), None)
    assert h.std().item() == pytest.approx(D**-0.5, rel=5e-3)
    assert torch.equal(h, model.initial_state(torch.zeros(1, 4096, D), None))


@pytest.mark.parametrize("width", [1536, 3072, 6144])
@pytest.mark.parametrize("recipe", XLLM)
def test_the_published_models_have_their_published_tensors(recipe, width):
    """42 of a diagonal injection and 39 of none. A norm without gain is one of ours with a gain."""
    heads = width // 64
    sizes = dict(num_heads=heads, num_kv_heads=heads // 4, ffn_hidden_dim=width // 1536 * 4352, vocab_size=64256)
    about = xllm_about(recipe, width, chunk_size=1024, **sizes)
    shapes = xllm_shapes(about)
    assert len(shapes) == {"linear": 41, "parcae": 43, "d4": 39}.get(recipe, 42)
    assert count(config(about)).n_params == sum(map(math.prod, shapes.values())) + width * (recipe == "linear")


def test_a_field_that_is_left_out_has_their_default():
    about = xllm_about("diagonal")
    for name in ("qknorm", "norm_affine", "rmsnorm_eps", "huginn_prelude_norm", "head_dim", "v_head_dim"):
        about["model"][name] = None
    assert config(about) == config(xllm_about("diagonal"))
    del about["model"]["swiglu"]  # theirs is False, which is not here
    with one_line("false has no counterpart here", starts="swiglu: "):
        config(about)

"""Others' checkpoints give the logits of their published equations, their published sizes, or a line that refuses."""

import json
import math

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from lib.base.errors import InputError
from lib.decode.exits import GATE, measure_exits
from lib.decode.generation import Exit, score
from lib.flops import count
from lib.model.layouts import HUGINN, LLAMA, OURO
from lib.model.layouts import XLLM as OF_XLLM
from lib.model.looped import Draw, load_weights
from tests import checkpoints
from tests import equations as eq
from tests.checkpoints import (
    HUGINN_0125,
    OURO_1_4B,
    XLLM,
    huginn,
    llama_about,
    ouro,
    ouro_about,
    saved,
    xllm,
    xllm_about,
)
from tests.lines import one_line
from tests.models import CONTEXT, HEADS, D, V, llama, official_parcae


def read_as(layout, about):
    return layout.config(about, {})


# ---- Huginn ----------------------------------------------------------------------------------------------------------


def huginn_by_its_equations(w, about, tokens, loops, h):
    """Logits of the published code, with its own tensor names, from the initial state h."""
    d, eps = about["n_embd"], about["norm_eps"]

    def norm(x, name):
        return eq.rms(x, w[f"{name}.weight"], eps)

    def block(x, name):
        q, k, v = F.linear(norm(x, f"{name}.norm_1"), w[f"{name}.attn.Wqkv.weight"]).split(d, -1)
        q, k, v = (part.unflatten(-1, (about["n_heads"], -1)) for part in (q, k, v))
        q, k = q + w[f"{name}.attn.qk_bias"][0], k + w[f"{name}.attn.qk_bias"][1]
        q, k = (eq.rope(part, about["rope_base"], interleaved=True) for part in (q, k))
        x = norm(x + F.linear(eq.attention(q, k, v), w[f"{name}.attn.proj.weight"]), f"{name}.norm_2")
        gate, up = w[f"{name}.mlp.fc.weight"].chunk(2)
        y = eq.swiglu(norm(x, f"{name}.norm_3"), gate, up, w[f"{name}.mlp.proj.weight"])
        return norm(x + y, f"{name}.norm_4")

    e = math.sqrt(d) * w["transformer.wte.weight"][tokens]
    for i in range(about["n_layers_in_prelude"]):
        e = block(e, f"transformer.prelude.{i}")
    for _ in range(loops):
        h = F.linear(torch.cat((h, e), -1), w["transformer.adapter.weight"])
        for i in range(about["n_layers_in_recurrent_block"]):
            h = block(h, f"transformer.core_block.{i}")
    x = norm(h, "transformer.ln_f")
    for i in range(about["n_layers_in_coda"]):
        x = block(x, f"transformer.coda.{i}")
    return F.linear(norm(x, "transformer.ln_f"), w["lm_head.weight"])


@pytest.mark.parametrize("loops", [1, 2, 5])
@pytest.mark.parametrize("stacks", [(2, 3, 1), (1, 1, 2)])
def test_huginns_logits_are_those_of_its_equations(tmp_path, loops, stacks):
    about, tensors = huginn(stacks=stacks)
    model = load_weights(saved(tmp_path, about, tensors)).train()
    x = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(1))
    draw = Draw(0, 0, range(3))
    h = model.initial_state(torch.zeros(3, CONTEXT, D), draw)
    with torch.no_grad():
        theirs = huginn_by_its_equations(tensors, about, x, loops, h)
        torch.testing.assert_close(model(x, loops, draw), theirs, rtol=1e-4, atol=1e-4)


def test_the_published_huginn_has_its_published_size():
    """Of what is stored, the table counts once and rotary angles do not."""
    shapes = checkpoints.huginn_shapes(HUGINN_0125)
    stored = sum(math.prod(shape) for name, shape in shapes.items() if name != "freqs_cis")
    cfg = read_as(HUGINN, HUGINN_0125)
    assert count(cfg).n_params == stored == 3_564_976_800
    assert (cfg.mean_loops, cfg.max_backprop_loops, cfg.depth, cfg.depth_per) == (32, 8, "lognormal-poisson", "batch")
    assert cfg.context == 4096


def test_a_tied_head_does_not_differ_from_the_table(tmp_path):
    about, tensors = huginn()
    tensors["lm_head.weight"] += 1
    with one_line("lm_head.weight: it is not transformer.wte.weight", "restore either"):
        load_weights(saved(tmp_path, about, tensors))
    untied = load_weights(saved(tmp_path, about | {"tie_embeddings": False}, tensors))
    assert torch.equal(untied.head_weight, tensors["lm_head.weight"]) and not untied.cfg.tied


def test_huginn_may_have_no_bias_on_queries_and_keys(tmp_path):
    about, tensors = huginn()
    without = {name: tensor for name, tensor in tensors.items() if not name.endswith("qk_bias")}
    plain = load_weights(saved(tmp_path, about | {"qk_bias": False}, without))
    for name in tensors.keys() - without.keys():
        tensors[name] = torch.zeros_like(tensors[name])
    x = torch.randint(V, (2, 8), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(plain(x, 2), load_weights(saved(tmp_path, about, tensors))(x, 2))


# ---- Parcae ----------------------------------------------------------------------------------------------------------


def parcae_by_its_equations(w: dict, tokens: torch.Tensor, loops: int, h: torch.Tensor, backprop: int, stacks):
    """Logits of 001's model, straight from facts of its paper and code, with its own tensor names."""

    def norm(x, name):
        return eq.rms(x, w[f"{name}.weight"], 1e-5)

    def qk(x):
        return eq.rms(eq.rope(x, 50_000.0, interleaved=True), 1, 0)

    def block(x, name, unique):
        y = norm(x, f"{name}.norm_1")
        q, k, v = (F.linear(y, w[f"{name}.attn.c_{n}.weight"]).unflatten(-1, (HEADS, -1)) for n in "qkv")
        if f"value_embeds.{unique}.weight" in w:
            gate = 2 * torch.sigmoid(F.linear(y[..., :32], w[f"{name}.attn.ve_gate.weight"]))
            v = v + gate[..., None] * w[f"value_embeds.{unique}.weight"][tokens].unflatten(-1, (HEADS, -1))
        x = x + F.linear(eq.attention(qk(q), qk(k), v), w[f"{name}.attn.c_proj.weight"])
        y = 0.5 * F.linear(norm(x, f"{name}.norm_2"), w[f"{name}.mlp.fc.weight"]).relu().square()
        return x + F.linear(y, w[f"{name}.mlp.proj.weight"])

    e = w["transformer.wte.weight"][tokens]
    for i in range(stacks[0]):
        e = block(e, f"transformer.prelude.{i}", i)
    e = norm(e, "transformer.ln_prelude")
    dt = F.softplus(w["transformer.adapter.dt_bias"])
    decay = torch.exp(-dt * w["transformer.adapter.A_log"].exp())
    for t in range(loops):
        if t == max(loops - backprop, 0) > 0:
            h = h.detach()
        h = decay * h + dt * (e @ w["transformer.adapter.B"].T)
        for i in range(stacks[1]):
            h = block(h, f"transformer.core_block.{i}", stacks[0] + i)
    x = F.linear(h, w["transformer.C.weight"])
    for i in range(stacks[2]):
        x = block(x, f"transformer.coda.{i}", stacks[0] + stacks[1] + i)
    return F.linear(norm(x, "transformer.ln_f"), w["transformer.wte.weight"])


@pytest.mark.parametrize("loops", [1, 2, 4])
@pytest.mark.parametrize("stacks", [(2, 3, 1), (1, 1, 1), (1, 2, 1)])
def test_official_parcae_checkpoints_give_their_logits_and_truncated_gradients(tmp_path, loops, stacks):
    tensors = official_parcae(stacks)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"mean_recurrence": 4, "mean_backprop_depth": 2}))
    model = load_weights(tmp_path).train()
    x = torch.randint(V, (3, 16), generator=torch.Generator().manual_seed(1))
    w = {name: t.clone().requires_grad_() for name, t in tensors.items() if name != "freqs_cis"}
    draw = Draw(0, 0, range(3))
    h_0 = model.initial_state(torch.zeros(3, 16, D), draw)
    theirs = parcae_by_its_equations(w, x, loops, h_0, backprop=2, stacks=stacks)
    ours = model(x, loops, draw)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    upstream = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(2)) / theirs.numel()
    ours.backward(upstream)
    theirs.backward(upstream)
    # the names are told apart by their values: the n-th tensor in the file is the one loaded from it
    ours_by_value = {p.detach().sum().item(): p.grad for p in model.parameters()}
    assert len(ours_by_value) == len(w)
    for tensor in w.values():
        grad = ours_by_value[tensor.detach().sum().item()]
        torch.testing.assert_close(grad, tensor.grad, rtol=1e-3, atol=1e-6)


def test_without_a_config_a_parcae_checkpoint_has_the_papers_loops(tmp_path):
    safetensors.torch.save_file(official_parcae(), tmp_path / "given.safetensors")
    cfg = load_weights(tmp_path / "given.safetensors").cfg
    assert (cfg.mean_loops, cfg.max_backprop_loops, cfg.rope_base, cfg.mlp) == (8, 4, 50_000, "half-relu2")
    assert cfg.rope == "interleaved" and cfg.tied and cfg.prelude_norm and cfg.readout and cfg.value_embeddings


@pytest.mark.parametrize("gated", [True, False])
def test_heads_and_context_come_from_rotary_angles_of_any_shape(tmp_path, gated):
    tensors = official_parcae()
    if not gated:
        tensors = {name: t for name, t in tensors.items() if "ve_gate" not in name and "value_embeds" not in name}
    angles = torch.zeros(CONTEXT, D // HEADS // 2, 2)
    complex_ones = torch.view_as_complex(angles)
    for freqs in (angles, angles[None, :, None].bfloat16(), complex_ones, complex_ones[None, :, None]):
        safetensors.torch.save_file(tensors | {"freqs_cis": freqs.contiguous()}, tmp_path / "model.safetensors")
        cfg = load_weights(tmp_path).cfg
        assert (cfg.heads, cfg.context, cfg.value_embeddings) == (HEADS, CONTEXT, gated)


def test_what_a_parcae_config_says_is_read_or_refused(tmp_path):
    safetensors.torch.save_file(official_parcae(), tmp_path / "model.safetensors")
    about = {"rope_settings": {"rope_base": 10_000}, "logit_softcap": 30.0, "state_init": "embed"}
    about |= {"recurrent_iteration_method": "per-batch", "num_attention_heads": 4, "norm_eps": 1e-6}
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"attn\.ve_gate\.weight has shape \(2, 32\) instead of \(4, 32\)"):
        load_weights(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(about | {"num_attention_heads": 2}))
    cfg = load_weights(tmp_path).cfg
    assert (cfg.rope_base, cfg.softcap, cfg.state_init, cfg.depth_per) == (10_000, 30.0, "prelude", "batch")
    for field, value in (("injection_type", "linear"), ("mlp_class_name", "GatedMLP"), ("clip_qkv", 1.0)):
        (tmp_path / "config.json").write_text(json.dumps({field: value}))
        with one_line("has no counterpart here, load one with", starts=f"{field}: "):
            load_weights(tmp_path)


def test_a_parcae_checkpoint_with_value_tables_elsewhere_is_refused(tmp_path):
    # the released code drops them in silence when the parities of layer indices disagree
    tensors = official_parcae()
    tensors["value_embeds.0.weight"] = tensors.pop("value_embeds.1.weight")
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"value_embeds\.1\.weight is missing; value_embeds\.0\.weight is unknown"):
        load_weights(tmp_path)


# ---- Llama -----------------------------------------------------------------------------------------------------------


CHANGES = [{}, {"tie_word_embeddings": True}, {"rope_theta": 5e5, "rms_norm_eps": 1e-5}]


@pytest.mark.parametrize("changes", [*CHANGES, *({"num_key_value_heads": n} for n in (1, 2))])
def test_llamas_logits_are_ours(tmp_path, changes):
    theirs = llama(tmp_path, **changes)
    ours = load_weights(tmp_path)
    assert ours.cfg.tied == changes.get("tie_word_embeddings", False) and ours.cfg.rope == "half-split"
    assert ours.cfg.key_heads == changes.get("num_key_value_heads", 4)
    x = torch.randint(V, (2, CONTEXT), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x).logits, rtol=1e-4, atol=1e-4)


def test_llamas_base_of_rope_is_where_either_transformers_puts_it():
    stated = {"partial_rotary_factor": 1.0, "attention_bias": False, "rope_scaling": {"rope_type": "default"}}
    assert read_as(LLAMA, llama_about() | stated) == read_as(LLAMA, llama_about())  # what is here may be stated
    about = llama_about() | {"rope_theta": None}
    assert read_as(LLAMA, about).rope_base == 10_000  # as it was before it could be stated
    assert read_as(LLAMA, about | {"rope_theta": 5e5}).rope_base == 5e5
    assert read_as(LLAMA, about | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}).rope_base == 5e5
    with one_line("is no size", "restore", starts="rope_theta: "):
        read_as(LLAMA, about | {"rope_theta": "many"})
    with one_line("is no JSON object", "restore", starts="rope_parameters: "):
        read_as(LLAMA, about | {"rope_parameters": "default"})


# ---- Ouro ------------------------------------------------------------------------------------------------------------


def ouro_by_its_equations(w, about, tokens, loops):
    """(logits, the gate's lambda) after each loop, of the published code, with its own tensor names."""
    D, eps = about["head_dim"], about["rms_norm_eps"]

    def norm(x, name):
        return eq.rms(x, w[f"{name}.weight"], eps)

    def layer(x, name):
        y = norm(x, f"{name}.input_layernorm")
        q, k, v = (F.linear(y, w[f"{name}.self_attn.{part}_proj.weight"]).unflatten(-1, (-1, D)) for part in "qkv")
        q, k = (eq.rope(part, about["rope_theta"], interleaved=False) for part in (q, k))
        y = F.linear(eq.attention(q, k, v), w[f"{name}.self_attn.o_proj.weight"])
        x = x + norm(y, f"{name}.input_layernorm_2")
        mlp = (w[f"{name}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        y = eq.swiglu(norm(x, f"{name}.post_attention_layernorm"), *mlp)
        return x + norm(y, f"{name}.post_attention_layernorm_2")

    h, found = w["model.embed_tokens.weight"][tokens], []
    for _ in range(loops):
        for i in range(about["num_hidden_layers"]):
            h = layer(h, f"model.layers.{i}")
        h = norm(h, "model.norm")
        gate = F.linear(h, w["model.early_exit_gate.weight"], w["model.early_exit_gate.bias"])
        found.append((F.linear(h, w["lm_head.weight"]), torch.sigmoid(gate[..., 0])))
    return found


def exits(chances, q):
    """The loop that each token leaves after: the first whose sum of p reaches q. chances: lambda of every loop."""
    stays, p = torch.ones_like(chances[0]), []
    for chance in chances[:-1]:
        p.append(chance * stays)
        stays = stays * (1 - chance)
    reached = torch.stack([*p, stays]).cumsum(0) >= q  # the last loop takes what is left
    reached[-1] = True
    return reached.int().argmax(0) + 1


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    about, tensors = ouro()
    model = load_weights(saved(tmp_path_factory.mktemp("ouro"), about, tensors))
    x = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(1))
    return model, x, ouro_by_its_equations(tensors, about, x, 5)


def test_ouros_logits_are_those_of_its_equations(given):
    model, x, theirs = given
    assert (model.cfg.mean_loops, model.cfg.key_heads, model.cfg.heads) == (4, 2, 4)
    with torch.no_grad():
        for loops, (logits, _) in enumerate(theirs, start=1):
            torch.testing.assert_close(model(x, loops), logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(x), theirs[3][0], rtol=1e-4, atol=1e-4)  # trained at four


@pytest.mark.parametrize("q", [0.2, 0.5, 0.9])
def test_ouros_exit_step_is_the_gates_at_one_minus_q(given, q):
    model, x, theirs = given
    expected = exits([chance for _, chance in theirs[:4]], q)
    stays = torch.from_numpy(measure_exits(model, x, x).scores[GATE])
    stays[-1] = 0  # nobody stays beyond the last loop
    found = (stays < 1 - q).int().argmax(0) + 1
    assert torch.equal(found, expected.flatten()) and len({*found.tolist()}) > 1
    # first tokens, which see no keys but their own, leave there in decoding as well
    decoded = score(model, x[:, :1], x[:, 1:2], Exit(1 - q, GATE))
    assert decoded.loops[:, 0].tolist() == expected[:, 0].tolist()


def test_the_published_ouro_has_its_published_size():
    """Ouro-1.4B by the shapes of its 269 tensors; heads are not grouped."""
    shapes = checkpoints.ouro_shapes(OURO_1_4B)
    assert len(shapes) == 269
    assert count(read_as(OURO, OURO_1_4B)).n_params == sum(map(math.prod, shapes.values()))
    assert count(read_as(OURO, OURO_1_4B)).n_params == pytest.approx(1.4e9, rel=0.05)


def test_a_window_that_is_not_used_is_no_window():
    about = ouro_about() | {"sliding_window": 4096, "use_sliding_window": False}
    assert read_as(OURO, about) == read_as(OURO, ouro_about())
    with one_line("has no counterpart here", starts="sliding_window: "):
        read_as(OURO, {name: value for name, value in about.items() if name != "use_sliding_window"})


# ---- xLLM's ----------------------------------------------------------------------------------------------------------


S = 24


def xllm_by_its_equations(w, model, tokens, loops, h):
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
        theirs = xllm_by_its_equations(tensors, about["model"], x, loops, h)
        torch.testing.assert_close(model(x, loops, draw), theirs, rtol=1e-4, atol=1e-4)
    return model


@pytest.mark.parametrize("loops", [1, 2, 5])
@pytest.mark.parametrize("recipe", [recipe for recipe in XLLM if recipe != "d4"])
def test_xllms_logits_are_those_of_its_equations(tmp_path, recipe, loops):
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


def test_xllms_dense_baseline_is_a_plain_transformer_whose_layers_may_loop(tmp_path):
    """LoopedLM-P1's dense model without injection."""
    cfg = compare(tmp_path, *xllm("d4"), 1).cfg
    assert (cfg.prelude, cfg.recur, cfg.coda, cfg.injection) == (4, 0, 0, "none")
    for loops in (1, 3):
        cfg = compare(tmp_path, *xllm("d4", loop_times=4), loops).cfg
        assert (cfg.prelude, cfg.recur, cfg.coda, cfg.mean_loops, cfg.injection) == (1, 2, 1, 4, "none")


def test_xllms_random_state_has_the_size_of_its_training(tmp_path):
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
    shapes = checkpoints.xllm_shapes(about)
    assert len(shapes) == {"linear": 41, "parcae": 43, "d4": 39}.get(recipe, 42)
    gain = width if recipe == "linear" else 0
    assert count(read_as(OF_XLLM, about)).n_params == sum(map(math.prod, shapes.values())) + gain


def test_a_field_that_is_left_out_has_their_default():
    about = xllm_about("diagonal")
    for name in ("qknorm", "norm_affine", "rmsnorm_eps", "huginn_prelude_norm", "head_dim", "v_head_dim"):
        about["model"][name] = None
    assert read_as(OF_XLLM, about) == read_as(OF_XLLM, xllm_about("diagonal"))
    del about["model"]["swiglu"]  # theirs is False, which is not here
    with one_line("false has no counterpart here", starts="swiglu: "):
        read_as(OF_XLLM, about)

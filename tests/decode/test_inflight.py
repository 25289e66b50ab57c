"""Decoding in flight follows its rule written out token by token, and loops that are saved are not computed."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.decode import inflight
from lib.decode.generation import generate, score
from lib.decode.inflight import Exit
from lib.model.layers import linear
from tests.models import LOOPED, built, middling, prompts_of, tokens


@torch.no_grad()
def one_by_one(model, sequence, threshold, kept):
    """The rule for what is owed, written out token by token for a model of looped layers alone: a token in loop t reads
    of an earlier one the last loop u <= T - 1 with u = t (mod kept), and where that one left before u, its last."""
    T = model.cfg.mean_loops
    entries = []  # of each token: loop -> layer -> (k, v)
    logits, taken = [], []
    for position, token in enumerate(sequence):
        h, own = model.embed.weight[token][None, None], []
        for t in range(T):
            own.append([])
            for layer, block in enumerate(model.recur):
                angles = model.angles[position : position + 1]
                q, k, v = block.attn.project(block.attn_norm(h), block.attn.fused(), angles)
                own[t].append((k, v))
                last = max(u for u in range(T) if u % kept == t % kept)
                seen = [past[min(last, len(past) - 1)][layer] for past in entries] + [(k, v)]
                keys, values = (torch.cat(parts, 1).transpose(1, 2) for parts in zip(*seen, strict=True))
                out = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values).transpose(1, 2)
                h = h + block.a * linear(out.flatten(-2), block.attn.out.weight)
                h = h + block.a * block.mlp(block.mlp_norm(h))
            z = model.logits(model.final_norm(h))[0, 0]
            if torch.distributions.Categorical(logits=z).entropy() < threshold:
                break
        entries.append(own)
        logits.append(z)
        taken.append(t + 1)
    return torch.stack(logits), taken


@pytest.mark.parametrize("kept", [1, 2, 6])
@pytest.mark.parametrize("leaves", [False, True])
def test_what_a_token_owes_is_its_last_entry(kept, leaves):
    model = built("passthrough")
    threshold = middling(model) if leaves else 0.0
    prompt = prompts_of(1)[0]
    answer = generate(model, [prompt], 14, Exit(threshold, kept_loops=kept))[0]
    logits, taken = one_by_one(model, [*prompt, *answer.tokens[:-1]], threshold, kept)
    assert answer.tokens == logits.argmax(-1).tolist()
    assert answer.loops == taken and (len({*taken}) > 1) == leaves


def test_a_prompt_is_read_as_if_token_by_token():
    """In a model without a coda: who is still inside sees of who has left what decoding would see."""
    model, x = built("passthrough"), tokens(2, 13)
    threshold = middling(model)
    found = score(model, x[:, :-1], x[:, 1:], Exit(threshold))
    for row, loss, loops in zip(x, found.loss, found.loops, strict=True):
        logits, taken = one_by_one(model, row[:-1].tolist(), threshold, model.cfg.mean_loops)
        assert loops.tolist() == taken
        np.testing.assert_allclose(loss, F.cross_entropy(logits, row[1:], reduction="none"), rtol=1e-4)


@pytest.mark.parametrize("kept", [None, 1])
def test_loops_that_are_saved_are_not_computed(kept):
    model, prompts = built("parcae"), prompts_of(3, 9, 1, 5)
    rule, uses = Exit(middling(model), kept_loops=kept), []
    for block in model.recur:
        block.register_forward_hook(lambda _, given, __: uses.append(given[0].shape[:2].numel()))
    answers = generate(model, prompts, 9, rule)
    inside = sum(sum(answer.prompt_loops) + sum(answer.loops[1:]) for answer in answers)
    assert sum(uses) == inside * len(model.recur)
    assert inside < sum(len(prompt) + 8 for prompt in prompts) * model.cfg.mean_loops


@pytest.mark.parametrize("kind", LOOPED)
def test_attention_in_pieces_is_attention(kind, monkeypatch):
    model, prompts = built(kind), prompts_of(3, 9, 5)
    rule = Exit(middling(model))
    whole = generate(model, prompts, 6, rule)
    monkeypatch.setattr(inflight, "PIECE", 2)
    assert generate(model, prompts, 6, rule) == whole

"""Who leaves early follows the rule in any batch, and lends later tokens what the rule says."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.decode import decoder
from lib.decode.exits import CRITERIA, leave, measure_exits
from lib.decode.generation import Exit, generate, score
from lib.model.layers import linear
from tests.models import LOOPED, built, middling, prompts_of, tokens

WITH_CODA = ("iso-depth", "parcae", "hyper-connections", "lanes of outputs")


@pytest.mark.parametrize(
    ("kind", "criterion"),
    [*((kind, "entropy") for kind in LOOPED), *((kind, other) for kind in WITH_CODA for other in CRITERIA)],
)
def test_who_leaves_does_not_depend_on_the_batch(kind, criterion):
    """Rows are at different tokens and loops of theirs, and share every computation. In a coda a prompt's token that
    leaves sees those before it that stay, and nothing of whoever had its place."""
    model, prompts = built(kind), prompts_of(3, 9, 1, 9, 5)
    rule = Exit(middling(model, criterion), criterion)
    alone = [generate(model, [prompt], 4, rule)[0] for prompt in prompts]
    assert generate(model, prompts, 4, rule, batch=1) == generate(model, prompts, 4, rule) == alone
    assert len({loops for answer in alone for loops in (*answer.loops, *answer.prompt_loops)}) > 1


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["passthrough", "parcae", "hyper-connections"])
def test_a_first_token_leaves_where_the_measured_scores_say(kind, criterion):
    model, x = built(kind), tokens(12, 2)  # nobody before it owes it anything
    threshold = middling(model, criterion)
    exits = measure_exits(model, x[:, :1], x[:, 1:])
    at = leave(exits.scores[criterion], threshold)
    found = score(model, x[:, :1], x[:, 1:], Exit(threshold, criterion))
    assert (found.loops[:, 0] == at + 1).all() and len({*at}) > 1
    np.testing.assert_allclose(found.loss[:, 0], exits.loss[at, np.arange(12)], rtol=1e-4)


# ---- the rule, written out


@torch.no_grad()
def one_by_one(model, sequence, threshold, kept=None):
    """The rule for what is owed, written out token by token for a model of looped layers alone: a token in loop t reads
    of an earlier one its loop t, and where that one left before, its last. Where fewer loops are kept, loop t is the
    last one of those that share its place."""
    T = model.cfg.mean_loops
    kept = kept or T
    entries = []  # of each token: place of a loop -> layer -> (k, v)
    logits, taken = [], []
    for position, token in enumerate(sequence):
        h, own = model.embed.weight[token][None, None], {}
        for t in range(T):
            own[t % kept] = []
            for layer, block in enumerate(model.recur):
                angles = model.angles[position : position + 1]
                q, k, v = block.attn.project(block.attn_norm(h), block.attn.fused(), angles)
                own[t % kept].append((k, v))
                seen = [past[t % kept][layer] for past in entries] + [(k, v)]
                keys, values = (torch.cat(parts, 1).transpose(1, 2) for parts in zip(*seen, strict=True))
                out = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values).transpose(1, 2)
                h = h + block.a * linear(out.flatten(-2), block.attn.out.weight)
                h = h + block.a * block.mlp(block.mlp_norm(h))
            z = model.logits(model.final_norm(h))[0, 0]
            if torch.distributions.Categorical(logits=z).entropy() < threshold:
                break
        entries.append(own | {later % kept: own[t % kept] for later in range(t + 1, T)})
        logits.append(z)
        taken.append(t + 1)
    return torch.stack(logits), taken


@pytest.mark.parametrize("kept", [None, 1, 2, 4])
@pytest.mark.parametrize("leaves", [False, True])
def test_what_a_token_owes_is_its_last_entry(leaves, kept):
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
        logits, taken = one_by_one(model, row[:-1].tolist(), threshold)
        assert loops.tolist() == taken
        np.testing.assert_allclose(loss, F.cross_entropy(logits, row[1:], reduction="none"), rtol=1e-4)


def test_loops_that_are_saved_are_not_computed():
    model, prompts = built("parcae"), prompts_of(3, 9, 1, 5)
    rule, uses = Exit(middling(model)), []
    for block in model.recur:
        block.register_forward_hook(lambda _, given, __: uses.append(given[0].shape[:2].numel()))
    answers = generate(model, prompts, 9, rule)
    inside = sum(sum(answer.prompt_loops) + sum(answer.loops[1:]) for answer in answers)
    assert sum(uses) == inside * len(model.recur)
    assert inside < sum(len(prompt) + 8 for prompt in prompts) * model.cfg.mean_loops


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("kind", LOOPED)
def test_attention_in_pieces_is_attention(kind, monkeypatch):
    model, prompts = built(kind), prompts_of(3, 9, 5)
    rule = Exit(middling(model))
    whole = generate(model, prompts, 6, rule)
    monkeypatch.setattr(decoder, "PIECE", 2)
    assert generate(model, prompts, 6, rule) == whole

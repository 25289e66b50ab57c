"""The model that is written out in one file is the library's, and its training learns."""

import math

import pytest
import torch
import torch.nn.functional as F

from lib.minimal import Parcae, train
from lib.model import LoopedLM
from lib.model.looped import Draw
from lib.presets import preset
from tests.workbooks import ROOT

B, S, LOOPS = 3, 24, torch.tensor([1, 5, 9])


@pytest.fixture
def pair(monkeypatch):
    """The same weights twice; what starts at zero does not, or half of the model would be silent."""
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)  # the kernels serve one thread alone
    shape = dict(vocab_size=50, width=32, heads=2, mlp_width=128, prelude=2, recur=2, coda=2, context=S)
    looped = LoopedLM(preset("parcae-140m", **shape, value_embeddings=False)).train()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in looped.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=random)
    minimal = Parcae(vocab_size=50, width=32, heads=2, layers=2)
    minimal.load_state_dict(looped.state_dict())
    return looped, minimal


def batch(step):
    tokens = torch.randint(50, (B, S + 1), generator=torch.Generator().manual_seed(step))
    return tokens[:, :-1], tokens[:, 1:]


def test_three_steps_of_training_are_the_librarys(pair):
    looped, minimal = pair
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in pair]
    for step in range(3):
        (tokens, targets), draw = batch(step), Draw(0, step, range(B))
        loops, state = LOOPS.roll(step), looped.initial_state(torch.empty(B, S, 32), draw)
        ours = F.cross_entropy(minimal(tokens, loops, state).flatten(0, 1), targets.flatten())
        theirs, _ = looped.loss(tokens, targets, loops, draw)
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
        for optimizer, loss in zip(optimizers, (theirs, ours), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    others = minimal.state_dict()
    for name, weight in looped.state_dict().items():
        assert others[name] == pytest.approx(weight, abs=1e-5), name


def test_it_learns_text():
    text = torch.tensor([*(ROOT / "LICENSE").read_bytes()])
    shares = torch.bincount(text) / len(text)
    of_letters = -torch.special.xlogy(shares, shares).sum()  # what is left to who knows how often each comes
    torch.manual_seed(0)
    losses = train(Parcae(width=32, heads=2, mean_loops=4), text.unfold(0, 65, 8), steps=60)
    assert losses[0] == pytest.approx(math.log(256), abs=0.05)
    assert sum(losses[-5:]) / 5 < of_letters - 0.5

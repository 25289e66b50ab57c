"""Which experts a token takes in one loop and in another (004, Sec. "Why do MoE Layers Improve Looped Scaling Laws?").

Choices are as ``probes.expert_choices`` gives them: (unique layer, loop) -> the k experts [B, S, k] of each token.
"""

import itertools
from typing import Any

import torch
from torch import Tensor

from lib.model.looped import LoopedLM
from lib.model.probes import expert_choices

KINDS = ("none", "partial", "identical")


def looped_choices(model: LoopedLM, tokens: Tensor) -> dict[tuple[int, int], Tensor]:
    """The choices of the layers that loop, on tokens [B, S] in eval mode."""
    inside = range(model.cfg.prelude, model.cfg.prelude + model.cfg.recur)
    return {use: chosen for use, chosen in expert_choices(model, tokens).items() if use[0] in inside}


def overlap(first: Tensor, second: Tensor) -> dict[str, float]:
    """Shares of tokens [..., k] that keep none of their k experts, some, or all (004, Fig. "Expert assignment
    overlap")."""
    kept = (first[..., :, None] == second[..., None, :]).sum((-1, -2)).flatten()
    return _shares(torch.bincount(kept, minlength=first.shape[-1] + 1).double())


def by_chance(first: Tensor, second: Tensor) -> dict[str, float]:
    """The same if the two loops' choices knew nothing of each other and each kept its load: every token's experts in
    one loop beside every token's in the other."""
    E = int(max(first.max(), second.max())) + 1
    (a, n), (b, m) = (_sets(chosen, E) for chosen in (first, second))
    kept, pairs = (a @ b.T).long(), torch.outer(n, m)
    return _shares(torch.bincount(kept.flatten(), pairs.flatten(), minlength=first.shape[-1] + 1))


def divergence(choices: dict[tuple[int, int], Tensor]) -> list[dict[str, Any]]:
    """One row a layer and pair of loops: ``layer``, ``first`` and ``second`` loop, from 1 on, the shares of
    ``overlap`` and, as "none by chance" and so on, those of ``by_chance``."""
    rows = []
    for layer in sorted({layer for layer, _ in choices}):
        loops = sorted(loop for at, loop in choices if at == layer)
        for s, t in itertools.combinations(loops, 2):
            a, b = choices[layer, s], choices[layer, t]
            chance = {f"{kind} by chance": share for kind, share in by_chance(a, b).items()}
            rows.append({"layer": layer + 1, "first": s + 1, "second": t + 1, **overlap(a, b), **chance})
    return rows


def divergence_by_pair(choices: dict[tuple[int, int], Tensor]) -> dict[str, float]:
    """ "none 1-2" and so on: ``divergence`` of each pair of loops, the mean of the layers."""
    rows = divergence(choices)
    means = {}
    for pair in dict.fromkeys((row["first"], row["second"]) for row in rows):
        of_pair = [row for row in rows if (row["first"], row["second"]) == pair]
        for name in (*KINDS, *(f"{kind} by chance" for kind in KINDS)):
            means[f"{name} {pair[0]}-{pair[1]}"] = sum(row[name] for row in of_pair) / len(of_pair)
    return means


def _sets(chosen: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """The different sets of experts that occur, as 0 and 1 [sets, E], and how many tokens have each."""
    members = torch.zeros(chosen.flatten(0, -2).shape[0], experts).scatter_(1, chosen.flatten(0, -2).cpu(), 1.0)
    sets, counts = members.unique(dim=0, return_counts=True)
    return sets, counts.double()


def _shares(counts: Tensor) -> dict[str, float]:
    counts = counts / counts.sum()
    return dict(zip(KINDS, (counts[0].item(), counts[1:-1].sum().item(), counts[-1].item()), strict=True))

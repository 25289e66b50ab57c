"""What the routers of a mixture of experts did: the losses on that, and which experts a token takes in one loop and in
another (004, Sec. "Why do MoE Layers Improve Looped Scaling Laws?").

Choices are as ``probes.looped_choices`` gives them: (unique layer, loop) -> the k experts [B, S, k] of each token.
"""

import collections
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lib.base.distributed import Ranks, of_all_tokens
from lib.config import ModelConfig

KINDS = ("none", "partial", "identical")


class Routing(NamedTuple):
    """What a router did with a batch."""

    chosen: Tensor  # [B, S, k], the experts each token took, the likeliest first; -1 in rows that rest
    share: Tensor  # f [E], of the tokens that took each expert
    probability: Tensor  # p [E], the mean over tokens
    z: Tensor  # mean squared log-sum-exp of the router's logits

    @property
    def balance(self) -> Tensor:
        """E sum_i f_i p_i."""
        return len(self.share) * (self.share * self.probability).sum()


class LayerUse(NamedTuple):
    """One use of a mixture-of-experts layer: which unique layer, and what its router did."""

    layer: int
    routing: Routing

    def of_rows(self, rows: Tensor, B: int) -> "LayerUse":
        """The same, of a batch of B rows of which only ``rows`` were there."""
        chosen = self.routing.chosen
        everybodys = chosen.new_full((B, *chosen.shape[1:]), -1)
        everybodys[rows] = chosen
        return LayerUse(self.layer, self.routing._replace(chosen=everybodys))


def numbered(layers: Sequence[int]) -> list[tuple[int, int]]:
    """(layer, which of its uses it is, from 0 on) of layers in the order in which they are used."""
    return [(layer, layers[:i].count(layer)) for i, layer in enumerate(layers)]


def router_loss(cfg: ModelConfig, uses: list[LayerUse], ranks: Ranks) -> Tensor:
    """The load-balance and z-losses, averaged over the uses of a router that carry gradient (004)."""
    live = [use for use in uses if use.routing.z.requires_grad] or uses
    routings = [use.routing for use in live]
    shares, weights = of_all_tokens(
        ranks,
        numbered([use.layer for use in live]),
        torch.stack([r.share for r in routings]),
        torch.stack([(r.chosen[..., 0] >= 0).sum() for r in routings]).float(),
    )
    balances = [r._replace(share=share).balance for r, share in zip(routings, shares, strict=True)]
    balance, z = ((weights * torch.stack(losses)).mean() for losses in (balances, [r.z for r in routings]))
    return cfg.balance_loss * balance + cfg.router_z_loss * z


# ---- which experts a token takes -------------------------------------------------------------------------------------


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
    of_layers = collections.defaultdict(list)
    for row in divergence(choices):
        for name in (*KINDS, *(f"{kind} by chance" for kind in KINDS)):
            of_layers[f"{name} {row['first']}-{row['second']}"].append(row[name])
    return {name: sum(shares) / len(shares) for name, shares in of_layers.items()}


def _sets(chosen: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """The different sets of experts that occur, as 0 and 1 [sets, E], and how many tokens have each."""
    members = torch.zeros(chosen.flatten(0, -2).shape[0], experts).scatter_(1, chosen.flatten(0, -2).cpu(), 1.0)
    sets, counts = members.unique(dim=0, return_counts=True)
    return sets, counts.double()


def _shares(counts: Tensor) -> dict[str, float]:
    counts = counts / counts.sum()
    return dict(zip(KINDS, (counts[0].item(), counts[1:-1].sum().item(), counts[-1].item()), strict=True))

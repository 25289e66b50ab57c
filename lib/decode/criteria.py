"""When a token may leave a loop: a score of what it has become, and it leaves below a threshold."""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor


@dataclasses.dataclass
class Seen:
    """Tokens at an exit: their state h [n, d], its ``move`` since the exit before, and log_p [n, V] of the prediction,
    where V is 0 if nobody asks for it; nan where there was no exit before."""

    h: Tensor
    move: Tensor
    log_p: Tensor

    @classmethod
    def nothing(cls, n: int, d: int, V: int, device: torch.device | str = "cpu") -> "Seen":
        """Of n tokens that have met no exit."""
        return cls(*(torch.full((n, size), math.nan, device=device) for size in (d, d, V)))

    def then(self, h: Tensor, log_p: Tensor) -> "Seen":
        """The same tokens at their next exit."""
        return Seen(h, h - self.h, log_p)


#: criterion -> score [n] of tokens (now, at the exit before), which leave below a threshold; nan, which is never below,
#: where there is no exit before. The first is 004's; the looped nanochat log (003) names the others.
CRITERIA: dict[str, Callable[[Seen, Seen], Tensor]] = {
    # H(p) in nats
    "entropy": lambda now, before: -(now.log_p.exp() * now.log_p).sum(-1),
    # KL(p || p') in nats
    "kl": lambda now, before: (now.log_p.exp() * (now.log_p - before.log_p)).sum(-1),
    # |h - h'|
    "l2": lambda now, before: now.move.norm(dim=-1),
    # |(h - h') - (h' - h'')|
    "acceleration": lambda now, before: (now.move - before.move).norm(dim=-1),
}


#: those that need the coda and the head at every exit
PREDICTING = ("entropy", "kl")

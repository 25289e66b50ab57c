"""When a token may leave a loop: a score of what it has become, and it leaves below a threshold."""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor


@dataclasses.dataclass
class Seen:
    """n tokens at an exit; nan stands for an exit before the first."""

    h: Tensor  # their state [n, d]
    move: Tensor  # its change since the exit before [n, d]
    log_p: Tensor  # of their prediction [n, V]; V is 0 where the criterion does not need it
    staying: Tensor  # the chance [n, 1] that an exit gate lets them reach the loop after this one

    @classmethod
    def nothing(cls, n: int, d: int, V: int, device: torch.device | str = "cpu") -> "Seen":
        """n tokens that have met no exit yet."""
        h, move, log_p = (torch.full((n, size), math.nan, device=device) for size in (d, d, V))
        return cls(h, move, log_p, torch.ones(n, 1, device=device))

    def then(self, h: Tensor, log_p: Tensor, leaving: Tensor | None = None) -> "Seen":
        """The same tokens at their next exit; ``leaving`` [n, 1] is the gate's chance there, of those who reach it."""
        return Seen(h, h - self.h, log_p, self.staying if leaving is None else self.staying * (1 - leaving))


#: criterion -> score [n] of tokens, from what they are (now, at the exit before). Tokens whose score is below the
#: threshold leave; nan, at an exit that has none before it, is below nothing. The first criterion is 004's; the looped
#: nanochat log (003) names the others.
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
#: Ouro's: the chance that the model's own exit gate lets a token reach the next loop, prod over s <= t of
#: (1 - lambda_s). Ouro leaves where the chance to have left, which is one minus this, reaches q: the threshold is 1 - q
GATE = "gate"
#: those that need the coda and the head at every exit
PREDICTING = ("entropy", "kl")


def score(criterion: str, now: Seen, before: Seen) -> Tensor:
    """The score [n] of tokens by a criterion: one of ``CRITERIA``, or that of the gate."""
    return now.staying[:, 0] if criterion == GATE else CRITERIA[criterion](now, before)

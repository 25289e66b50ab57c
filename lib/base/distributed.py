"""One run on several processes: which rows and matrices are whose, and what is summed over all of them.

torchrun starts the processes; each has a copy of the weights (DDP) and takes its share of the rows of every pass. What
is computed does not depend on how many there are, but for the order of sums.
"""

import atexit
import dataclasses
import datetime
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lib.base.errors import InputError

STATE = 16  # bytes of a parameter while it trains: weight, gradient and two moments, in fp32
WAITS = datetime.timedelta(hours=1)  # how long processes wait for the slowest, which may have a text to tokenise


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The processes that train one run together, and which of them this is. Where there is one, nothing is sent."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", dist.get_node_local_rank() if self.size > 1 else torch.cuda.current_device())

    def rows(self, start: int, stop: int) -> range:
        """This process's rows of a pass over global rows start .. stop - 1. Raises InputError where they do not divide,
        since the mean over processes would not be the mean over rows."""
        n, rest = divmod(stop - start, self.size)
        if rest:
            raise InputError(
                f"train.batch: {stop - start} rows of a pass do not divide among {self.size} processes, "
                "change train.batch, train.micro_batch or the number of processes"
            )
        return range(start + self.rank * n, start + (self.rank + 1) * n)

    def share(self, n: int) -> slice:
        """Which of n equal pieces of work are this process's."""
        most = -(-n // self.size)
        return slice(min(n, self.rank * most), min(n, (self.rank + 1) * most))

    def gather(self, own: Tensor, n: int) -> Tensor:
        """All n pieces of work [n, ...], from each process's own ``share``."""
        if self.size == 1:
            return own
        most = -(-n // self.size)
        padded = own.new_zeros(most, *own.shape[1:])
        padded[: len(own)] = own
        everybodys = own.new_empty(self.size * most, *own.shape[1:])
        dist.all_gather_single(everybodys, padded)
        return everybodys[:n]

    def mean(self, values: Tensor) -> Tensor:
        """The mean over processes."""
        return self._reduced(values, "SUM") / self.size

    def most(self, values: Tensor) -> Tensor:
        """The largest over processes."""
        return self._reduced(values, "MAX")

    def _reduced(self, values: Tensor, how: str) -> Tensor:
        if self.size == 1:
            return values
        found = values.to(self.device, copy=True)
        dist.all_reduce(found, getattr(dist.ReduceOp, how))
        return found.to(values.device)

    def first_says(self, value: int) -> int:
        """The first process's value, for all."""
        if self.size == 1:
            return value
        said = torch.tensor([int(value)], device=self.device)
        dist.broadcast(said, src=0)
        return int(said)


ALONE = Ranks()


def here() -> Ranks:
    """The processes that torchrun started, or this one alone."""
    if not dist.is_available() or not dist.is_torchelastic_launched():
        return ALONE
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(dist.get_node_local_rank())
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=WAITS)
        atexit.register(dist.destroy_process_group)
    return Ranks(dist.get_rank(), dist.get_world_size())


# ---- the loss --------------------------------------------------------------------------------------------------------


class _Loss(nn.Module):
    """A model whose call is its loss: DDP acts when the module that it wraps is called."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.model.loss(*arguments, **named)


def distribute(model: Any, ranks: Ranks) -> Any:
    """``model.loss`` of a LoopedLM on all processes: gradients of the mean over them appear in its parameters, of
    several after each pass that is not inside its ``no_sync``."""
    model.to(ranks.device)
    if ranks.size == 1:
        return model.loss
    # each step has a gradient for each parameter, however often a model loops: DDP need not look for unused ones
    return nn.parallel.DistributedDataParallel(_Loss(model), forward_sync_buffers=False)


# ---- routers ---------------------------------------------------------------------------------------------------------


def of_all_tokens(ranks: Ranks, slots: list[tuple[int, int]], shares: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """(shares, weights) of the u times that this process used a router, where load is balanced over all processes.

    slots: of each use, (unique layer, which of its uses this is); other processes may have other ones, since rows loop
    a different number of times. shares [u, E]: the share of tokens that took each expert, in this process, and in the
    result over the tokens of all. tokens [u]: how many tokens this process had there. weights [u]: the mean over a
    process's uses, weighted so, and then over processes, is the mean over all uses and tokens.
    """
    if ranks.size == 1:
        return shares, shares.new_ones(len(shares))
    layers, times = (1 + most for most in ranks.most(torch.tensor(slots).amax(0)).tolist())
    at = torch.tensor([layer * times + time for layer, time in slots], device=shares.device)
    everybodys = shares.new_zeros(layers * times, shares.shape[1] + 1)
    everybodys[at] = torch.cat((shares * tokens[:, None], tokens[:, None]), 1)
    everybodys = ranks.mean(everybodys) * ranks.size
    total = everybodys[:, -1]
    weights = ranks.size * tokens / total[at] / (total > 0).sum() * len(slots)
    return everybodys[at, :-1] / total[at, None], weights

"""The parameters of 004's notebooks."""

from typing import Annotated

from pydantic import Field

from lib.base.parameters import Positive, Training


class FourModels(Training):
    """What Base, Looped, MoE and Looped-MoE need besides their width and, where they loop, their loops."""

    seeds: list[int]
    depth: Positive
    experts: int = 8
    active_experts: int = 2
    head_dim: int = 16
    val_rows: int = 128


class Studied(FourModels):
    """A notebook about runs of one size, which several notebooks share."""

    width: int
    lr: float
    steps: Positive

    def size(self, architecture: str) -> tuple[int, int]:
        """(width, steps) of an architecture."""
        return self.width, self.steps


class Compared(Studied):
    """A notebook about runs of the four, each of which may have a size of its own: its compute-optimal one."""

    width_at: dict[str, int]
    steps_at: dict[str, Positive]
    rows: Positive

    def size(self, architecture: str) -> tuple[int, int]:
        return self.width_at.get(architecture, self.width), self.steps_at.get(architecture, self.steps)


class MupTransfer(FourModels):
    architectures: list[str]
    widths: list[Positive]
    lrs: list[float]
    loops: Positive
    steps: Positive


class MoeIsoflop(FourModels):
    architectures: list[str]
    widths: dict[float, Annotated[list[int], Field(min_length=3)]]  # three have a parabola
    head_dim: int = 4
    lr: float
    loops: Positive


class RoutingDivergence(Studied):
    loops: list[int]


class Convergence(Compared):
    architectures: list[str]
    loops: Positive


class EarlyExit(Compared):
    loops: list[Positive]
    saved: list[float]


class EarlyExitWallclock(Studied):
    """``width``, ``head_dim`` and ``steps`` are those of the narrow model."""

    loops: Positive
    wide: Positive
    wide_head_dim: int = 32
    wide_steps: Positive
    saved: list[float]
    rows: Positive

    batches: list[Positive]
    prompt: Positive
    new_tokens: Positive
    rounds: Positive


class Generate(Studied):
    run: str
    prompt: str
    new_tokens: Positive

    threshold: float
    test_loops: int
    sampler: Annotated[str, Field(pattern="^(plain|exact|parallel)$")]
    temperature: float
    top_k: int
    top_p: float
    draw: int

    loops: Positive
    lr: float = 0.001
    depth: Positive = 16

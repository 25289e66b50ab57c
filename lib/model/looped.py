"""``LoopedLM``: embed, prelude, loop, coda, head, by composition; and weights in and out.

    e = P(tokens);  h_0 by the state init;  u = A-bar h_t + B-bar e;  h_{t+1} = R(u);  logits = head(C(h_T))

P is the prelude, R the recurrent blocks, C the coda, each with the norms that the config asks for. A-bar and B-bar are
the injection's (``lib/model/injection.py``); of hyper-connections, which keep several states, it also makes and joins
these (``spread``, ``pool``).

Shapes: B batch, S sequence, d width, V vocabulary.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lib.base import seeds
from lib.base.distributed import ALONE, Ranks
from lib.base.errors import InputError
from lib.config import ModelConfig, TrainConfig
from lib.model import depth, layouts, parameterisation, weights
from lib.model import injection as injections
from lib.model.head import HeadLoss, LossesAndGradient, cross_entropies, fused, losses_and_gradient, softcap
from lib.model.layers import Attention, Block, linear, norm, rope_angles
from lib.model.routing import LayerUse, router_loss

#: (unique layer, its attention, its input [B, S, d], value embeddings) -> its branch [B, S, d]
LayerAttend = Callable[[int, Attention, Tensor, Tensor | None], Tensor]


@dataclasses.dataclass(frozen=True)
class Draw:
    """Names the randomness of one forward: which seed, which step, and which global row each row of the batch is."""

    seed: int
    step: int
    rows: range


@dataclasses.dataclass(frozen=True)
class LoopEnd:
    """The state after the last loop and the one before it, [B, S, d], and every use of a router on the way."""

    state: Tensor
    previous: Tensor
    routing: list[LayerUse] = dataclasses.field(default_factory=list)
    cross_entropy: Tensor | None = None  # the loss without the routers' own


class LoopedLM(nn.Module):
    """A looped language model of the given config.

    ``LoopedLM(cfg)(tokens[B, S], loops)`` returns fp32 logits [B, S, V]. ``loops`` is None (mean_loops in eval mode,
    sampled by the depth rule in train mode), an int, or a LongTensor [B]. In eval mode a random initial state is the
    same fixed draw for every row, so that a sequence's logits do not depend on its batch.
    """

    angles: Tensor

    def __init__(self, cfg: ModelConfig, seed: int | None = 0):
        """seed: of the init; None leaves the weights for a checkpoint to fill."""
        super().__init__()
        self.cfg = cfg
        self.precision, self.compute_dtype, self.residual_dtype = "fp32", torch.float32, torch.float32
        self.checkpoint_loops = self.rows_vary = False
        blocks = [Block(cfg, layer) for layer in range(cfg.layers)]
        self.embed = _table(cfg)
        self.value_embeds = nn.ModuleDict({str(i): _table(cfg) for i in range(cfg.layers) if cfg.has_values(i)})
        self.embed_norm = norm(cfg, cfg.embed_norm)
        self.prelude = nn.ModuleList(blocks[: cfg.prelude])
        self.prelude_norm = norm(cfg, cfg.prelude_norm)
        self.injection = injections.kind(cfg)(cfg)
        self.recur = nn.ModuleList(blocks[cfg.prelude : cfg.prelude + cfg.recur])
        self.loop_norm = norm(cfg, cfg.loop_norm == "own")
        self.exit_gate = nn.Linear(cfg.width, 1) if cfg.exit_gate else None
        self.readout = nn.Linear(cfg.width, cfg.width, bias=False) if cfg.readout else None
        self.coda = nn.ModuleList(blocks[cfg.prelude + cfg.recur :])
        self.final_norm = norm(cfg)
        self.head = None if cfg.tied else nn.Linear(cfg.width, cfg.vocab_size, bias=False)
        self.head_loss: LossesAndGradient = losses_and_gradient
        self.register_buffer("angles", rope_angles(cfg.context, cfg.head_dim, cfg.rope_base), persistent=False)
        if seed is not None:  # by the table of lib/model/parameterisation.py; a draw depends on the seed and the name
            for name, weight in self.named_parameters():
                parameterisation.init(cfg, name, weight.shape).apply(weight, seeds.torch_stream("init " + name, seed))

    @property
    def blocks(self) -> list[Block]:
        """The unique layers in their order."""
        return [*self.prelude, *self.recur, *self.coda]

    @property
    def looped_layers(self) -> range:
        """Which of them loop."""
        return range(self.cfg.prelude, self.cfg.prelude + self.cfg.recur)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """In eval mode, and afterwards in the mode that it was in."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    # ---- forward -----------------------------------------------------------------------------------------------------

    def forward(self, tokens: Tensor, loops: int | Tensor | None = None, draw: Draw | None = None) -> Tensor:
        return self.logits(self.hidden(tokens, loops, draw)[0])

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        loops: int | Tensor | None = None,
        draw: Draw | None = None,
        ranks: Ranks = ALONE,
    ) -> tuple[Tensor, LoopEnd]:
        """What is minimised, the mean cross-entropy in nats per token and the losses of the routers' uses that carry
        gradient; and the loop's end.
        ranks: the processes that share a batch, over all of which the routers' load is balanced."""
        hidden, end = self.hidden(tokens, loops, draw)
        cross_entropy = HeadLoss.apply(  # type: ignore[no-untyped-call]
            hidden.flatten(0, 1), self.head_weight, targets.flatten(), self.cfg.softcap, self.head_loss
        )
        loss = cross_entropy + router_loss(self.cfg, end.routing, ranks) if end.routing else cross_entropy
        return loss, dataclasses.replace(end, cross_entropy=cross_entropy.detach())

    def hidden(
        self, tokens: Tensor, loops: int | Tensor | None = None, draw: Draw | None = None
    ) -> tuple[Tensor, LoopEnd]:
        """The head's input [B, S, d], and the end of the loop."""
        if draw is None and self.training:
            draw = Draw(int(torch.randint(2**62, ())), 0, range(len(tokens)))
        n, k = self._split_loops(len(tokens), loops, draw)
        e, values, first = self.before(tokens)
        end = self._loop(e, values, n, k, draw if self.training else None) if self.cfg.recur else LoopEnd(e, e)
        x, last = self.after(end.state, values)
        return x, dataclasses.replace(end, routing=[*first, *end.routing, *last])

    def _split_loops(self, rows: int, loops: int | Tensor | None, draw: Draw | None) -> tuple[np.ndarray, np.ndarray]:
        """(n, k) for each row: loops without gradient, then with."""
        if loops is None and self.training and draw is not None:
            n, k = depth.DepthRule(self.cfg).sample(draw.seed, draw.step, draw.rows)
        else:
            n, k = depth.split(self.loops_of(rows, loops), self.cfg.max_backprop_loops)
        return (n, k) if torch.is_grad_enabled() else (0 * n, n + k)  # without gradient nothing is truncated

    def loops_of(self, rows: int, loops: int | Tensor | None) -> np.ndarray:
        """The loops [B] of each row, mean_loops where None. Raises InputError for loops that the model cannot make."""
        wanted = self.cfg.mean_loops if loops is None else loops
        given = np.asarray(wanted.cpu() if isinstance(wanted, Tensor) else wanted)
        if given.dtype.kind != "i" or given.shape not in ((), (rows,)):
            raise InputError(f"loops: give one int, or a LongTensor with one for each of the {rows} rows")
        total = np.broadcast_to(given, (rows,))
        if total.min() < 1:
            raise InputError(f"loops: {total.min()} is too few, run at least 1")
        if self.cfg.recur == 0 and total.max() > 1:
            raise InputError(f"loops: {total.max()} loops over no layer, this model has recur=0")
        if self.injection.per_loop and total.max() > self.cfg.mean_loops:
            raise InputError(
                f"loops: {total.max()} are more than the {self.cfg.mean_loops} that these {self.cfg.injection} have "
                "parameters for, run at most as many"
            )
        return total

    def initial_state(self, e: Tensor, draw: Draw | None, seed: int = 0, positions: Tensor | None = None) -> Tensor:
        """h_0 [B, S, d]; random ones are drawn per row, and in eval mode once for all rows, from ``seed``, for tokens
        at ``positions`` [S], which are 0, 1, 2, ... when None."""
        kind, (B, S, d) = self.cfg.state_init, e.shape
        if kind == "prelude":
            return e
        if kind == "zero":
            return torch.zeros_like(e)
        if draw is None:
            at = torch.arange(S) if positions is None else positions.cpu()
            h = self._noise(seeds.torch_stream("state", seed), int(at.max()) + 1, d)[at].to(e.device).expand(B, S, d)
        else:
            draws = [seeds.torch_stream("state", draw.seed, draw.step, row, device=e.device) for row in draw.rows]
            h = torch.stack([self._noise(generator, S, d) for generator in draws])
        if kind == "like-init":  # the size of a token embedding at init, cut at three sigma (001's code)
            h = h * (self.cfg.embed_scale * math.sqrt(2 / (5 * d)))
        if kind == "narrow":
            h = h / math.sqrt(d)
        if kind == "unit":
            h = (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)
        return h.to(e.dtype)

    def _noise(self, generator: torch.Generator, S: int, d: int) -> Tensor:
        """Standard normal [S, d], within three sigma for like-init; a longer sequence begins with the shorter one's."""
        u = torch.rand(S, d, generator=generator, device=generator.device)
        inside = math.erf(3 / math.sqrt(2)) if self.cfg.state_init == "like-init" else 1 - 1e-7
        return torch.erfinv((2 * u - 1) * inside) * math.sqrt(2)

    def _loop(self, e: Tensor, values: dict[int, Tensor], n: np.ndarray, k: np.ndarray, draw: Draw | None) -> LoopEnd:
        """Each row makes n loops without gradient and then k with, [B] each.

        First come all turns without gradient, then all with: what is computed without is a constant to the loops that
        follow. A row that has made its n waits for the others, one that has made its k rests; neither is computed. Rows
        stand with the deepest first, and n and k fall with their sum (``lib/model/depth.py``), so that those that run
        are the first of the batch: with n = 4, 2, 0 and k = 3, 3, 2 there run 2, 2, 1, 1 rows, and then 3, 3, 2."""
        h, order = self.initial_state(e, draw), None
        if len({*(n + k)}) > 1:
            deepest_first = np.argsort(-(n + k), kind="stable")
            n, k, order = n[deepest_first], k[deepest_first], torch.as_tensor(deepest_first, device=e.device)
            h, e, values = h[order], e[order], {layer: v[order] for layer, v in values.items()}
        prepared = self.injection.prepare(e)
        h = previous = self.injection.spread(h)
        routing: list[LayerUse] = []
        step: Callable[..., tuple[Tensor, list[LayerUse]]] = self.step
        if self.checkpoint_loops:  # a loop keeps nothing for its gradient, and is computed once more for it
            step = functools.partial(checkpoint, self.step, use_reentrant=False, preserve_rng_state=False)
        # in a turn rows may be at different loops; what knows its loop, hyper-connections, has no truncation
        for turn, (rows, with_gradient) in enumerate(depth.turns(n, k)):
            running = _of_the_first(rows, h, prepared, values)
            with contextlib.nullcontext() if with_gradient else torch.no_grad():
                state, used = step(*running, turn)
            previous = _in_place_of_the_first(previous, running[0].detach())
            h = _in_place_of_the_first(h, state)
            routing += used if order is None else [use.of_rows(order[:rows], len(h)) for use in used]
        h, previous = self.injection.pool(h), self.injection.pool(previous)
        if order is not None:
            as_given = torch.argsort(order)
            h, previous = h[as_given], previous[as_given]
        return LoopEnd(h, previous, routing)

    # The three parts of a pass. A decoder calls them for the tokens that it has on their way, as one row [1, n], and
    # passes ``attend(layer, ...)``, which takes the place of attention over that row.

    def before(
        self, tokens: Tensor, attend: LayerAttend | None = None
    ) -> tuple[Tensor, dict[int, Tensor], list[LayerUse]]:
        """The prelude's output e [B, S, d], and the value embeddings of layers that have them."""
        if attend is None and tokens.shape[1] > self.cfg.context:
            raise InputError(f"context: a sequence of {tokens.shape[1]} is longer than the model's {self.cfg.context}")
        x = self.embed(tokens).to(self.residual_dtype)
        if self.cfg.embed_scale != 1:
            x = self.cfg.embed_scale * x
        x = self.embed_norm(x)
        # looked up once: the loop uses its layers' value tables again and again
        values = {int(layer): table(tokens) for layer, table in self.value_embeds.items()}
        e, routing = self._stack(self.prelude, 0, x, values, attend)
        return self.prelude_norm(e), values, routing

    def step(
        self,
        h: Tensor,
        prepared: injections.Prepared,
        values: dict[int, Tensor],
        t: int | Tensor,
        attend: LayerAttend | None = None,
    ) -> tuple[Tensor, list[LayerUse]]:
        """h_{t+1} = R(A-bar h_t + B-bar e)."""
        u = self.injection.inject(h, prepared, t)
        s, uses = self._stack(self.recur, self.cfg.prelude, u, values, attend)
        closing = self.final_norm if self.cfg.loop_norm in ("final", "closing") else self.loop_norm
        return self.injection.merge(h, u, closing(s), prepared, t), uses

    def after(
        self, state: Tensor, values: dict[int, Tensor], attend: LayerAttend | None = None
    ) -> tuple[Tensor, list[LayerUse]]:
        """From the last state to the head's input [B, S, d]."""
        x = state if self.readout is None else linear(state, self.readout.weight)
        if self.cfg.coda_norm:
            x = self.final_norm(x)
        x, uses = self._stack(self.coda, self.cfg.prelude + self.cfg.recur, x, values, attend)
        closed = self.cfg.loop_norm == "closing"  # the last loop has ended in the final norm
        return x.to(self.compute_dtype) if closed else self.final_norm(x, self.compute_dtype), uses

    def _stack(
        self, blocks: nn.ModuleList, first: int, x: Tensor, values: dict[int, Tensor], attend: LayerAttend | None = None
    ) -> tuple[Tensor, list[LayerUse]]:
        """Applies blocks, the unique layers first, first + 1, ..."""
        uses: list[LayerUse] = []
        if self.rows_vary and len(x) > 1:
            for part in (x, *values.values()):
                torch._dynamo.maybe_mark_dynamic(part, 0)
        for layer, block in enumerate(blocks, start=first):
            own = None if attend is None else functools.partial(attend, layer)
            x, routing = block(x, self.angles, self.compute_dtype, values.get(layer), own)
            if routing is not None:
                uses.append(LayerUse(layer, routing))
        return x, uses

    def leaving(self, state: Tensor) -> Tensor:
        """The chance [..., 1] that a token leaves at a loop's end, of those that reach it, by the exit gate on its
        state [..., d]: lambda = sigmoid(w h + b) (Ouro)."""
        return torch.sigmoid(cast(nn.Linear, self.exit_gate)(state.float()))

    def logits(self, x: Tensor) -> Tensor:
        """fp32 logits [..., V] of the head's input [..., d]."""
        return softcap(linear(x, self.head_weight).float(), self.cfg.softcap)

    @torch.no_grad()
    def hidden_at(
        self,
        tokens: Tensor,
        depths: Sequence[int],
        state_seed: int = 0,
        attend: LayerAttend | None = None,
        positions: Tensor | None = None,
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(T, h_T [B, S, d], the head's input from there) for each of ``depths``, rising, in one pass over the loops.

        As ``hidden`` at loops=T in eval mode; ``state_seed`` draws another random initial state than its. Tokens whose
        ``positions`` [S] are not 0, 1, 2, ... come with their own attention."""
        for T, state, values in self.states_at(tokens, depths, state_seed, attend, positions):
            yield T, state, self.after(state, values, attend)[0]

    @torch.no_grad()
    def states_at(
        self,
        tokens: Tensor,
        depths: Sequence[int],
        state_seed: int = 0,
        attend: LayerAttend | None = None,
        positions: Tensor | None = None,
    ) -> Iterator[tuple[int, Tensor, dict[int, Tensor]]]:
        """(T, h_T [B, S, d], the value embeddings that ``after`` takes with it): ``hidden_at`` without the coda."""
        wanted = sorted({*depths})
        for T in wanted:
            self.loops_of(len(tokens), T)  # refuses a T that the model cannot make
        e, values, _ = self.before(tokens, attend)
        h = self.injection.spread(self.initial_state(e, None, state_seed, positions))
        prepared = self.injection.prepare(e)
        for t in range(max(wanted, default=0)):
            if self.cfg.recur:
                h, _ = self.step(h, prepared, values, t, attend)
            if t + 1 in wanted:
                yield t + 1, self.injection.pool(h), values

    # ---- weights -----------------------------------------------------------------------------------------------------

    @property
    def head_weight(self) -> Tensor:
        """V x d."""
        return self.embed.weight if self.head is None else self.head.weight

    def set_precision(self, precision: str) -> "LoopedLM":
        """Activations only; weights stay fp32. bf16-mixed keeps the residual stream and the injection in fp32."""
        self.precision = precision
        self.compute_dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self.residual_dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return self

    def compile_blocks(self) -> "LoopedLM":
        """Compile the block alone: the loop count stays outside, so that one compilation serves every depth. On a GPU
        the loss of a chunk of logits too, which lib/kernels computes on a CPU."""
        # blocks share their code, so that those with and without values, with and without gradient, count together
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
        if not torch.cuda.is_available():
            torch._inductor.config.compile_threads = 1  # a run has one core, and leaves no helpers behind
        else:
            self.head_loss = torch.compile(fused)
        for block in self.blocks:
            block.compile()
        # rows that are done leave the batch: compile for any number of rows at once (one row is a case of its own)
        self.rows_vary = self.cfg.depth != "fixed" and self.cfg.depth_per == "sequence"
        return self

    def save(self, path: Path) -> None:
        """safetensors with the config, and the precision that the model computes in, in the metadata."""
        safetensors.torch.save_file(
            self.state_dict(),
            path,
            metadata={"config": self.cfg.model_dump_json(), "format": "looped-lm", "precision": self.precision},
        )


def _table(cfg: ModelConfig) -> nn.Embedding:
    """Its values come with the init; torch would draw some first."""
    return nn.Embedding(cfg.vocab_size, cfg.width, _weight=torch.empty(cfg.vocab_size, cfg.width))


def _of_the_first(
    rows: int, h: Tensor, prepared: injections.Prepared, values: dict[int, Tensor]
) -> tuple[Tensor, injections.Prepared, dict[int, Tensor]]:
    """What ``step`` takes, of the first rows alone."""
    if rows == len(h):
        return h, prepared, values
    return (
        h[:rows],
        injections.per_token(lambda x: x[:rows], prepared),
        {layer: v[:rows] for layer, v in values.items()},
    )


def _in_place_of_the_first(x: Tensor, first: Tensor) -> Tensor:
    return first if len(first) == len(x) else torch.cat((first, x[len(first) :]))


@torch.no_grad()
def token_losses(model: LoopedLM, tokens: Tensor, targets: Tensor, loops: int | Tensor | None = None) -> Tensor:
    """Cross-entropy of every target in nats [B, S], in eval mode at a fixed number of loops."""
    return target_losses(model, model.hidden(tokens, loops)[0], targets)


@torch.no_grad()
def target_losses(model: LoopedLM, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats [B, S] of the head's inputs [B, S, d]."""
    losses = cross_entropies(hidden.flatten(0, 1), model.head_weight, targets.flatten(), model.cfg.softcap)
    return losses.view_as(targets)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def load_weights(path: Path | str) -> LoopedLM:
    """A model, in eval mode, from one of our checkpoints, or from one in the layout of Parcae (001), Huginn-0125, Ouro,
    LoopedLM-P2 or a Hugging Face Llama.

    path: a safetensors file, the folder of one, of its shards or of a pytorch_model.bin, or hf:NAME of a model on the
    hub. Ours carry their config in the file's metadata, and the precision they were trained in, in which they are asked
    again; of the others a config.json beside the file is read, and they compute in fp32. Raises InputError when the
    file cannot be read or its layout is not known, or naming the tensors that are missing, unknown or misshapen.
    """
    tensors, metadata, about = weights.read(path)
    precision: Any = "fp32"
    names: weights.Names = {}
    if metadata.get("format") == "looped-lm" and "config" in metadata:
        cfg = ModelConfig(**weights.parsed(metadata["config"], f"the config in the metadata of {path}"))
        precision = TrainConfig(precision=metadata.get("precision", precision)).precision
    else:
        cfg, tensors, names = layouts.read(path, tensors, about)
    with torch.device("meta"):  # before memory is asked for
        own = LoopedLM(cfg, seed=None).state_dict()
    tensors = weights.renamed(tensors, own, names)
    model = LoopedLM(cfg, seed=None).set_precision(precision)
    model.load_state_dict(tensors)
    return model.eval()

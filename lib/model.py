"""``LoopedLM``: embed, prelude, loop, coda, head, by composition; and weights in and out.

    e = P(tokens);  h_0 by the state init;  h_{t+1} = R(A-bar h_t + B-bar e);  logits = head(C(h_T))

Shapes: B batch, S sequence, d width, V vocabulary.
"""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from lib import depth, seeds
from lib.config import ModelConfig
from lib.errors import InputError
from lib.injection import make_injection
from lib.layers import Block, RMSNorm, linear, rope_angles

HEAD_CHUNK = 4096  # tokens whose logits exist at once


@dataclasses.dataclass(frozen=True)
class Draw:
    """Names the randomness of one forward: which seed, which step, and which global row each row of the batch is."""

    seed: int
    step: int
    rows: range


@dataclasses.dataclass(frozen=True)
class LoopEnd:
    """The state after the last loop and the one before it, [B, S, d]."""

    state: Tensor
    previous: Tensor


class LoopedLM(nn.Module):
    """A looped language model of the given config.

    ``LoopedLM(cfg)(tokens[B, S], loops)`` returns fp32 logits [B, S, V]. ``loops`` is None (mean_loops in eval mode,
    sampled by the depth rule in train mode), an int, or a LongTensor [B]. In eval mode a random initial state is the
    same fixed draw for every row, so that a sequence's logits do not depend on its batch.
    """

    def __init__(self, cfg: ModelConfig, seed: int = 0):
        super().__init__()
        self.cfg = cfg
        self.compute_dtype = self.residual_dtype = torch.float32
        layers = cfg.prelude + cfg.recur + cfg.coda
        # 001's code: value tables sit at every second unique layer, the last one included
        with_values = [cfg.value_embeddings and i % 2 == (layers - 1) % 2 for i in range(layers)]
        blocks = [Block(cfg, values) for values in with_values]
        self.embed = nn.Embedding(cfg.vocab_size, cfg.width)
        self.value_embeds = nn.ModuleDict(
            {str(i): nn.Embedding(cfg.vocab_size, cfg.width) for i in range(layers) if with_values[i]}
        )
        self.embed_norm = self._norm(cfg.embed_norm)
        self.prelude = nn.ModuleList(blocks[: cfg.prelude])
        self.prelude_norm = self._norm(cfg.prelude_norm)
        self.injection = make_injection(cfg)
        self.recur = nn.ModuleList(blocks[cfg.prelude : cfg.prelude + cfg.recur])
        self.loop_norm = self._norm(cfg.loop_norm == "own")
        self.readout = nn.Linear(cfg.width, cfg.width, bias=False) if cfg.readout else None
        self.coda = nn.ModuleList(blocks[cfg.prelude + cfg.recur :])
        self.final_norm = self._norm(True)
        self.head = None if cfg.tied else nn.Linear(cfg.width, cfg.vocab_size, bias=False)
        angles = rope_angles(cfg.context, cfg.head_dim, cfg.rope_base)
        self.register_buffer("angles", angles, persistent=False)
        self._init_weights(seed)

    def _norm(self, present: bool) -> RMSNorm | None:
        return RMSNorm(self.cfg.width, self.cfg.norm_gain, self.cfg.norm_eps) if present else None

    # ---- forward -----------------------------------------------------------------------------------------------------

    def forward(self, tokens: Tensor, loops: int | Tensor | None = None, draw: Draw | None = None) -> Tensor:
        hidden, _ = self.hidden(tokens, loops, draw)
        return linear(hidden, self.head_weight).float()

    def loss(
        self, tokens: Tensor, targets: Tensor, loops: int | Tensor | None = None, draw: Draw | None = None
    ) -> tuple[Tensor, LoopEnd]:
        """Mean cross-entropy in nats per token, and the states the probes look at."""
        hidden, end = self.hidden(tokens, loops, draw)
        return HeadLoss.apply(hidden.flatten(0, 1), self.head_weight, targets.flatten()), end

    def hidden(
        self, tokens: Tensor, loops: int | Tensor | None = None, draw: Draw | None = None
    ) -> tuple[Tensor, LoopEnd]:
        """The head's input [B, S, d], and the end of the loop."""
        if tokens.shape[1] > self.cfg.context:
            raise InputError(f"context: a sequence of {tokens.shape[1]} is longer than the model's {self.cfg.context}")
        if draw is None and self.training:
            draw = Draw(int(torch.randint(2**62, ())), 0, range(len(tokens)))
        n, k = self._loops(len(tokens), loops, draw)

        x = self.embed(tokens).to(self.residual_dtype)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        e = self._stack(self.prelude, 0, x, tokens)
        if self.prelude_norm is not None:
            e = self.prelude_norm(e)
        end = self._loop(e, tokens, n, k, draw if self.training else None)
        x = end.state
        if self.readout is not None:
            x = linear(x, self.readout.weight)
        x = self._stack(self.coda, self.cfg.prelude + self.cfg.recur, x, tokens)
        return self.final_norm(x, self.compute_dtype), end

    def _loops(self, rows: int, loops: int | Tensor | None, draw: Draw | None) -> tuple[np.ndarray, np.ndarray]:
        """(n, k) for each row: loops without gradient, then with."""
        if loops is None and self.training:
            total = depth.sample(self.cfg, draw.seed, draw.step, draw.rows)
        else:
            given = loops.cpu() if isinstance(loops, Tensor) else loops
            total = np.broadcast_to(np.asarray(self.cfg.mean_loops if given is None else given), (rows,))
        if total.min() < 1:
            raise InputError(f"loops: {total.min()} is too few, run at least 1")
        if self.cfg.recur == 0 and total.max() > 1:
            raise InputError(f"loops: {total.max()} loops over no layer, this model has recur=0")
        return depth.split(total, self.cfg.max_backprop_loops)

    def _stack(self, blocks: nn.ModuleList, first: int, x: Tensor, tokens: Tensor) -> Tensor:
        """Applies blocks, the unique layers first, first + 1, ..."""
        for i, block in enumerate(blocks, start=first):
            values = self.value_embeds[str(i)](tokens) if str(i) in self.value_embeds else None
            x = block(x, self.angles, self.compute_dtype, values)
        return x

    def _step(self, h: Tensor, prepared, tokens: Tensor) -> Tensor:
        """h_{t+1} = R(A-bar h_t + B-bar e)."""
        h = self.injection.inject(h, prepared)
        h = self._stack(self.recur, self.cfg.prelude, h, tokens)
        if self.cfg.loop_norm != "none":
            h = (self.final_norm if self.cfg.loop_norm == "final" else self.loop_norm)(h)
        return h

    def _loop(self, e: Tensor, tokens: Tensor, n: np.ndarray, k: np.ndarray, draw: Draw | None) -> LoopEnd:
        """max(n) loops without gradient, then max(k) with. A row that has done its own is frozen and not computed.

        Rows are sorted by their loops, the deepest first, so that the rows still running are always a prefix.
        """
        if self.cfg.recur == 0:
            return LoopEnd(e, e)
        order = np.argsort(-(n + k), kind="stable")
        n, k = n[order], k[order]
        sort = torch.as_tensor(order, device=e.device) if n.min() + k.min() < n.max() + k.max() else None
        h = self._initial_state(e, draw)
        if sort is not None:
            h, e, tokens = h[sort], e[sort], tokens[sort]
        prepared = self.injection.prepare(e)
        start = previous = h
        with torch.no_grad():
            for t in range(n.max()):
                h, previous = self._step_rows(int((n > t).sum()), h, previous, prepared, tokens)
        if n.max():
            # what the loops without gradient computed is a constant to those that follow; rows without any keep theirs
            constant = int((n > 0).sum())
            h = torch.cat((h[:constant].detach(), start[constant:]))
        for t in range(k.max()):
            h, previous = self._step_rows(int((k > t).sum()), h, previous, prepared, tokens)
        if sort is not None:
            undo = torch.argsort(sort)
            h, previous = h[undo], previous[undo]
        return LoopEnd(h, previous)

    def _step_rows(self, rows: int, h: Tensor, previous: Tensor, prepared, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """One loop of the first ``rows`` rows; the others keep their state."""
        if rows == len(h):
            return self._step(h, prepared, tokens), h.detach()
        stepped = self._step(h[:rows], _first(prepared, rows), tokens[:rows])
        return torch.cat((stepped, h[rows:])), torch.cat((h[:rows].detach(), previous[rows:]))

    def _initial_state(self, e: Tensor, draw: Draw | None) -> Tensor:
        """h_0 [B, S, d]; random ones are drawn per row, and in eval mode once for all rows."""
        kind, (B, S, d) = self.cfg.state_init, e.shape
        if kind == "prelude":
            return e
        if kind == "zero":
            return torch.zeros_like(e)
        if draw is None:
            h = self._noise(seeds.torch_stream("state", 0), S, d).to(e.device).expand(B, S, d)
        else:
            draws = [seeds.torch_stream("state", draw.seed, draw.step, row, device=e.device) for row in draw.rows]
            h = torch.stack([self._noise(generator, S, d) for generator in draws])
        if kind == "like-init":  # the size of a token embedding at init, cut at three sigma (001's code)
            h = h * math.sqrt(2 / (5 * d))
        if kind == "unit":
            h = (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)
        return h.to(e.dtype)

    def _noise(self, generator: torch.Generator, S: int, d: int) -> Tensor:
        """Standard normal [S, d], within three sigma for like-init; a longer sequence begins with the shorter one's."""
        u = torch.rand(S, d, generator=generator, device=generator.device)
        inside = math.erf(3 / math.sqrt(2)) if self.cfg.state_init == "like-init" else 1 - 1e-7
        return torch.erfinv((2 * u - 1) * inside) * math.sqrt(2)

    # ---- weights -----------------------------------------------------------------------------------------------------

    @property
    def head_weight(self) -> Tensor:
        """V x d."""
        return self.embed.weight if self.head is None else self.head.weight

    def set_precision(self, precision: str) -> "LoopedLM":
        """Activations only; weights stay fp32. bf16-mixed keeps the residual stream and the injection in fp32."""
        self.compute_dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self.residual_dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return self

    def compile_blocks(self) -> "LoopedLM":
        """Compile the block alone: the loop count stays outside, so that one compilation serves every depth."""
        for stack in (self.prelude, self.recur, self.coda):
            for block in stack:
                block.compile()
        return self

    @torch.no_grad()
    def _init_weights(self, seed: int) -> None:
        """scaled: N(0, 2/(5d)), the projections back into the stream divided by sqrt(2 l), l the effective layers
        (Takase et al., in 001). scaled-zero: orthogonal with entries of that size, those projections zero (001's code).
        Each tensor's draw depends on the seed and its name."""
        cfg = self.cfg
        std, zero = math.sqrt(2 / (5 * cfg.width)), cfg.init == "scaled-zero"
        layers = cfg.prelude + cfg.mean_loops * cfg.recur + cfg.coda
        for name, weight in self.named_parameters():
            generator = seeds.torch_stream("init " + name, seed)
            if weight.ndim < 2 or name == "injection.B":
                continue  # norms, A and dt, and B = I, start as they are made
            if name.startswith("value_embeds"):
                weight.normal_(generator=generator)
            elif name == "injection.weight" and cfg.injection == "concat-identity":
                weight.copy_(torch.eye(*weight.shape))
            elif name.endswith(("attn.out.weight", "mlp.down.weight")):
                weight.normal_(std=0 if zero else std / math.sqrt(2 * layers), generator=generator)
            elif zero or name == "readout.weight":
                nn.init.orthogonal_(weight, gain=std * math.sqrt(max(weight.shape)), generator=generator)
            else:
                weight.normal_(std=std, generator=generator)

    def save(self, path: Path) -> None:
        """safetensors with the config in the metadata."""
        metadata = {"config": self.cfg.model_dump_json(), "format": "looped-lm"}
        safetensors.torch.save_file(self.state_dict(), path, metadata=metadata)


def _first(prepared, rows: int):
    """The first rows of what an injection prepared: [B, S, d] tensors are cut, parameters are not."""
    if isinstance(prepared, tuple):
        return tuple(_first(part, rows) for part in prepared)
    return prepared[:rows] if prepared.ndim == 3 else prepared


class HeadLoss(torch.autograd.Function):
    """Mean cross-entropy of x W^T against targets, with the gradients computed chunk by chunk in the forward pass.

    x [N, d], W [V, d], targets [N]. No more than HEAD_CHUNK x V logits ever exist.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        w = weight.to(x.dtype)
        needs_grad = x.requires_grad or weight.requires_grad
        grad_x = torch.empty_like(x) if needs_grad else None
        grad_w = torch.zeros_like(weight) if needs_grad else None
        total = x.new_zeros((), dtype=torch.float32)
        for start in range(0, len(x), HEAD_CHUNK):
            part, target = x[start : start + HEAD_CHUNK], targets[start : start + HEAD_CHUNK, None]
            log_p = torch.log_softmax((part @ w.T).float(), dim=-1)
            total -= log_p.gather(1, target).sum()
            if needs_grad:
                # d loss / d logits = (p - onehot) / N
                g = log_p.exp_()
                g.scatter_add_(1, target, torch.full_like(target, -1, dtype=g.dtype))
                g = (g / len(x)).to(x.dtype)
                grad_x[start : start + HEAD_CHUNK] = g @ w
                grad_w += g.T @ part
        ctx.save_for_backward(grad_x, grad_w)
        return total / len(x)

    @staticmethod
    def backward(ctx, grad_output: Tensor):
        grad_x, grad_w = ctx.saved_tensors
        return grad_x * grad_output, grad_w * grad_output, None


@torch.no_grad()
def token_losses(model: LoopedLM, tokens: Tensor, targets: Tensor, loops: int | Tensor | None = None) -> Tensor:
    """Cross-entropy of every target in nats [B, S], in eval mode at a fixed number of loops."""
    hidden, _ = model.hidden(tokens, loops)
    x, w = hidden.flatten(0, 1), model.head_weight.to(hidden.dtype)
    parts = [
        -torch.log_softmax((part @ w.T).float(), dim=-1).gather(1, target[:, None])[:, 0]
        for part, target in zip(x.split(HEAD_CHUNK), targets.flatten().split(HEAD_CHUNK), strict=True)
    ]
    return torch.cat(parts).view_as(targets)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def load_weights(path: Path | str) -> LoopedLM:
    """A model from one of our checkpoints; its config is in the file's metadata.

    Raises InputError when the file cannot be read, or naming the tensors that are missing, unknown or misshapen.
    """
    path = Path(path)
    path = path / "model.safetensors" if path.is_dir() else path
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        tensors = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"path: {path} cannot be read as safetensors ({error}), give a model.safetensors") from None
    if "config" not in metadata:
        raise InputError(f"path: {path} carries no config in its metadata, it was not written by this library")
    model = LoopedLM(ModelConfig(**json.loads(metadata["config"])))
    load_strictly(model, tensors)
    return model.eval()


def load_strictly(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Every tensor of the model from tensors, of the same shape, and nothing left over."""
    own = model.state_dict()
    faults = [f"{name} is missing" for name in sorted(own.keys() - tensors.keys())]
    faults += [f"{name} is unknown" for name in sorted(tensors.keys() - own.keys())]
    faults += [
        f"{name} has shape {tuple(tensors[name].shape)} instead of {tuple(own[name].shape)}"
        for name in sorted(own.keys() & tensors.keys())
        if own[name].shape != tensors[name].shape
    ]
    if faults:
        raise InputError(f"weights: {'; '.join(faults[:8])}" + (f"; and {len(faults) - 8} more" * (len(faults) > 8)))
    model.load_state_dict(tensors)

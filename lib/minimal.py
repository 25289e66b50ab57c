"""A looped language model and its training in plain PyTorch, for those who want to read the idea alone.

The shape is Parcae's (001): a prelude reads the tokens once, a few layers are looped, a coda reads the last state.

    e = P(tokens);   h_{t+1} = R(A-bar h_t + B-bar e),  t = 0 .. T-1;   logits = W C(h_T)

Nothing here is used by the library, and nothing of the library is used here. ``lib.model.LoopedLM`` has the same
weights under the same names, computes the same, and everything else that the papers do. To try it:

    text = torch.tensor(list(open("text.txt", "rb").read()))
    losses = train(Parcae(width=64), text.unfold(0, 129, 128), steps=500)

Shapes: B batch, S sequence, d width, H heads, D = d / H, V vocabulary; T loops, of which the last k carry gradient.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, eps=1e-5)


def rotate(x: Tensor, base: float = 50_000.0) -> Tensor:
    """Rotary positions on x [B, H, S, D]: the pair (2j, 2j + 1) at position t turns by t base^(-2j/D)."""
    S, D = x.shape[-2:]
    angle = torch.outer(torch.arange(S, dtype=torch.float64), base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D))
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Attention(nn.Module):
    """Causal attention, with queries and keys normalised after their rotation."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (F.rms_norm(rotate(z), z.shape[-1:]) for z in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """Half of relu(x)^2."""

    def __init__(self, d: int):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * self.down(F.relu(self.up(x)).square())


class Block(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.attn_norm, self.attn = RMSNorm(d), Attention(d, heads)
        self.mlp_norm, self.mlp = RMSNorm(d), MLP(d)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Injection(nn.Module):
    """A-bar h + B-bar e: a linear system with A = -exp(A_log) diagonal, in steps of dt (001, Sec. "Block Design").

    A-bar = exp(dt A) lies between 0 and 1 whatever is learned, so that the state cannot grow without bound."""

    def __init__(self, d: int):
        super().__init__()
        keeps = math.sqrt(1 / 5)  # of the state, at the start
        self.A_log = nn.Parameter(torch.zeros(d))
        self.dt_bias = nn.Parameter(torch.full((d,), math.log(math.expm1(-math.log(keeps)))))
        self.B = nn.Parameter(torch.eye(d))

    def forward(self, h: Tensor, e: Tensor) -> Tensor:
        dt = F.softplus(self.dt_bias)
        return torch.exp(-dt * self.A_log.exp()) * h + dt * F.linear(e, self.B)


class Parcae(nn.Module):
    """``layers`` are those of each of the three stacks; a token makes about layers (2 + mean_loops) layer uses."""

    def __init__(self, vocab_size: int = 256, width: int = 64, heads: int = 4, layers: int = 1, mean_loops: int = 8):
        super().__init__()
        self.width, self.mean_loops, self.backprop_loops = width, mean_loops, math.ceil(mean_loops / 2)
        self.embed = nn.Embedding(vocab_size, width)
        stacks = [nn.ModuleList(Block(width, heads) for _ in range(layers)) for _ in range(3)]
        self.prelude, self.recur, self.coda = stacks
        self.prelude_norm, self.injection = RMSNorm(width), Injection(width)
        self.readout, self.final_norm = nn.Linear(width, width, bias=False), RMSNorm(width)
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and name != "injection.B":
                adds = name.endswith(("out.weight", "down.weight"))  # what a branch adds is nothing at first
                nn.init.normal_(weight, std=0.0 if adds else math.sqrt(2 / (5 * width)))

    def forward(self, tokens: Tensor, loops: Tensor, h: Tensor) -> Tensor:
        """Logits [B, S, V] of tokens [B, S], after ``loops`` [B] of each row, from the state h [B, S, d].

        Only the last backprop_loops of a row carry gradient; before these its state is a constant."""
        e = self.embed(tokens)
        for block in self.prelude:
            e = block(e)
        e = self.prelude_norm(e)
        k = loops.clamp(max=self.backprop_loops)
        with torch.no_grad():
            h = self.loop(h, e, loops - k)
        h = self.loop(h, e, k)
        x = self.readout(h)
        for block in self.coda:
            x = block(x)
        return F.linear(self.final_norm(x), self.embed.weight)

    def loop(self, h: Tensor, e: Tensor, loops: Tensor) -> Tensor:
        """A row that has made its loops rests while the others go on."""
        for t in range(int(loops.max())):
            u = self.injection(h, e)
            for block in self.recur:
                u = block(u)
            h = torch.where((t < loops)[:, None, None], u, h)
        return h

    def draw(self, B: int, S: int) -> tuple[Tensor, Tensor]:
        """Loops [B] by a Poisson distribution, at least one, and a random state [B, S, d] of the size of embeddings."""
        loops = torch.poisson(torch.full((B,), float(self.mean_loops))).long().clamp(min=1)
        std = math.sqrt(2 / (5 * self.width))
        return loops, nn.init.trunc_normal_(torch.empty(B, S, self.width), std=std, a=-3 * std, b=3 * std)


def train(model: Parcae, rows: Tensor, steps: int, batch: int = 8, lr: float = 3e-3) -> list[float]:
    """The losses, nats per token, of AdamW on random rows of tokens [N, S + 1]; the rate falls to nothing."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95))
    losses = []
    for step in range(steps):
        chosen = rows[torch.randint(len(rows), (batch,))]
        tokens, targets = chosen[:, :-1], chosen[:, 1:]
        logits = model(tokens, *model.draw(*tokens.shape))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        optimizer.step()
        losses.append(loss.item())
    return losses

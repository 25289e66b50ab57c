"""How much time ways of decoding save: they are timed with and without, in turn, on one thread."""

import itertools
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from lib.base.processes import one_thread_on_cpu
from lib.decode.exits import Exits, trade_off
from lib.decode.generation import Ahead, Exit, Sampling, generate, score
from lib.model.looped import LoopedLM

#: what is timed: it lets tokens leave, and returns the loops that each of them made
Workload = Callable[[Exit], Sequence[int]]
BISECTED = 32  # rows on which a threshold is looked for
PLACES = 4  # prompts a place in the batch, so that places are seldom empty because nobody is left


def exit_saving(model: LoopedLM, x: Tensor, saved: float) -> Exit:
    """The entropy below which tokens must leave so that the share ``saved`` of the loops is not made, by bisection on
    rows x [B, S + 1]."""
    if saved == 0:
        return Exit()
    x, low, high = x[:BISECTED], 0.0, math.log(model.cfg.vocab_size)
    for _ in range(12):
        middle = (low + high) / 2
        share = 1 - score(model, x[:, :-1], x[:, 1:], Exit(middle)).loops.mean() / model.cfg.mean_loops
        low, high = (middle, high) if share < saved else (low, middle)
    return Exit(high)


def workloads(model: LoopedLM, x: Tensor, batch: int, prompt: int, new_tokens: int) -> dict[str, Workload]:
    """What is timed on rows x [B, S + 1], ``batch`` at a time. "decoding" continues prompts of ``prompt`` tokens by
    ``new_tokens``, at temperature 1; every token that is read counts, those of the prompts too. "prefill" reads
    max(batch, 16) rows."""
    prompts, warm = x[: PLACES * batch, :prompt].tolist(), Sampling(temperature=1.0)
    parts = x[: max(batch, 16)].split(batch)

    def decoding(leave: Exit) -> list[int]:
        return [
            loops
            for answer in generate(model, prompts, new_tokens, leave, warm, batch=batch)
            for loops in (*answer.prompt_loops, *answer.loops[1:])
        ]

    def prefill(leave: Exit) -> list[int]:
        return [
            loops for part in parts for loops in score(model, part[:, :-1], part[:, 1:], leave).loops.ravel().tolist()
        ]

    return {"decoding": decoding, "prefill": prefill}


def in_turn(work: Workload, leave: Exit, loops: int, rounds: int) -> list[tuple[float, float, float]]:
    """(tokens/s without leaving, tokens/s with it, share of the loops saved) of each round; one more before these, to
    warm up, does not count."""
    found = []
    with one_thread_on_cpu():
        for _ in tqdm(range(rounds + 1), "rounds", leave=False, delay=5):
            slow, _ = _rate(work, Exit(), loops)
            found.append((slow, *_rate(work, leave, loops)))
    return found[1:]


def _rate(work: Workload, leave: Exit, loops: int) -> tuple[float, float]:
    """(tokens/s, share of the loops saved)"""
    begin = time.perf_counter()
    taken = work(leave)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return len(taken) / (time.perf_counter() - begin), 1 - float(np.mean(taken)) / loops


def debts(model: LoopedLM, x: Tensor, exits: Exits, saved: Sequence[float]) -> pd.DataFrame:
    """One row a ``share`` of the loops that is to be saved on rows x [B, S + 1]: the share really ``saved`` there; the
    perplexity ``decoded``, where those who left have only the entries of the loops that they made; and the one
    ``counted`` as 004 does, at the same share, where everybody sees what those who left would have computed. exits:
    measured on the same rows."""
    looped, rows = model.cfg.mean_loops * model.cfg.recur, []
    of_depth = looped / (model.cfg.prelude + looped + model.cfg.coda)  # in layers
    for share in saved:
        found = score(model, x[:, :-1], x[:, 1:], exit_saving(model, x, share))
        really = 1 - found.loops.mean() / model.cfg.mean_loops
        rows.append(
            {
                "share": share,
                "saved": really,
                "decoded": np.exp(found.loss.mean()),
                "counted": trade_off(exits, "entropy", [really * of_depth])[0],
            }
        )
    return pd.DataFrame(rows)


#: a way to write text: when tokens leave, and how they are begun ahead
Way = tuple[Exit | None, Ahead | None]


@torch.no_grad()
def compared(
    model: LoopedLM, prompts: Sequence[Sequence[int]], new_tokens: int, ways: Sequence[Way], rounds: int
) -> list[pd.DataFrame]:
    """Greedy answers in several ways, of which the first is plain decoding; for each way a frame with a row a prompt.

    ``seconds`` of the call a new token, the least of ``rounds`` after one that does not count, all ways in turn;
    ``passes`` over the loop a token. ``first``: the share of the tokens before the first that is not plain decoding's;
    ``differ``: the share that are not. Of the finished text, read by the model with all loops: ``loss`` in nats a
    token, ``strays``, the share of tokens that are not the likeliest, and ``regret``, ln p of the likeliest less ln p
    of the text's, in nats."""
    rows: list[list[dict[str, float]]] = [[] for _ in ways]
    for prompt in tqdm(prompts, "prompts", leave=False, delay=5):
        seconds, plain = np.zeros((rounds + 1, len(ways))), np.zeros(0)
        for turn, (i, (leave, ahead)) in itertools.product(range(rounds + 1), enumerate(ways)):
            begin = time.perf_counter()
            (answer,) = generate(model, [prompt], new_tokens, leave, ahead=ahead)
            seconds[turn, i] = (time.perf_counter() - begin) / new_tokens
            if turn < rounds:
                continue
            wrote = np.array(answer.tokens)
            plain = wrote if not i else plain
            same = wrote == plain
            read = torch.tensor([[*prompt, *answer.tokens]], device=model.embed.weight.device)
            log_p = model(read[:, :-1])[0, len(prompt) - 1 :].log_softmax(-1).double().cpu().numpy()
            of_text = log_p[np.arange(new_tokens), wrote]
            rows[i].append(
                {
                    "seconds": seconds[1:, i].min(),
                    "passes": answer.passes / new_tokens,
                    "first": np.logical_and.accumulate(same).mean(),
                    "differ": 1 - same.mean(),
                    "loss": -of_text.mean(),
                    "strays": (log_p.argmax(-1) != wrote).mean(),
                    "regret": (log_p.max(-1) - of_text).mean(),
                }
            )
    return [pd.DataFrame(of_way) for of_way in rows]

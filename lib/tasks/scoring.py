"""What a model scores on a task (``lib/tasks/suites.py``, ``lib/tasks/primitives.py``).

Multiple choice and schemas: the model's choice is the option with the lowest mean negative log-likelihood a token
(DCLM), or with the lowest of what the task's norm says (OLMES). Everything else: an answer is right if greedy decoding
gives it. All tasks also have the loss of the right continuation in nats per token, 000's primary signal, since
accuracy does not move at small scale. ``lib/tasks/evaluations.py`` keeps the scores of runs and checkpoints.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.decode import continuations
from lib.model.looped import LoopedLM
from lib.tasks.suites import Example, Task, chosen, prompt
from lib.text.tokenizer import Tokenizer

PIECE = 1 << 10  # pairs of texts that are encoded at once; with examples in front they are long
ALONE = "Answer:"  # a choice's loss after this says how likely the choice is whatever was asked


class Answer(NamedTuple):
    """One of a question's choices, after T loops."""

    nll: float  # loss in nats, of all its tokens together
    tokens: int
    greedy: bool  # whether greedy decoding gives it
    cut: bool  # whether its question lost its left end to fit into the context
    text: str = ""
    alone: float = 0.0  # its loss after ALONE; 0 where the task's norm does not need it


#: a task's norm -> what the model's choice has least of
NORMS: dict[str, Callable[[Answer], float]] = {
    "token": lambda answer: answer.nll / answer.tokens,
    "character": lambda answer: answer.nll / len(answer.text),
    "unconditional": lambda answer: answer.nll - answer.alone,
    "whole": lambda answer: answer.nll,
}


def ask(
    model: LoopedLM,
    tokenizer: Tokenizer,
    task: Task,
    examples: Sequence[Example],
    seed: int = 0,
    limit: int = 0,
    depths: Sequence[int] = (),
) -> dict[int, dict[str, float]]:
    """T -> a task's scores (``scores``) after T loops, for each of ``depths`` (mean_loops when there is none).

    ``seed`` draws the examples in front and a random initial state; ``limit`` of the examples are asked, all when 0."""
    indices = chosen(task, examples, limit)
    found = answers(model, tokenizer, task, examples, indices, seed, depths)
    return {T: scores(task, choices, [examples[i].gold for i in indices]) for T, choices in found.items()}


def answers(
    model: LoopedLM,
    tokenizer: Tokenizer,
    task: Task,
    examples: Sequence[Example],
    indices: Sequence[int],
    seed: int,
    depths: Sequence[int] = (),
) -> dict[int, list[list[Answer]]]:
    """T -> the choices of each of the examples that ``indices`` names, after T loops."""
    asked = [prompt(task, examples, i, seed) for i in indices]
    pairs = [pair for options in asked for pair in options]
    n = len(pairs)
    if task.norm == "unconditional":
        pairs += [(ALONE, " " + text.lstrip(" ")) for _, text in pairs]
    questions, places = laid_out(encode(tokenizer, pairs), tokenizer.bos, model.cfg.context)
    found = {}
    for T, scored in continuations.score(model, questions, depths, seed).items():
        of_pairs = together(scored, places)
        alone = [answer.nll for answer in of_pairs[n:]] or [0.0] * n
        each = (
            answer._replace(text=text, alone=a)
            for answer, (_, text), a in zip(of_pairs[:n], pairs[:n], alone, strict=True)
        )
        found[T] = [list(itertools.islice(each, len(options))) for options in asked]
    return found


def fitting(tokenizer: Tokenizer, task: Task, examples: Sequence[Example], seed: int, context: int) -> list[int]:
    """Which examples a context of so many tokens holds whole, with all of their options and what ``seed`` draws in
    front."""
    asked = [prompt(task, examples, i, seed) for i in range(len(examples))]
    encoded = iter(encode(tokenizer, [pair for options in asked for pair in options]))
    longest = [max(len(head) + len(tail) for head, tail in itertools.islice(encoded, len(of))) for of in asked]
    return [i for i, tokens in enumerate(longest) if tokens <= context]  # BOS is read, the last token is not


def encode(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    """(tokens of the context, tokens of what follows it) for each pair of texts. What follows has the tokens that the
    context alone does not have; spaces at the context's end belong to it, as in lm-evaluation-harness."""
    return [found for at in range(0, len(pairs), PIECE) for found in _encode(tokenizer, pairs[at : at + PIECE])]


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
) -> tuple[list[continuations.Question], list[list[tuple[int, int]]]]:
    """(questions, places): neighbours with the same context become one question, and ``places`` has, for each pair, the
    (question, choice)s that it became. A text without a context becomes several questions, windows as long as the
    model's context, in which each token is predicted once and from as many tokens as fit."""
    questions: list[continuations.Question] = []
    places: list[list[tuple[int, int]]] = []
    for head, tail in pairs:
        prefix = [bos, *head]
        if not head:
            whole, ends = prefix + tail, [*range(context, len(tail), context), len(tail)]
            places.append([(len(questions) + i, 0) for i in range(len(ends))])
            for begin, end in zip([0, *ends], ends, strict=False):
                questions.append(
                    continuations.Question(whole[max(0, end - context) : begin + 1], [whole[begin + 1 : end + 1]])
                )
        elif questions and questions[-1].prefix == prefix:
            questions[-1].choices.append(tail)
            places.append([(len(questions) - 1, len(questions[-1].choices) - 1)])
        else:
            questions.append(continuations.Question(prefix, [tail]))
            places.append([(len(questions) - 1, 0)])
    return questions, places


def together(scored: Sequence[continuations.Scored], places: list[list[tuple[int, int]]]) -> list[Answer]:
    """The answer of each pair of texts, from the one or more questions that ``laid_out`` made of it."""
    return [
        Answer(
            sum(float(scored[q].nll[c]) for q, c in place),
            sum(int(scored[q].tokens[c]) for q, c in place),
            all(bool(scored[q].greedy[c]) for q, c in place),
            any(scored[q].cut > 0 for q, _ in place),
        )
        for place in places
    ]


def scores(task: Task, choices: Sequence[Sequence[Answer]], gold: Sequence[int]) -> dict[str, float]:
    """accuracy and loss (nats per token of the right continuation), and the perplexity per token and per word of all
    right continuations together, each with its standard error over examples; n, the number of examples, and ``cut``,
    how many of them were cut."""
    measured = [np.array([*map(NORMS[task.norm], answers)]) for answers in choices]
    right = [
        answers[0].greedy if len(answers) == 1 else np.isfinite(of_each).all() and of_each.argmin() == best
        for answers, of_each, best in zip(choices, measured, gold, strict=True)
    ]
    wanted = [answers[best] for answers, best in zip(choices, gold, strict=True)]
    nll, tokens, words = (
        np.array(column, dtype=float)
        for column in zip(*((answer.nll, answer.tokens, len(answer.text.split())) for answer in wanted), strict=True)
    )
    found: dict[str, float] = {"n": len(gold), "cut": sum(any(answer.cut for answer in answers) for answers in choices)}
    for name, (value, stderr) in {
        "accuracy": _mean(right),
        "loss": _mean(nll / tokens),
        "token_perplexity": _perplexity(nll, tokens),
        "word_perplexity": _perplexity(nll, words),
    }.items():
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
    """(mean, its standard error); the error of a single value is nan."""
    x = np.asarray(values, dtype=float)
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan

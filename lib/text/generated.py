"""Texts that are generated: questions whose answer takes steps, one after the other, each with its answer.

``generated:FAMILY`` is a text of one family, for a model that is trained on nothing else: p-hop induction and addition
as in Saunshi et al., *Reasoning with Latent Thoughts*; chains of variables after its i-GSM; state tracking over S_5
after Merrill et al., *The Illusion of State in State-Space Models*. A family's ``steps`` are its difficulty; a text has
those of TRAINED in equal parts, and ``lib/tasks/primitives.py`` asks for more.

A symbol is one byte and nothing stands between symbols, so that a question fits into a context of 64.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from lib.base import seeds
from lib.base.errors import InputError

PREFIX = "generated:"
DOCUMENTS = 200_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def hops(random: np.random.Generator, steps: int, length: int = 24, alphabet: int = 4) -> tuple[str, str]:
    """p-hop induction, p = steps: from the last place of each letter, p times to what followed its letter's last
    earlier occurrence. The question is p and the letters; the answer has one letter for each of the alphabet, in its
    order."""
    while True:
        letters = spelt(random.integers(0, alphabet, length))
        ends = [*itertools.takewhile(bool, (hopped(letters, letter, steps) for letter in LETTERS[:alphabet]))]
        if len(ends) == alphabet:
            return f"{steps}:{letters}=", "".join(ends)


def hopped(letters: str, letter: str, steps: int) -> str:
    """Where so many hops from a letter's last place lead; empty where one has nowhere to go."""
    at = letters.rfind(letter)
    for _ in range(steps):
        at = letters.rfind(letters[at], 0, max(at, 0)) + 1
        if not at:
            return ""
    return letters[at]


def spelt(letters: np.ndarray) -> str:
    return "".join(LETTERS[i] for i in letters.tolist())


def addition(random: np.random.Generator, steps: int) -> tuple[str, str]:
    """a + b of ``steps`` digits each, and their sum of one digit more, the largest digits first: the first digit of the
    answer asks for every carry."""
    a, b = (int(x) for x in random.integers(0, 10**steps, 2))
    return f"{a:0{steps}}+{b:0{steps}}=", f"{a + b:0{steps + 1}}"


def chains(random: np.random.Generator, steps: int, count: int = 3) -> tuple[str, str]:
    """``count`` chains of variables: the first of each is a digit, and each of ``steps`` others is the one before it.
    Assignments are pairs ("a3", then "ba": b is a), in random order. Asked is the value of the end of one."""
    names = [LETTERS[i] for i in random.permutation(len(LETTERS))[: count * (steps + 1)]]
    values = [str(value) for value in random.integers(0, 10, count)]
    pairs = []
    for i, value in enumerate(values):
        chain = names[i * (steps + 1) : (i + 1) * (steps + 1)]
        pairs += [f"{chain[0]}{value}", *(f"{later}{earlier}" for earlier, later in itertools.pairwise(chain))]
    lines = "".join(pairs[i] for i in random.permutation(len(pairs)))
    return f"{lines}?{names[steps]}", values[0]


def swaps(random: np.random.Generator, steps: int, balls: int = 5) -> tuple[str, str]:
    """Five balls in a row, and ``steps`` swaps of neighbours: a is of the first two, d of the last two. The answer is
    the row afterwards. The swaps generate S_5, whose word problem no fixed depth solves at every length."""
    drawn = random.integers(0, balls - 1, steps)
    row = list(range(1, balls + 1))
    for i in drawn:
        row[i], row[i + 1] = row[i + 1], row[i]
    return f"{spelt(drawn)}=", "".join(map(str, row))


FAMILIES: dict[str, Callable[[np.random.Generator, int], tuple[str, str]]] = {
    "hops": hops,
    "addition": addition,
    "chains": chains,
    "swaps": swaps,
}
#: the steps that a text of a family has
TRAINED: dict[str, tuple[int, ...]] = {
    "hops": (1, 2, 3, 4),
    "addition": (2, 3, 4, 5),
    "chains": (0, 1, 2, 3),
    "swaps": (2, 4, 6, 8),
}


def documents(source: str, count: int = DOCUMENTS) -> Iterator[str]:
    """The first ``count`` documents of a generated text, always the same: a question with its answer each. Raises
    InputError where there is no family of its name."""
    name = source.removeprefix(PREFIX)
    if name not in FAMILIES:
        raise InputError(f"data.source: {source!r} is not known, use {PREFIX} and one of {', '.join(FAMILIES)}")
    random, drawn = seeds.stream(f"text of {name}"), seeds.stream(f"steps of {name}").choice(TRAINED[name], DOCUMENTS)
    for steps in drawn[:count].tolist():
        yield "".join(FAMILIES[name](random, steps))

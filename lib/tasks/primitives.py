"""Tasks that are generated, seeded, and need no download.

The in-house probes of 000 (App. H): an induction head after Olsson et al. and variable assignment of depth 0 and 1, in
math and in code, after Saunshi et al. And tasks whose answer takes steps, one after the other, for scores against the
number of loops T, which the looped nanochat log (003) asks for: p-hop induction, addition, parity, copying.

Symbols are single letters and digits with a space between: a symbol is a token of its own, or two of which the first
says nothing, for bytes and for any BPE. So prompts stay short where the vocabulary is small, and where a context is.
"""

import functools
from collections.abc import Callable

import numpy as np

from lib.base import seeds
from lib.tasks.suites import Example, Task
from lib.text.generated import FAMILIES, LETTERS, TRAINED, hopped, spelt

EXAMPLES = 1000  # of each task (000, Table 7)


def induction(random: np.random.Generator, length: int = 8) -> Example:
    """Random letters, the first ``length`` of them all different; then one comes again: what followed it?"""
    letters = random.permutation([*LETTERS])[:length]
    at = int(random.integers(length - 1))
    return Example((" ".join([*letters, letters[at]]),), (str(letters[at + 1]),))


def assignment(random: np.random.Generator, depth: int, code: bool, direct: int = 5) -> Example:
    """Variables of 1 to 25, at depth 1 as many aliases of them, each of another; what is the value of one?"""
    names = [str(name) for name in random.permutation([*LETTERS])[: direct * (depth + 1)]]
    values = {name: str(value) for name, value in zip(names, random.integers(1, 26, direct), strict=False)}
    lines = [*values.items()]
    if depth:
        aliases = names[direct:]
        bases = [names[i] for i in random.permutation(direct)]
        lines += [*zip(aliases, bases, strict=True)]
        values = {alias: values[base] for alias, base in zip(aliases, bases, strict=True)}
    asked = str(random.choice([*values]))
    if code:
        program = "\n".join(f"{left} = {right}" for left, right in lines)
        return Example((f"What does this program print?\n{program}\nprint({asked})\nAnswer:",), (values[asked],))
    given = ", ".join(f"{left}={right}" for left, right in lines)
    return Example((f"Let {given}. What is the value of {asked}?\nAnswer:",), (values[asked],))


def hops(random: np.random.Generator, p: int, length: int = 24, alphabet: int = 4) -> Example:
    """p-hop induction (Sanford et al.): from the last letter, p times to what followed its last earlier occurrence."""
    while True:
        letters = spelt(random.integers(0, alphabet, length))
        if end := hopped(letters, letters[-1], p):
            return Example((" ".join(letters),), (end,))


def addition(random: np.random.Generator, digits: int) -> Example:
    """a + b of so many digits each, digit by digit with the last one first, so that a carry goes with the reading."""
    a, b = (int(x) for x in random.integers(10 ** (digits - 1), 10**digits, 2))
    first, second, total = (" ".join(reversed(f"{x}")) for x in (a, b, a + b))
    return Example((f"{first} + {second} =",), (total,))


def parity(random: np.random.Generator, length: int) -> Example:
    """Whether so many bits hold an even or an odd number of ones."""
    bits = random.integers(0, 2, length)
    return Example((" ".join(map(str, bits)) + " :",), ("even", "odd"), int(bits.sum() % 2))


def copying(random: np.random.Generator, length: int) -> Example:
    """A list of so many letters, once more."""
    letters = " ".join(spelt(random.integers(0, 26, length)))
    return Example((f"{letters} :",), (letters,))


#: 000's axis, five examples in front of an assignment
PROBES = {
    Task("Induction head"): induction,
    Task("VarAssign d0 (math)", 5): lambda random: assignment(random, 0, code=False),
    Task("VarAssign d0 (code)", 5): lambda random: assignment(random, 0, code=True),
    Task("VarAssign d1 (math)", 5): lambda random: assignment(random, 1, code=False),
    Task("VarAssign d1 (code)", 5): lambda random: assignment(random, 1, code=True),
}
#: more steps, one after the other, from left to right
DEPTH = {
    Task("1-hop", chance=25): lambda random: hops(random, 1),
    Task("2-hop", chance=25): lambda random: hops(random, 2),
    Task("4-hop", chance=25): lambda random: hops(random, 4),
    Task("Addition, 2 digits", 3): lambda random: addition(random, 2),
    Task("Addition, 4 digits", 3): lambda random: addition(random, 4),
    Task("Parity of 4", 4, chance=50): lambda random: parity(random, 4),
    Task("Parity of 8", 4, chance=50): lambda random: parity(random, 8),
    Task("Copying 4", 2): lambda random: copying(random, 4),
    Task("Copying 8", 2): lambda random: copying(random, 8),
}
#: steps that no generated text has, family by family
BEYOND = {"hops": (6, 8), "addition": (6, 8), "chains": (4, 5), "swaps": (10, 12)}


def graded(family: str, steps: int) -> Task:
    """What a model that was trained on ``generated:FAMILY`` is asked, as its text has it: the answer as a whole."""
    return Task(f"{family}, {steps} steps", answer="")


def _graded(random: np.random.Generator, family: str, steps: int) -> Example:
    question, answer = FAMILIES[family](random, steps)
    return Example((question,), (answer,))


#: the families of generated texts, with the steps they have and more
GRADED = {
    graded(family, steps): functools.partial(_graded, family=family, steps=steps)
    for family in FAMILIES
    for steps in (*TRAINED[family], *BEYOND[family])
}
#: by name: with other examples in front a task is still generated
GENERATED: dict[str, Callable[[np.random.Generator], Example]] = {
    task.name: make for task, make in (PROBES | DEPTH | GRADED).items()
}


def generated(task: Task) -> list[Example]:
    """The examples of a task that is generated, always the same."""
    return [GENERATED[task.name](seeds.stream(f"examples of {task.name}", i)) for i in range(EXAMPLES)]

"""The answer of every generated task is the one that its definition, or the program it shows, gives."""

import contextlib
import functools
import io
import re

import numpy as np
import pytest

from lib.tasks.primitives import generated
from lib.tasks.suites import Task


@functools.cache
def of(name):
    return generated(Task(name))


def test_induction_asks_for_what_followed():
    for example in of("Induction head")[:200]:
        *letters, again = example.contexts[0].split()
        assert len({*letters}) == len(letters) == 8
        assert letters[letters.index(again) + 1] == example.continuations[0]


@pytest.mark.parametrize("depth", [0, 1])
def test_math_assignments_have_the_value_asked_for(depth):
    seen = set()
    for example in of(f"VarAssign d{depth} (math)")[:300]:
        given, asked = re.fullmatch(r"Let (.*)\. What is the value of (\w)\?\nAnswer:", example.contexts[0]).groups()
        values = dict(pair.split("=") for pair in given.split(", "))
        assert len(values) == 5 * (depth + 1)
        value = values[asked]
        assert value.isdigit() == (depth == 0)  # at depth 1 an alias is asked for
        assert (values[value] if depth else value) == example.continuations[0]
        if depth:
            bases = sorted(name for name, of in values.items() if of.isdigit())
            assert sorted(of for of in values.values() if not of.isdigit()) == bases
        seen.add(int(example.continuations[0]))
    assert seen == {*range(1, 26)}


@pytest.mark.parametrize("depth", [0, 1])
def test_code_assignments_print_the_answer(depth):
    for example in of(f"VarAssign d{depth} (code)")[:100]:
        program = example.contexts[0].removeprefix("What does this program print?\n").removesuffix("\nAnswer:")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program, {})
        assert printed.getvalue().strip() == example.continuations[0]


def hop(letters, p):
    """Sanford et al.: find(i) = max j <= i with X[j - 1] = X[i]; the answer is X[find^p(n)]."""
    i = len(letters) - 1
    for _ in range(p):
        i = max(j for j in range(1, i + 1) if letters[j - 1] == letters[i])
    return letters[i]


@pytest.mark.parametrize("p", [1, 2, 4])
def test_hops_follow_the_definition(p):
    answers = []
    for example in of(f"{p}-hop")[:300]:
        assert hop(example.contexts[0].split(), p) == example.continuations[0]
        answers.append(example.continuations[0])
    counts = np.unique(answers, return_counts=True)[1]
    assert len(counts) == 4 and counts.min() > 300 / 4 / 2  # a guess is right one time in four


@pytest.mark.parametrize("digits", [2, 4])
def test_additions_add_up(digits):
    for example in of(f"Addition, {digits} digits")[:200]:
        a, b = example.contexts[0].removesuffix(" =").split(" + ")
        a, b, c = (int("".join(reversed(x.split()))) for x in (a, b, example.continuations[0]))
        assert a + b == c and 10 ** (digits - 1) <= min(a, b)


def test_parities_and_copies():
    for example in of("Parity of 8")[:200]:
        ones = example.contexts[0].count("1")
        assert example.continuations[example.gold] == ("odd" if ones % 2 else "even")
    assert 0.4 < np.mean([example.gold for example in of("Parity of 8")]) < 0.6
    for example in of("Copying 4")[:200]:
        assert example.contexts[0] == example.continuations[0] + " :" and len(example.continuations[0].split()) == 4

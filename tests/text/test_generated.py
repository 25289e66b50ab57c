"""Generated questions have the answers that somebody who follows them step by step finds."""

import itertools

import pytest

from lib.base import seeds
from lib.text import generated
from lib.text.sources import content_id, documents


def asked(family, steps, n=200):
    random = seeds.stream("tests of generated", steps)
    return [generated.FAMILIES[family](random, steps) for _ in range(n)]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_hop_goes_to_what_followed_the_last_earlier_occurrence(steps):
    for question, answer in asked("hops", steps):
        letters = question.removeprefix(f"{steps}:").removesuffix("=")
        for letter, found in zip("abcd", answer, strict=True):
            at = letters.rindex(letter)
            for _ in range(steps):
                at = letters.rindex(letters[at], 0, at) + 1
            assert letters[at] == found


@pytest.mark.parametrize("steps", [1, 4])
def test_a_sum_is_a_sum_with_the_largest_digits_first(steps):
    for question, answer in asked("addition", steps):
        a, b = question.removesuffix("=").split("+")
        assert len(a) == len(b) == len(answer) - 1 == steps and int(a) + int(b) == int(answer)


@pytest.mark.parametrize("steps", [0, 4])
def test_a_chain_is_followed_to_its_digit(steps):
    for question, answer in asked("chains", steps):
        lines, end = question.split("?")
        is_a = dict(lines[i : i + 2] for i in range(0, len(lines), 2))
        assert len(is_a) == 3 * (steps + 1)
        for _ in range(steps):
            end = is_a[end]
        assert is_a[end] == answer and answer.isdigit()


def test_swaps_reach_every_row_of_five_balls():
    """They generate S_5: all 120 rows come, half of them after an even number of swaps."""
    rows = set()
    for steps in (29, 30):
        for question, answer in asked("swaps", steps, 2000):
            row = [*"12345"]
            for letter in question.removesuffix("="):
                i = "abcd".index(letter)
                row[i : i + 2] = row[i + 1], row[i]
            assert "".join(row) == answer
            rows.add(answer)
    assert rows == {"".join(row) for row in itertools.permutations("12345")}


@pytest.mark.parametrize("family", generated.FAMILIES)
def test_a_text_is_its_questions_with_answers_always_the_same_and_fits_into_a_row(family):
    source = generated.PREFIX + family
    some = list(generated.documents(source, 400))
    assert some == list(itertools.islice(documents(source), 400)) and len({*some}) > 200
    assert max(map(len, some)) <= 64
    lengths = {len("".join(asked(family, steps, 1)[0])) for steps in generated.TRAINED[family]}
    assert {len(document) for document in some} == lengths
    assert len({content_id(generated.PREFIX + name) for name in generated.FAMILIES}) == len(generated.FAMILIES)

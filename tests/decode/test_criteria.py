"""Each criterion is its formula, and is silent where there is no exit before to compare with."""

import itertools
import math

import pytest
import torch

from lib.decode.criteria import CRITERIA, GATE, Seen, score


def log_p(*p: float) -> torch.Tensor:
    return torch.tensor([p]).log()


@pytest.fixture
def exits() -> list[Seen]:
    """A token at no exit, and at three."""
    seen = [Seen.nothing(1, 2, 2)]
    for h, p in (((0.0, 0.0), (0.5, 0.5)), ((3.0, 4.0), (0.8, 0.2)), ((3.0, 16.0), (0.8, 0.2))):
        seen.append(seen[-1].then(torch.tensor([h]), log_p(*p)))
    return seen


def scores(name: str, exits: list[Seen]) -> list[float]:
    return [CRITERIA[name](now, before).item() for before, now in itertools.pairwise(exits)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("entropy", [math.log(2), *[-0.8 * math.log(0.8) - 0.2 * math.log(0.2)] * 2]),
        ("kl", [math.nan, 0.8 * math.log(0.8 / 0.5) + 0.2 * math.log(0.2 / 0.5), 0.0]),
        ("l2", [math.nan, 5.0, 12.0]),
        ("acceleration", [math.nan, math.nan, math.hypot(3.0, 8.0)]),  # from (3, 4) to (0, 12)
    ],
)
def test_a_criterion_is_its_formula(exits, name, expected):
    assert scores(name, exits) == pytest.approx(expected, nan_ok=True, abs=1e-6)


def test_a_gate_lets_stay_who_left_at_no_exit():
    seen, h = [Seen.nothing(2, 3, 0)], torch.zeros(2, 3)
    for chances in ((0.1, 0.9), (0.5, 0.5), (0.2, 1.0)):
        seen.append(seen[-1].then(h, h[:, :0], torch.tensor(chances)[:, None]))
    found = torch.stack([score(GATE, now, before) for before, now in itertools.pairwise(seen)])
    torch.testing.assert_close(found, torch.tensor([[0.9, 0.1], [0.45, 0.05], [0.36, 0.0]]))

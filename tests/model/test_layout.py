"""What layouts share refuses in one line, by their own names, and puts tensors in the place of ours."""

import torch

from lib.model import layout
from tests.lines import one_line


def test_renaming_is_whole():
    a, b = torch.zeros(1), torch.ones(1)
    assert layout.rename({"x": a, "y": b}, {"x": "p", "y": "q"}) == ({"p": a, "q": b}, {"p": "x", "q": "y"})
    with one_line("weights: y is missing; z is unknown; give the whole checkpoint of its config.json"):
        layout.rename({"x": a, "z": b}, {"x": "p", "y": "q"})
    with one_line("6 is missing; and 3 more; give"):
        layout.rename({}, {str(i): str(i) for i in range(11)} | {"8": "8"})


def test_parts_take_the_place_of_what_held_them_side_by_side():
    whole, called = torch.randn(5, 3), {"0.qk": "a.0.Wqk"}
    tensors = {"0.qk": whole, "other": whole}
    layout.split(tensors, called, "qk", {"q": 2, "k": 3}, 3)
    assert tensors.keys() == {"0.q", "0.k", "other"}
    assert torch.equal(tensors["0.q"], whole[:2]) and torch.equal(tensors["0.k"], whole[2:])
    for wrong in (torch.zeros(4, 3), torch.zeros(5, 2), torch.zeros(5)):
        with one_line("weights: a.0.Wqk has shape", "instead of (5, 3); restore it"):
            layout.split({"0.qk": wrong}, called, "qk", {"q": 2, "k": 3}, 3)

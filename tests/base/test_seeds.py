"""A random stream is a function of its name and numbers alone, in numpy and in torch."""

import torch

from lib.base import seeds


def test_a_stream_is_a_function_of_its_name_and_numbers():
    first = seeds.stream("depth", 0, 5, 2).random(4)
    assert (first == seeds.stream("depth", 0, 5, 2).random(4)).all()
    for other in (("depth", 0, 5, 3), ("depth", 1, 5, 2), ("order", 0, 5, 2), ("depth", 0, 52)):
        assert (first != seeds.stream(*other).random(4)).all()


def test_a_torch_stream_is_too():
    a, b = (torch.rand(8, generator=seeds.torch_stream("state", 3, 1)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, torch.rand(8, generator=seeds.torch_stream("state", 3, 2)))


def test_the_streams_are_those_of_the_committed_runs():
    assert seeds.stream("depth", 0, 5, 2).integers(10**9, size=2).tolist() == [814002469, 984230253]

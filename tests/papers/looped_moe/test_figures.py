"""The models of 004 look the same in every figure: colours are those of architectures, darker with more loops."""

from matplotlib.colors import to_rgb

from lib.figures.style import COLOURS, MARKERS
from lib.papers.looped_moe import figures


def test_two_loops_look_like_their_architecture_and_more_are_darker():
    names = ["Base", "Looped 4x2", "Looped 2x4", "Looped 1x8", "MoE", "Looped-MoE 4x2"]
    looks = figures.look_of(names)
    assert looks["Looped 4x2"] == (COLOURS["looped"], MARKERS["looped"]) and looks["Base"][0] == COLOURS["transformer"]
    series = [sum(to_rgb(looks[name][0])) for name in names[1:4]]
    assert series == sorted(series, reverse=True) and len({looks[name] for name in names}) == len(names)
    assert figures.look_of(["Looped 1x8"])["Looped 1x8"] == looks["Looped 1x8"]

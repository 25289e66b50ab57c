"""004's best models are chosen by their loss, and Core 9 is the mean of nine accuracies."""

import pytest

from lib.papers.looped_moe import core_nine, designs
from lib.tasks.suites import CORE_9
from tests.papers.looped_moe.test_designs import ISO
from tests.runs import small_run
from tests.scored import NAMES, asked, results


def test_of_each_architecture_the_best_width_at_the_largest_budget():
    grid = designs.grid(ISO.replace(widths={1e9: [16, 32, 48], 2e9: [16, 32, 48]}, seeds=[5, 6]))
    best = {("base", 5): 16, ("looped", 5): 32, ("moe", 5): 48, ("looped-moe", 5): 32, ("looped-moe", 6): 16}
    found = results(grid, lambda label: 2 + abs(label[2] - best.get((label[0], label[3]), 48)) / 100 + (label[1] > 1e9))
    chosen = core_nine.best_of_each(grid, found)
    assert {*chosen} == {(name, best.get((name, seed), 48), seed) for name in designs.LOOK for seed in (5, 6)}
    assert all(cfg == grid[label[0], 2e9, label[1], label[2]] for label, cfg in chosen.items())


def test_core_9_is_the_mean_of_its_accuracies():
    plan = {(name, 32, 5): small_run(train={"seed": i}) for i, name in enumerate(designs.LOOK)}
    table = asked(plan, lambda label, task, T: 0.1 * len(label[0]) / 10 + 0.5 * (task is CORE_9[0]), CORE_9)
    runs = core_nine.nine_scores(table, plan, NAMES, results(plan))
    assert runs["Core 9"].tolist() == pytest.approx([len(name) + 50 / 9 for name in designs.LOOK])
    assert runs["SIQA"].tolist() == pytest.approx([len(name) for name in designs.LOOK]) and len(core_nine.NINE) == 9

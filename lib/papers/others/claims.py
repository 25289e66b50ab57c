"""The claims of other groups that their own published runs decide."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.papers.others import cart, isoflop, ladders
from lib.papers.shared.reported import Reported, compared, exact, read_off

LOW, HIGH = 1e18, 1e20  # FLOPs that arXiv 2609.19107 compares its ladders at
#: claim -> the arm whose saving at HIGH it states
SAVINGS = {
    "005-operator-saves-compute": "operator_1",
    "005-own-weights-save-compute": "untied_2",
    "005-tied-growth-saves-compute": "loop_grow",
    "005-growth-with-own-weights-saves-compute": "untied_grow",
    "005-depth-alone-saves-compute": "deep_vanilla",
}
RISING = ("operator_1", "untied_2", "untied_grow")
#: claim -> the arm whose tokens a stored parameter it states
RATIOS = {"005-tokens-a-parameter-of-vanilla": "vanilla", "005-tokens-a-parameter-with-the-operator": "operator_1"}
FRESH, REPEATED = "one epoch, tied", "one recipe, 10 epochs"
TRAINED = 6  # loops of the CART model on LAMBADA

Numbers = dict[tuple[str, str], dict[str, float]]  # claim, unit -> comparison -> its number


def _reported(says: Callable[[Any], Numbers], draws: Sequence[Any], note: str) -> list[Reported]:
    """The claims on what is read off the first of ``draws``, and off the others, which might have been."""
    said = [says(one) for one in draws]
    return [
        compared(id, {name: [one[id, unit][name] for one in said] for name in numbers}, unit, note)
        for (id, unit), numbers in said[0].items()
    ]


def of_ladders(draws: Sequence[ladders.Fits]) -> list[Reported]:
    """What an arm saves and how its exponent differs; draws: of ``ladders.exponents``."""

    def says(laws: ladders.Fits) -> Numbers:
        low, high = ({arm: ladders.saved(laws, arm, ladders.PLAIN, at) for arm in laws} for at in (LOW, HIGH))
        tied = {at: float(np.log2(ladders.saved(laws, ladders.UNTIED, ladders.TIED, at))) for at in (LOW, HIGH)}
        octaves = "octaves of compute"
        return {
            **{(id, "times the compute"): {"": high[arm]} for id, arm in SAVINGS.items()},
            ("005-savings-grow-with-compute", octaves): {arm: float(np.log2(high[arm] / low[arm])) for arm in RISING},
            ("005-own-weights-save-over-tied", octaves): {f"{at:.0e} FLOPs": x for at, x in tied.items()},
            ("005-tied-and-own-weights-scale-alike", octaves): {"": tied[HIGH] - tied[LOW]},
        }

    note, steeper = f"each arm's own law; {len(draws) - 1} fresh ladders", ladders.steeper(draws)
    exponent = compared("005-growth-raises-the-exponent", read_off(dict, steeper), "gamma", note)
    return [*_reported(says, draws, note), exponent]


def of_isoflop(draws: Sequence[pd.DataFrame]) -> list[Reported]:
    """Tokens a stored parameter at the optimum; draws: ``isoflop.optima``, and ``isoflop.fresh_optima``."""

    def says(optima: pd.DataFrame) -> Numbers:
        ratios = isoflop.ratios(optima)["ours"]
        return {(id, "tokens a stored parameter"): {"": ratios[arm]} for id, arm in RATIOS.items()}

    return _reported(says, draws, f"parabolas in log N, geometric mean over five budgets; {len(draws) - 1} fresh sets")


def of_loops(draws: Sequence[pd.DataFrame]) -> list[Reported]:
    """The best number of loops; draws: ``isoflop.best_loops``, and ``isoflop.fresh_best_loops``."""
    low, *_, high = isoflop.BUDGETS

    def says(table: pd.DataFrame) -> Numbers:
        K = table["K"]
        left_to_two = {f"{at:.3g} FLOPs": float(np.log2(2 / K[FRESH, at])) for at in isoflop.BUDGETS}
        grows = float(np.log2(K[REPEATED, high] / K[REPEATED, low]))
        return {
            ("005-fresh-text-wants-two-loops-at-most", "octaves"): left_to_two,
            ("005-repeated-text-wants-more-loops", "octaves of loops"): {"": grows},
        }

    return _reported(says, draws, f"{len(draws) - 1} fresh sets of runs")


def of_cart(draws: Sequence[pd.DataFrame], curves: pd.DataFrame) -> list[Reported]:
    """CART by width and loops (``cart.by_loops``), and of one model its curve over loops at test time."""

    def says(table: Any) -> Numbers:
        wide = [(width, loops) for width in (512, 768, 1024) for loops in (8, 10)]
        first = {width: cart.gain(table, 1, width, 2, 8) for width in (256, 1024)}
        then = {width: cart.gain(table, 2, width, 6, 10) for width in (256, 1024)}
        return {
            ("005-cart-wants-six-loops-when-wide", "nats"): {
                f"width {width}, {loops} loops": -cart.gain(table, 2, width, 6, loops) for width, loops in wide
            },
            ("005-cart-wants-eight-loops-when-narrow", "nats"): {
                f"{loops} loops": cart.gain(table, 2, 256, loops, 8) for loops in (6, 10)
            },
            ("005-cart-loops-help-the-wide-at-first", "nats"): {"": first[1024] - first[256]},
            ("005-cart-loops-help-the-narrow-in-the-end", "nats"): {"": then[256] - then[1024]},
        }

    at = curves[curves["group"] == "cart"].set_index("T")["loss"]
    beyond = {f"{T} loops": float(at[T] - at[TRAINED]) for T in at.index if T > TRAINED}
    note = "the noise of the seeds that are printed at width 1024, in every row"
    return [
        *_reported(says, [one.to_dict() for one in draws], note),  # which are asked ten times as fast
        exact("005-cart-degrades-beyond-its-loops", beyond, "nats", "one model, so that nothing is drawn"),
    ]

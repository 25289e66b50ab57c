"""The claims of other groups that their own published runs decide."""

from typing import Any

import numpy as np
import pandas as pd

from lib.papers.others import best_loops, cart, isoflop, ladders
from lib.papers.others.test_time_loops import Curves
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


def of_ladders(curves: ladders.Curves, fresh: list[ladders.Fits]) -> list[Reported]:
    """What an arm saves and how its exponent differs; ``fresh``: the arms' laws on ladders that might have been."""
    every, note = [ladders.own_floors(curves), *fresh], f"each arm's own law; {len(fresh)} fresh ladders"

    def rises(laws: ladders.Fits) -> dict[str, float]:
        return {arm: float(np.log2(ladders.saved(laws, arm, HIGH) / ladders.saved(laws, arm, LOW))) for arm in RISING}

    def over_tied(laws: ladders.Fits) -> dict[str, float]:
        factors = {at: ladders.saved(laws, ladders.UNTIED, at, ladders.TIED) for at in (LOW, HIGH)}
        return {f"{at:.0e} FLOPs": float(np.log2(x)) for at, x in factors.items()}

    def drift(laws: ladders.Fits) -> dict[str, float]:
        low, high = over_tied(laws).values()
        return {"": high - low}

    octaves = {
        "005-savings-grow-with-compute": rises,
        "005-own-weights-save-over-tied": over_tied,
        "005-tied-and-own-weights-scale-alike": drift,
    }
    savings = {id: {"": [ladders.saved(laws, arm, HIGH) for laws in every]} for id, arm in SAVINGS.items()}
    steeper = read_off(dict, ladders.steeper(every))
    return [
        *(compared(id, drawn, "times the compute", note) for id, drawn in savings.items()),
        *(compared(id, read_off(of, every), "octaves of compute", note) for id, of in octaves.items()),
        compared("005-growth-raises-the-exponent", steeper, "gamma", note),
    ]


def of_isoflop(optima: pd.DataFrame, fresh: list[pd.DataFrame]) -> list[Reported]:
    """Tokens a stored parameter at the optimum; ``fresh``: ``isoflop.fresh_optima``."""
    drawn = read_off(isoflop.ratios, [optima, *fresh])
    note = f"parabolas in log N, geometric mean over five budgets; {len(fresh)} fresh sets"
    return [compared(id, {"": drawn[arm]}, "tokens a stored parameter", note) for id, arm in RATIOS.items()]


def of_loops(optima: pd.DataFrame, fresh: list[pd.DataFrame]) -> list[Reported]:
    """The best number of loops; ``fresh``: ``best_loops.fresh_optima``."""
    low, *_, high = best_loops.BUDGETS

    def left_to_two(table: pd.DataFrame) -> dict[str, float]:
        return {f"{at:.3g} FLOPs": float(np.log2(2 / table["K"][FRESH, at])) for at in best_loops.BUDGETS}

    def grows(table: pd.DataFrame) -> dict[str, float]:
        return {"": float(np.log2(table["K"][REPEATED, high] / table["K"][REPEATED, low]))}

    every, note = [optima, *fresh], f"{len(fresh)} fresh sets of runs"
    return [
        compared("005-fresh-text-wants-two-loops-at-most", read_off(left_to_two, every), "octaves", note),
        compared("005-repeated-text-wants-more-loops", read_off(grows, every), "octaves of loops", note),
    ]


def of_cart(losses: pd.DataFrame, fresh: list[pd.DataFrame], curves: Curves) -> list[Reported]:
    """CART by width and loops (``cart.by_loops``), ``fresh``: with the noise of other seeds; and of one model its curve
    over loops at test time."""

    def six_against(table: Any) -> dict[str, float]:
        pairs = [(width, loops) for width in (512, 768, 1024) for loops in (8, 10)]
        return {f"width {w}, {loops} loops": -cart.gain(table, 2, w, 6, loops) for w, loops in pairs}

    def eight_against(table: Any) -> dict[str, float]:
        return {f"{loops} loops": cart.gain(table, 2, 256, loops, 8) for loops in (6, 10)}

    def first(table: Any) -> dict[str, float]:
        return {"": cart.gain(table, 1, 1024, 2, 8) - cart.gain(table, 1, 256, 2, 8)}

    def then(table: Any) -> dict[str, float]:
        return {"": cart.gain(table, 2, 256, 6, 10) - cart.gain(table, 2, 1024, 6, 10)}

    (curve,) = (own for key, own in curves.items() if key[0] == "cart")
    at = curve.set_index("T")["loss"]
    beyond = {f"{T} loops": float(at[T] - at[TRAINED]) for T in at.index if T > TRAINED}
    asked = {
        "005-cart-wants-six-loops-when-wide": six_against,
        "005-cart-wants-eight-loops-when-narrow": eight_against,
        "005-cart-loops-help-the-wide-at-first": first,
        "005-cart-loops-help-the-narrow-in-the-end": then,
    }
    note = "the noise of the seeds that are printed at width 1024, in every row"
    every = [one.to_dict() for one in (losses, *fresh)]  # which is asked ten times as fast
    return [
        *(compared(id, read_off(of, every), "nats", note) for id, of in asked.items()),
        exact("005-cart-degrades-beyond-its-loops", beyond, "nats", "one model, so that nothing is drawn"),
    ]

"""The claims of other groups that their own published runs decide."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.papers.others import growth
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
#: standard deviation of a CART seed's perplexity over its mean, at width 1024 (the table of the 12-layer baseline)
SEED_SD = 0.08 / 20.35

Numbers = dict[tuple[str, str], dict[str, float]]  # claim, unit -> comparison -> its number


def _reported(says: Callable[[Any], Numbers], draws: Sequence[Any], note: str) -> list[Reported]:
    """The claims on what is read off the first of ``draws``, and off the others, which might have been."""
    said = [says(one) for one in draws]
    return [
        compared(id, {name: [one[id, unit][name] for one in said] for name in numbers}, unit, note)
        for (id, unit), numbers in said[0].items()
    ]


def of_ladders(draws: Sequence[growth.Fits]) -> list[Reported]:
    """What an arm saves and how its exponent differs; draws: of ``growth.exponents``."""

    def says(laws: growth.Fits) -> Numbers:
        low, high = ({arm: growth.saved(laws, arm, growth.PLAIN, at) for arm in laws} for at in (LOW, HIGH))
        tied = {at: float(np.log2(growth.saved(laws, growth.UNTIED, growth.TIED, at))) for at in (LOW, HIGH)}
        octaves = "octaves of compute"
        return {
            **{(id, "times the compute"): {"": high[arm]} for id, arm in SAVINGS.items()},
            ("005-savings-grow-with-compute", octaves): {arm: float(np.log2(high[arm] / low[arm])) for arm in RISING},
            ("005-own-weights-save-over-tied", octaves): {f"{at:.0e} FLOPs": x for at, x in tied.items()},
            ("005-tied-and-own-weights-scale-alike", octaves): {"": tied[HIGH] - tied[LOW]},
        }

    note, steeper = f"each arm's own law; {len(draws) - 1} fresh ladders", growth.steeper(draws)
    return [
        *_reported(says, draws, note),
        compared("005-growth-raises-the-exponent", read_off(dict, steeper), "gamma", note),
    ]


def of_isoflop(draws: Sequence[pd.DataFrame]) -> list[Reported]:
    """Tokens a stored parameter at the optimum; draws: ``growth.optima``, and ``growth.fresh_optima``."""

    def says(optima: pd.DataFrame) -> Numbers:
        ratios = growth.ratios(optima)["ours"]
        return {(id, "tokens a stored parameter"): {"": ratios[arm]} for id, arm in RATIOS.items()}

    return _reported(says, draws, f"parabolas in log N, geometric mean over five budgets; {len(draws) - 1} fresh sets")


def of_loops(draws: Sequence[pd.DataFrame]) -> list[Reported]:
    """The best number of loops; draws: ``growth.best_loops``, and ``growth.fresh_best_loops``."""
    low, *_, high = growth.BUDGETS

    def says(table: pd.DataFrame) -> Numbers:
        K = table["K"]
        return {
            ("005-fresh-text-wants-two-loops-at-most", "octaves"): {
                f"{at:.3g} FLOPs": float(np.log2(2 / K[FRESH, at])) for at in growth.BUDGETS
            },
            ("005-repeated-text-wants-more-loops", "octaves of loops"): {
                "": float(np.log2(K[REPEATED, high] / K[REPEATED, low]))
            },
        }

    return _reported(says, draws, f"{len(draws) - 1} fresh sets of runs")


def cart_by_loops(cart: pd.DataFrame, resamples: int, seed: int) -> list[pd.DataFrame]:
    """One row a (stage, width) of CART, one column a number of loops: loss of the models with six blocks before the
    loop, the log of the perplexity on Wikipedia; and the same with the noise of other seeds, as many as each row is a
    mean of, ``resamples`` times. cart: ``runs.cart``."""
    same = cart[(cart["arm"] == "cart") & (cart["prelude"] == 6) & (cart["r"] > 1)]
    noise = np.random.default_rng(seed).normal(0.0, 1.0, (resamples, len(cart)))[:, cart.index.isin(same.index)]
    shifts = np.vstack([np.zeros(len(same)), noise * (SEED_SD / np.sqrt(same["seeds"].to_numpy()))])
    index = pd.MultiIndex.from_frame(same[["stage", "width", "r"]])
    tables: Any = pd.DataFrame((same["loss"].to_numpy() + shifts).T, index).unstack("r")
    return [tables[draw] for draw in range(resamples + 1)]


def of_cart(draws: Sequence[pd.DataFrame], curves: pd.DataFrame) -> list[Reported]:
    """Do more loops help CART (arXiv 2606.01495) at few and at many tokens; and of one model its curve over loops at
    test time. draws: ``cart_by_loops``."""

    def says(table: Any) -> Numbers:
        def gain(stage: int, width: int, few: int, many: int) -> float:  # lower loss with many loops, in nats
            return float(table[few][stage, width] - table[many][stage, width])

        wide = [(width, loops) for width in (512, 768, 1024) for loops in (8, 10)]
        first = {width: gain(1, width, 2, 8) for width in (256, 1024)}
        then = {width: gain(2, width, 6, 10) for width in (256, 1024)}
        return {
            ("005-cart-wants-six-loops-when-wide", "nats"): {
                f"width {width}, {loops} loops": -gain(2, width, 6, loops) for width, loops in wide
            },
            ("005-cart-wants-eight-loops-when-narrow", "nats"): {
                f"{loops} loops": gain(2, 256, loops, 8) for loops in (6, 10)
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

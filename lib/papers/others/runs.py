"""The runs that other groups published, in data/ (its README has sources and licences). Losses are nats per token of
each group's own text and tokenizer: nothing is compared across sets."""

from pathlib import Path

import numpy as np
import pandas as pd

DATA = Path(__file__).parent / "data"
THEIRS, CART = "2609.19107", "CART"  # whose runs: ``group``
UNITS = {"D_tokens": "D", "loss_nats": "loss", "compute_flops": "compute"}


def isoflop() -> pd.DataFrame:
    """arXiv 2609.19107, one row a run of five arms at five budgets: arm, depth, width, r, n_once and n_rec (blocks), N
    (stored, tables included), D, F training FLOPs per token, budget (their mean compute, alike in all arms), loss."""
    table = _committed("growth_isoflop").rename(columns={"N_stored": "N"})
    table["budget"] = table.groupby("budget_index")["compute"].transform("mean")
    return table.assign(F=table["compute"] / table["D"], group=THEIRS)


def loops() -> pd.DataFrame:
    """arXiv 2609.19107, 1e9 tokens in all: arm (tied, or untied with own weights in each pass), recipe, depth, width,
    loops, r (loops where tied, else 1), n_once, n_rec, D, epochs, compute, loss."""
    return _committed("growth_loops").assign(group=THEIRS)


def allocation() -> pd.DataFrame:
    """arXiv 2609.19107, two tied loops on 1e9 tokens with more and fewer of the stored blocks in the core: columns as
    ``loops``, and once_layers, core_layers."""
    return _committed("growth_allocation").assign(group=THEIRS)


def ladders(corpus: str = "fineweb") -> dict[str, pd.DataFrame]:
    """arXiv 2609.19107, compute-optimal models: arm -> its runs by compute; corpus, arm, depth, compute, loss."""
    rows = _committed("growth_ladders").query("corpus == @corpus").sort_values("compute")
    return {str(arm): own for arm, own in rows.groupby("arm", sort=False)}


def cart() -> pd.DataFrame:
    """arXiv 2606.01495, one row a configuration, means over its seeds: stage (1: 4.9e7 tokens, 2: 1e9), arm, width,
    prelude, r, seeds, n_once and n_rec (tables included, keys and values of the core counted as stored), D, and loss,
    the log of the perplexity on Wikipedia."""
    table = _committed("cart_runs")
    n_rec = table["core_M"] * 1e6
    return table.assign(n_rec=n_rec, n_once=table["stored_M"] * 1e6 - n_rec, loss=np.log(table["ppl_wiki"]), group=CART)


def test_time() -> pd.DataFrame:
    """Losses of trained models after T loops: group, model, size, trained_loops (mean), loop_sampling, T, loss."""
    small = _committed("cart_test_time")
    small["size"] = small["train_tokens"].map("{:.3g} tokens".format)
    return pd.concat([_committed("growth_test_time"), small], ignore_index=True)[
        ["group", "model", "size", "trained_loops", "loop_sampling", "T", "loss"]
    ]


def _committed(name: str) -> pd.DataFrame:
    return pd.read_csv(DATA / f"{name}.csv").rename(columns=UNITS)

"""The runs that other groups published: those in data/ (its README has sources and licences), and those that may not be
committed, read from a folder that the user names. Losses are nats per token of each group's own text and tokenizer:
nothing is compared across sets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base.errors import InputError

DATA = Path(__file__).parent / "data"
UNITS = {"D_tokens": "D", "loss_nats": "loss", "compute_flops": "compute"}
#: sets that the user may have in a folder -> the columns that are read of them
OUTSIDE = {
    "chinchilla_figure": ("N", "D_tokens", "loss_nats"),
    "isoflops_open": ("experiment", "budget_flops", "N", "D_tokens", "loss", "outlier"),
    "test_time_small": ("group", "model", "train_tokens", "trained_loops", "loop_sampling", "T", "loss_nats"),
}

# ---- committed -------------------------------------------------------------------------------------------------------


def isoflop() -> pd.DataFrame:
    """arXiv 2609.19107, one row a run of five arms at five budgets: arm, depth, width, r, n_once and n_rec (blocks), N
    (stored, tables included), D, F training FLOPs per token, budget (their mean compute, alike in all arms), loss."""
    table = _committed("growth_isoflop").rename(columns={"N_stored": "N"})
    table["budget"] = table.groupby("budget_index")["compute"].transform("mean")
    return table.assign(F=table["compute"] / table["D"])


def loops() -> pd.DataFrame:
    """arXiv 2609.19107, 1e9 tokens in all: arm (tied, or untied with own weights in each pass), recipe, depth, width,
    loops, r (loops where tied, else 1), n_once, n_rec, D, epochs, compute, loss."""
    return _committed("growth_loops")


def allocation() -> pd.DataFrame:
    """arXiv 2609.19107, two tied loops on 1e9 tokens with more and fewer of the stored blocks in the core: columns as
    ``loops``, and once_layers, core_layers."""
    return _committed("growth_allocation")


def ladders() -> pd.DataFrame:
    """arXiv 2609.19107, compute-optimal models: corpus, arm, depth, compute, loss."""
    return _committed("growth_ladders")


def cart() -> pd.DataFrame:
    """arXiv 2606.01495, one row a configuration, means over its seeds: stage (1: 4.9e7 tokens, 2: 1e9), arm, width,
    prelude, r, seeds, n_once and n_rec (tables included, keys and values of the core counted as stored), D, and loss,
    the log of the perplexity on Wikipedia."""
    table = _committed("cart_runs")
    n_rec = table["core_M"] * 1e6
    return table.assign(n_rec=n_rec, n_once=table["stored_M"] * 1e6 - n_rec, loss=np.log(table["ppl_wiki"]))


def test_time(outside: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Losses of trained models after T loops: group, model, size, trained_loops (mean), loop_sampling, T, loss. Those
    of data/, and of ``outside`` (``of_folder``) where it has more."""
    small = [outside["test_time_small"]] if "test_time_small" in outside else [_committed("cart_test_time")]
    sizes = [table.assign(size=table["train_tokens"].map("{:.3g} tokens".format)) for table in small]
    columns = ["group", "model", "size", "trained_loops", "loop_sampling", "T", "loss"]
    return pd.concat([_committed("growth_test_time"), *sizes], ignore_index=True)[columns]


def _committed(name: str) -> pd.DataFrame:
    return pd.read_csv(DATA / f"{name}.csv").rename(columns=UNITS)


# ---- in a folder of the user's ---------------------------------------------------------------------------------------


def of_folder(others: str) -> dict[str, pd.DataFrame]:
    """Set -> its rows, for those of OUTSIDE that the folder has; none where ``others`` is empty. Raises InputError for
    a folder without any of them, and for a file that lacks a column or holds what is no number."""
    if not others:
        return {}
    paths = {name: Path(others).expanduser() / f"{name}.csv" for name in OUTSIDE}
    there = {name: path for name, path in paths.items() if path.is_file()}
    if not there:
        known = ", ".join(path.name for path in paths.values())
        raise InputError(f"others: {others!r} has none of {known}, give the folder that has one of them, or nothing")
    return {name: _read(path, OUTSIDE[name]) for name, path in there.items()}


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"others: {path} is no table ({reason}), mend it or take it away") from None
    missing = [column for column in columns if column not in table]
    if missing:
        raise InputError(f"others: {path} has no column {missing[0]}, its README in lib/papers/others/data names all")
    words = ("experiment", "group", "model", "loop_sampling", "outlier")
    for column in [name for name in columns if name not in words]:
        if not pd.api.types.is_numeric_dtype(table[column]) or not np.isfinite(table[column]).all():
            raise InputError(f"others: {path}: {column} is not a number in every row, mend these or take them out")
    return table.rename(columns=UNITS)

"""Which runs train, and the lowest learning rate that does not: 001, Sec. "Understanding Instability".

Works on data frames with one row a run and columns architecture, lr, seed, status and val_loss.
"""

from typing import Any

import numpy as np
import pandas as pd

from lib.config import DataConfig, Label, OptimConfig, RunConfig, TrainConfig
from lib.presets import instability_model


def run(p: dict[str, Any], architecture: str, lr: float, seed: int) -> RunConfig:
    """An architecture in 001's RDM set-up, with the sizes, schedule and text of a notebook's parameters ``p``."""
    sizes = ("vocab_size", "width", "heads", "mlp", "mlp_width", "qk_norm", "context", "mean_loops", "backprop_loops")
    schedule = ("warmup_steps", "cooldown_steps", "update_clipping")
    training = ("steps", "batch", "precision", "max_state_rms")
    return RunConfig(
        model=instability_model(architecture, **{name: p[name] for name in sizes}),
        data=DataConfig.of(p),
        optim=OptimConfig(lr=lr, **{name: p[name] for name in schedule}),
        train=TrainConfig(seed=seed, micro_batch=p["micro_batch"] or None, **{name: p[name] for name in training}),
    )


def against_rdm(p: dict[str, Any], setup: dict[str, Any]) -> dict[Label, RunConfig]:
    """(architecture, d, seed) -> run: Parcae and the residual-normalised RDM at ``rdm_widths`` and ``rdm_lr`` (001,
    Table "Zero-Shot and Perplexity Results Trained on RDM Setup"), as the parameters ``setup`` of ``instability``
    otherwise have it. Parcae is the one that is compared there, with or without C and prelude norm."""
    parcae = "parcae" if "parcae" in setup["architectures"] else "parcae-rdm"
    shapes = {
        d: {"width": d, "heads": max(1, d * setup["heads"] // setup["width"]),
            "mlp_width": d * setup["mlp_width"] // setup["width"]}
        for d in p["rdm_widths"]
    }  # fmt: skip
    return {
        (name, d, seed): run({**setup, **shape}, name, p["rdm_lr"], seed)
        for d, shape in shapes.items() for name in ("residual-norm", parcae) for seed in p["seeds"]
    }  # fmt: skip


def trains(frame: pd.DataFrame, loss_limit: float) -> pd.Series:
    """True for runs that neither blew up nor ended above ``loss_limit`` (what a model of that order knows of the text).

    Gradient clipping keeps the loss of an exploded run finite, so that a finite loss says nothing by itself.
    """
    return (frame["status"] == "finished") & (frame["val_loss"] <= loss_limit)


def largest(curves: pd.DataFrame, quantity: str) -> pd.Series:
    """The largest value of a logged quantity in each run, by key."""
    return curves.groupby("key")[quantity].max()


def lowest_failing_rate(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a seed, one column an architecture: the lowest rate of the ladder at which it does not train.

    inf where it trains at every rate: the ladder says only that it fails, if at all, above its top.
    """
    failing = frame[~frame["trains"]].groupby(["seed", "architecture"])["lr"].min().unstack()
    failing = failing.reindex(index=sorted(frame["seed"].unique()), columns=frame["architecture"].unique())
    return failing.astype(float).fillna(np.inf)


def octaves_between(lowest: pd.DataFrame, low: str, high: str, top: float) -> list[float]:
    """log2(rate of ``high`` / rate of ``low``) for each seed: positive where ``low`` fails first.

    An architecture that never fails counts with the ladder's top, which understates the distance.
    """
    rates = lowest[[low, high]].clip(upper=top)
    return np.log2(rates[high] / rates[low]).tolist()


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The paper's table: rates down, architectures across, and how many of the seeds train."""
    counts = frame.groupby(["lr", "architecture"], sort=False)["trains"].agg(["sum", "size"])
    marks = counts.apply(lambda row: f"{row['sum']} of {row['size']} train", axis=1).unstack()
    return marks[list(frame["architecture"].unique())].sort_index()


def radius_margins(frame: pd.DataFrame, architecture: str, trains: bool, seeds: list[int]) -> list[float]:
    """For each seed by how much, in log, the paper's split holds: the least log rho_max of the runs that do not train
    (rho >= 1 wants it positive), or the least -log rho_max of those that do. nan where there is no such run."""
    runs = frame[(frame["architecture"] == architecture) & (frame["trains"] == trains)]
    log_rho = np.log(runs["rho_max"]) * (-1 if trains else 1)
    return log_rho.groupby(runs["seed"]).min().reindex(seeds).tolist()


def state_ratios(frame: pd.DataFrame, exploding: str, other: str, lowest: pd.DataFrame) -> list[float]:
    """log10 of ``exploding``'s largest state rms over ``other``'s, for each seed at the lowest rate where ``exploding``
    does not train; nan where it always trains."""
    rms: dict[Any, float] = frame.set_index(["architecture", "seed", "lr"])["max_state_rms"].to_dict()
    return [
        float(np.log10(rms[exploding, seed, lr] / rms[other, seed, lr])) if np.isfinite(lr) else np.nan
        for seed, lr in lowest[exploding].items()
    ]

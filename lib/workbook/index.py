"""The index beside a profile's records: under which label a notebook asks for a run, and how large it is, so that the
records can be read alone. And what every column of the records says."""

import json
from typing import Any

import pandas as pd

from lib.config import RunConfig
from lib.flops import count, run_flops
from lib.store import records
from lib.store.result import CURVES, ENDS, FAMILIES, MADE, MADE_BY, MEASURED, SUMMARY, WHO, Column, row_types
from lib.workbook import places, plans

#: beside the records of these profiles, whose runs notebooks ask for
NAME, PROFILES = "index.parquet", ("desk", "addendum", "second-text", "gpu")
COLUMNS = [
    Column("notebook", "text", "one that asks for the run; a run that several ask for has a row with each"),
    Column("label", "text", "what it calls the run there, as a JSON list: the group, then what sets it apart"),
    Column("budget", "float", "FLOPs that the label names, as its paper counts; else of the training, by lib/flops.py"),
    Column("n_params", "int", "parameters, tables among them"),
    Column("n_once", "int", "parameters that run once in a pass, without tables"),
    Column("n_rec", "int", "parameters in the loop, without tables, the injection among them"),
    Column("r", "int", "mean loops in training"),
    Column("tokens", "int", "tokens that the run is to be trained on"),
]


def write() -> None:
    """Beside the records of every profile in ``PROFILES``."""
    for profile in PROFILES:
        index(profile).to_parquet(places.RECORDS / profile / NAME, index=False, compression="zstd")


def index(profile: str) -> pd.DataFrame:
    """A row for each label under which a notebook asks for a run of the records."""
    there = {*records.of(places.RECORDS / profile).keys}
    rows = []
    for _, notebook, plan in plans.planned(profile):
        for label, cfg in plan.labels.items():
            if cfg.key in there:
                counts = count(cfg.model, cfg.data.context)
                rows.append(
                    {
                        "key": cfg.key,
                        "notebook": notebook,
                        "label": json.dumps(label, default=str),
                        "budget": records.budget_of(label) or run_flops(cfg),
                        "n_params": counts.n_params,
                        "n_once": counts.n_once,
                        "n_rec": counts.n_rec,
                        "r": cfg.model.mean_loops,
                        "tokens": cfg.tokens,
                    }
                )
    return pd.DataFrame(rows)


def columns() -> dict[str, list[Column]]:
    """Table of the records -> its columns; every profile's have the same."""
    key = Column("key", "text", "the run's key, a hash of all that decides its numbers")
    status = Column(
        "status", "text", "finished, or diverged: the state's rms passed max_state_rms, or it was no number"
    )
    fields = [Column(name, kind, _says(name)) for name, kind in row_types().items()]
    ends = [one._replace(name=SUMMARY + one.name) for one in ENDS]
    families = [Column(f"{family}...", "float", says) for family, says in FAMILIES.items()]
    made_by = {one.name: one._replace(name=MADE + one.name) for one in MADE_BY}
    return {
        "index": [key, *COLUMNS],
        "runs": [key, *fields, status, *ends, *made_by.values()],
        "curves": [key, *CURVES, *families],
        "measured": [*MEASURED, *(column for name, column in made_by.items() if name in WHO)],
    }


def _says(name: str) -> str:
    """What a field's own description says; else that lib/config.py has it."""
    part, _, field = name.partition(".")
    config: Any = RunConfig.model_fields[part].annotation
    return str(config.model_fields[field].description or f"{field.replace('_', ' ')}, as in lib/config.py")

"""The open table of losses, data/losses.parquet: a row a run of ours or of those that other groups published.
data/losses.md says what its columns mean.

    losses.made().to_parquet(losses.FILE, index=False, compression="zstd")  # where records were added
"""

import hashlib
import json
import re
from pathlib import Path

import pandas as pd

from lib.base.errors import InputError
from lib.fit.bakeoff import named
from lib.fit.laws import columns
from lib.papers.isodepth import published
from lib.papers.others import runs
from lib.store import records

FILE, RECORDS = runs.DATA / "losses.parquet", Path(__file__).parents[3] / "outputs" / "records"
WORDS, WHOLE, NEEDED = ["source", "set", "arm"], ["width", "r", "seed"], ["N", "D", "loss"]
COLUMNS = [*WORDS, "width", "r", "N", "N_once", "N_rec", "D", "FLOPs", "budget", "loss", "seed", "split"]
#: in a label, what a column says; a ladder's first number is tokens a parameter of the unlooped model, which D tells
SAID = re.compile(r"(\b(r|mean_loops|d) = \d+|\b\d{7,}(\.\d+)?|\b[\d.]+e\+?\d+( FLOPs)?|(?<=^ladder, )[\d.]+)(, |$)")


def table() -> pd.DataFrame:
    return pd.read_parquet(FILE)


def made(folder: Path = RECORDS) -> pd.DataFrame:
    """``table`` anew from the records of ``folder`` and the published runs: finished runs alone, each once, in an order
    that does not depend on that of the sources."""
    return _tidy(pd.concat([*(_recorded(folder, one) for one in ("desk", "addendum", "gpu")), *_published()]))


def read(path: Path | str, **names: str) -> pd.DataFrame:
    """A CSV or Parquet file in the columns of ``table``, each by the name that ``names`` give it, or its own: D =
    "D_tokens". N, D and loss have to be there, N perhaps as N_once and N_rec. What else is not stays empty; source and
    set are then the file's name. Raises InputError for what is missing or cannot be."""
    if unknown := names.keys() - {*COLUMNS}:
        raise InputError(f"{min(unknown)}: is no column of the table, which has {', '.join(COLUMNS)}")
    path, found = Path(path), named(path, names, WORDS)
    columns(found, ["D", "loss", *(["N_once", "N_rec"] if {"N_once", "N_rec"} <= {*found} else ["N"])])
    for name in found.columns.intersection(COLUMNS).difference([*WORDS, "split"]):
        x = pd.to_numeric(found[name], errors="coerce").astype("float64")
        possible = (x % 1 == 0) if name in WHOLE else x.between(0, 1e99, "right" if name in NEEDED else "both")
        if (bad := ~possible & (found[name].notna() | (name == "loss"))).any():
            raise InputError(
                f"{name}: row {bad.to_numpy().argmax()} of {path.name}, counted from 0, has nothing that it can be, "
                "mend it or leave the row out"
            )
    return _tidy(found.reindex(columns=COLUMNS).fillna({"source": path.stem, "set": path.stem, "arm": "baseline"}))


def split(runs: pd.DataFrame) -> pd.Series:
    """ "test" or "train". Whole budgets of a set are for tests, in the order of the SHA-256 of "source:budget", until a
    tenth of its runs is among them. Where a run has no budget, its rung of tokens and width stand for one. The last
    budget is never taken, so that a set with one is all for training."""
    names = [
        f"{source}:{budget:.4g}" if budget > 0 else f"{source}:{width}:{D:.2g}"
        for source, budget, width, D in runs[["source", "budget", "width", "D"]].astype(object).to_numpy()
    ]
    digests = [int(hashlib.sha256(name.encode()).hexdigest()[:13], 16) for name in names]  # a float has 13 digits
    sets = pd.Series(digests, runs.index, float).groupby([runs["source"], runs["set"]])
    before, after = sets.rank("min") - 1, sets.transform("size") - sets.rank("max")
    return ((10 * before < sets.transform("size")) & (after > 0)).map({True: "test", False: "train"})


def _tidy(found: pd.DataFrame) -> pd.DataFrame:
    whole = found.rename(columns={"n_once": "N_once", "n_rec": "N_rec"}).reindex(columns=COLUMNS)
    return (
        whole.astype(
            dict.fromkeys(COLUMNS[:-1], "float64") | dict.fromkeys(WHOLE, "Int64") | dict.fromkeys(WORDS, "str")
        )
        .assign(N=lambda of: of["N"].fillna(of["N_once"] + of["N_rec"]))
        .sort_values([*WORDS, "budget", "width", "r", "D", "seed", "loss"], ignore_index=True)
        .assign(split=split)
    )


def _recorded(folder: Path, profile: str) -> pd.DataFrame:
    finished = records.table(folder / profile).query("status == 'finished' and val_loss.notna()")
    ends = {"key": "key", "model.width": "width", "train.seed": "seed", "train_flops": "FLOPs", "val_loss": "loss"}
    # what several notebooks ask for is of the first in the index, which has them in the order of the papers
    both = (
        pd.read_parquet(folder / profile / "index.parquet")
        .drop_duplicates("key")
        .merge(finished[[*ends]].rename(columns=ends))
        .rename(columns={"notebook": "set", "tokens": "D"})
    )
    return both.assign(
        source=profile,
        budget=both["label"].map(json.loads).map(records.budget_of),
        arm=[*map(_arm, both["label"], both["width"], both["r"], both["seed"])],
    )


def _arm(label: str, *told: int) -> str:
    words = [x if isinstance(x, str) else json.dumps(x) for x in json.loads(label)]
    for number in map(str, told):
        if number in words:
            words.remove(number)  # once: another that is as large means something else
    return SAID.sub("", ", ".join(words)).strip(", ") or "baseline"


def _published() -> list[pd.DataFrame]:
    iso, cart, loops = published.runs("loop"), runs.cart(), runs.loops()
    grown = {
        "growth_isoflop": runs.isoflop().drop(columns="N"),  # with tables
        "growth_loops": loops.assign(arm=loops["arm"] + ", " + loops["recipe"]),
        "growth_allocation": runs.allocation().assign(arm="loop_2"),
        "growth_ladders": pd.concat(
            own.assign(arm=f"{corpus}, {arm}", width=128 * own["depth"])
            for corpus in ("fineweb", "fineweb_edu")
            for arm, own in runs.ladders(corpus).items()
        ),
    }
    return [
        iso.assign(source="000", set="isodepth", arm=iso["probe"], FLOPs=iso["budget"], seed=None),
        cart.assign(
            source=runs.CART,
            set="cart_runs",
            arm=cart["arm"] + cart["prelude"].map(", prelude {:.0f}".format, na_action="ignore").fillna(""),
            N=cart["stored_M"] * 1e6,
        ),
        *(own.assign(source=runs.THEIRS, set=name, FLOPs=own["compute"]) for name, own in grown.items()),
    ]

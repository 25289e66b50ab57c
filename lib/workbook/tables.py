"""The tables of README.md and docs/: what the notebooks ask, what they cost, and what they found.

The prose around them is written by hand. ``.venv/bin/python -c 'from lib.workbook.tables import write; write()'`` puts
the tables between their marks (lib/workbook/markdown.py), and a test sees that they are up to date.
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import nbformat

from lib.flops import run_flops
from lib.sweep.cluster import memory_of
from lib.workbook import audit, claims, findings, parameters, places
from lib.workbook.costs import MOMENTS, NOTEBOOKS, WEIGHT, Cost, by_budget, cells, costs, hours, text_bytes, weights
from lib.workbook.findings import Judged, counted
from lib.workbook.markdown import filled, table

README = places.ROOT / "README.md"
SCALE, CLAIMS = (places.ROOT / "docs" / f"{name}.md" for name in ("scale", "claims"))
PLACE = re.compile(r"(Sec\.|App\.|Figs?\.|Tables?|the figure|the table|Alg\.|Eq\.).*")  # in a paper
#: GPU hours that the papers state
STATED = {"000": "about 5,000", "004": "about 2,000"}
#: grids with FLOP budgets, and the parameter that lists what is compared at each
GRIDS = {
    "isodepth_isoflop": "recurrences",
    "phi_probes": "",
    "looping_isoflop": "loops",
    "usage_weighted": "",
    "moe_isoflop": "architectures",
}


def write() -> None:
    """Puts the parts into their documents."""
    for path, parts in documents().items():
        path.write_text(filled(path.read_text(), parts))


def documents() -> dict[Path, dict[str, str]]:
    """Document -> the name of a part of it -> the part."""
    every = findings.judged()
    return {
        README: {
            "found": findings.found(every),
            "numbers": findings.in_numbers(every),
            "papers": findings.papers(),
            "audit": audit.told(findings.RECORDS),
            "notebooks": overview(every),
        },
        CLAIMS: {"claims": findings.entries(every)},
        SCALE: {
            "cpu": distinct("cpu"),
            "desk": distinct("desk"),
            "sum": in_short(),
            "papers": papers(),
            "notebooks": notebooks(),
            "growth": growth(),
        },
    }


# ---- README.md -------------------------------------------------------------------------------------------------------


def overview(every: Sequence[Judged]) -> str:
    """One row a notebook: its file, what it asks and where in which paper the claim stands, and the verdicts of its
    claims on our runs and on published ones; all of the latter in the row of the notebook that reads these."""
    rows = []
    for paper, names in NOTEBOOKS.items():
        for name in names:
            title, where = heading(name)
            own = [one for one in every if one.claim.notebook == name]
            on_runs = every if name == claims.OF_PUBLISHED else own
            place = ", ".join([*map(findings.authors, sorted({one.claim.paper for one in own}) or [paper]), where])
            rows.append(
                {
                    "notebook": _links(name),
                    "question": f"{title} ({place.removesuffix(', ')})".removesuffix(" ()"),
                    "verdicts": _both(counted(one.ours for one in own), counted(one.published for one in on_runs)),
                }
            )
    return table(rows)


def _links(name: str) -> str:
    """To a notebook's file, and to where Binder opens it, if it does."""
    binder = places.binder(name)
    return f"[{name}](notebooks/{name}.ipynb)" + (f", [open in Binder]({binder})" if binder else "")


def _both(ours: str, on_runs: str) -> str:
    """The verdicts on our runs and on published ones, in one cell."""
    said = {f"at {findings.PROFILE}": ours, findings.ON_RUNS: on_runs}
    return "; ".join(f"{where}: {what}" for where, what in said.items() if what) or "no claims"


def heading(name: str) -> tuple[str, str]:
    """(a notebook's title, where in its paper the claim stands, empty where none does), from its first cell."""
    text = nbformat.read(places.NOTEBOOKS / f"{name}.ipynb", as_version=4).cells[0].source
    title = text.partition("\n")[0].removeprefix("# ")
    claim = re.search(r"\*\*Claim\*\* \((.*?)\)[.:]\s", " ".join(text.split()))
    where = PLACE.search(claim.group(1)) if claim else None
    return title, where.group() if where else ""


# ---- docs/scale.md ---------------------------------------------------------------------------------------------------


def distinct(profile: str) -> str:
    """What a profile trains, in a sentence."""
    own = [cfg for cost in costs(profile).values() for cfg in cost.own]
    seeds = {cfg.train.seed for cfg in own}
    return f"{len(own):,} distinct runs with {len(seeds)} seeds, {sum(map(run_flops, own)):.2g} FLOPs."


def in_short() -> str:
    """What to know first, in sentences."""
    every = costs("paper")
    own = [cfg for cost in every.values() for cfg in cost.own]
    flops = sum(cost.flops for cost in every.values())
    without_002 = flops - sum(every[name].flops for name in NOTEBOOKS["002"])
    first = cells(own).values()
    longest, widest = max(own, key=run_flops), max(own, key=memory_of)
    of = next(cost.notebook for cost in every.values() if longest in cost.own)
    all_hours, other_hours, first_hours, longest_hours = (
        _whole(hours(each)) for each in (flops, without_002, sum(map(run_flops, first)), run_flops(longest))
    )
    size, memory = _short(weights(widest)), _bytes(memory_of(widest))
    return f"""\
- Everything: {len(own):,} distinct runs, {flops:.2g} FLOPs, {all_hours} GPU hours; without 002, whose runs read 10
  billion tokens each, {other_hours}.
- One seed of everything, the first: {len(first):,} runs, {first_hours} GPU hours.
- The longest run, of `{of}`, takes {longest_hours} hours on one GPU: a run is given one unless
  `RUN_GPUS` says more, and the whole takes as long as its longest run.
- The largest run, of {size} parameters, needs about {memory} of a GPU's memory."""


def papers() -> str:
    """One row a paper, and their sum."""
    every = costs("paper")
    rows = [_paper(paper, [every[name] for name in names]) for paper, names in NOTEBOOKS.items()]
    return table([*rows, _paper("all", list(every.values()))])


def _paper(paper: str, parts: Sequence[Cost]) -> dict[str, str]:
    own = [cfg for cost in parts for cfg in cost.own]
    flops = sum(cost.flops for cost in parts)
    return {
        "paper": paper,
        "runs": f"{len(own):,}",
        "FLOPs": f"{flops:.2g}",
        "GPU hours": _whole(hours(flops)),
        "the paper states": STATED.get(paper, "" if paper == "all" else "nothing"),
        "longest run, hours": _whole(max(hours(run_flops(cfg)) for cfg in own)),
        "text": _bytes(text_bytes(own)),
        "store": _bytes(WEIGHT * sum(map(weights, own))),
    }


def notebooks() -> str:
    """One row a notebook."""
    return table([_notebook(cost) for cost in costs("paper").values()])


def _notebook(cost: Cost) -> dict[str, str]:
    runs, sizes = cost.runs, [weights(cfg) for cfg in cost.runs]
    measured = f" + {cost.measurements:,} measured" if cost.measurements else ""
    return {
        "notebook": f"`{cost.notebook}`",
        "runs": f"{len(cost.own):,}{measured}",
        "besides, from": ", ".join(f"{n} `{name}`" for name, n in cost.shared.items()),
        "parameters": _range(sizes),
        "tokens": _short(sum(cfg.tokens for cfg in cost.own)),
        "FLOPs": f"{cost.flops:.2g}",
        "GPU hours": _whole(hours(cost.flops)),
        "longest run, hours": _whole(max((hours(run_flops(cfg)) for cfg in runs), default=0)),
        "text": _bytes(text_bytes(runs)),
        "store": _bytes(WEIGHT * sum(map(weights, cost.own))),
        "checkpoint": _bytes((WEIGHT + MOMENTS) * max(sizes, default=0)),
        "memory": _bytes(max(map(memory_of, runs), default=0)),
    }


def growth() -> str:
    """One row a grid with FLOP budgets: the runs and the cost at each budget, and what one more of something costs."""
    rows = []
    for name, compared in GRIDS.items():
        given = parameters.of_profile("paper", name)
        budgets = [*(given.get("budgets") or given["widths"]), *itertools.chain(*given.get("budgets_at", {}).values())]
        at = by_budget(costs("paper")[name].runs, sorted({float(budget) for budget in budgets}))
        total = sum(len(runs) * budget for budget, runs in at.items())
        once = sum(len(cells(runs)) * budget for budget, runs in at.items())
        largest = max(at) * len(at[max(at)])
        rows.append(
            {
                "grid": f"`{name}`",
                "runs x budget": ", ".join(f"{len(runs)} x {budget:.3g}" for budget, runs in at.items()),
                "FLOPs": f"{total:.2g}",
                "share of the largest budget": f"{largest / total:.0%}",
                "one more budget, 10 times the largest": f"{10 * largest:.2g}",
                "one more seed of every cell": f"{once:.2g}",
                "one more recurrence or architecture": f"{once / len(given[compared]):.2g}" if compared else "",
            }
        )
    return table(rows)


# ---- numbers in a cell -----------------------------------------------------------------------------------------------


def _whole(value: float) -> str:
    """Hours; nothing for none."""
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else "below 0.1"


def _range(values: Sequence[int]) -> str:
    """From the least to the most, where they differ."""
    low, high = (_short(least(values)) for least in (min, max)) if values else ("", "")
    return low if low == high else f"{low} to {high}"


def _short(value: float) -> str:
    """Three digits and a unit; nothing for 0."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value else ""


def _bytes(value: float) -> str:
    """GB or TB; nothing for 0."""
    if not value:
        return ""
    unit, size = ("TB", 1e12) if value >= 1e12 else ("GB", 1e9)
    return f"{value / size:,.2g} {unit}" if value / size < 10 else f"{value / size:,.0f} {unit}"

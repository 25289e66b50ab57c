"""What README.md and docs/ tell: the notebooks, the most telling findings, every claim, what runs cost, the columns of
the records.

Verdicts are those beside desk's records, and costs are counted from the notebooks' plans, so that nothing has to be run
to write them. The prose is written by hand. ``.venv/bin/python -c 'from lib.workbook.documents import write; write()'``
puts the tables between their marks, and a test sees that they are up to date.
"""

import collections
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import yaml

from lib.figures.style import short
from lib.flops import count, run_flops
from lib.store.result import Column
from lib.sweep.cluster import memory_of
from lib.workbook import audit, claims, index, places, plans, verdicts
from lib.workbook.claims import CONTRADICTED, INCOMPARABLE, OPEN, REPRODUCED, UNJUDGED, Claim

README = places.ROOT / "README.md"
SCALE, CLAIMS, VERDICTS = (places.ROOT / "docs" / f"{name}.md" for name in ("scale", "claims", "verdicts"))
CARD = places.RECORDS / "README.md"
RECORDS = places.VERDICTS.parent
OURS = "ours"  # whose claims those are that no paper makes
AT_DESK, ON_RUNS, AT_ADDENDUM, ON_VERSE = "at desk", "on published runs", "at addendum", "at second-text"
SCALES = {AT_DESK: "our small models", ON_RUNS: "published runs"}  # as README calls them
FORETOLD = (  # by what verdicts.agreement says
    "Both scales judge {judged by both} claims. Of {decided by both} that both decide {alike} came out the same, "
    "{rate} with its 95 % interval; where ours is reproduced, {where ours is reproduced}. One guess for all would be "
    "right on {by one guess for all}."
)
PEAK, UTILISATION = 989e12, 0.4  # FLOP/s of an H200 (and an H100) in dense bf16, and the share that training is given

#: claim -> where it was judged, one of the four -> the row of its verdict (``verdicts.COLUMNS``)
Judged = Mapping[Claim, Mapping[str, Mapping[str, Any]]]


def write() -> None:
    """Puts the parts into their documents, and the indices beside the records."""
    index.write()
    for path, parts in documents().items():
        path.write_text(filled(path.read_text(encoding="utf-8"), parts), encoding="utf-8")


def documents() -> dict[Path, dict[str, str]]:
    """Document -> the name of a part of it -> the part."""
    every = judged()
    return {
        README: {"found": found(every), "numbers": in_numbers(every), "notebooks": overview(every)},
        CLAIMS: {"claims": entries(every)},
        places.EXPLAINED: {"explained": explained(every)},
        SCALE: scale(),
        VERDICTS: {"rests": rests(every), **summed(every), "columns": described(verdicts.COLUMNS)},
        CARD: {name: described(listed) for name, listed in index.columns().items()}
        | {"audit": audit.told(verdicts.committed(RECORDS)["audit"])},
    }


# ---- Markdown --------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of heading -> cell, all with the same headings."""
    lines = [[*rows[0]], ["---"] * len(rows[0]), *(row.values() for row in rows)] if rows else []
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escaped(text: str) -> str:
    """Plain text for a cell or a link, whose asterisks, bars and angles are no marks."""
    return re.sub(r"([*|<>])", r"\\\1", text)


def filled(text: str, parts: Mapping[str, str]) -> str:
    """The text with each part put between ``<!-- NAME -->`` and ``<!-- /NAME -->``, in place of what stands there.

    Raises ValueError where the marks of a part are missing."""
    for name, part in parts.items():
        there = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
        if there is None:
            raise ValueError(f"{name}: the document has no marks of this name")
        text = f"{text[: there.start(1)]}{part}\n{text[there.end(1) :]}"
    return text


def described(listed: Iterable[Column]) -> str:
    """A table with a line a column."""
    return table([{"column": f"`{one.name}`", "type": one.kind, "says": one.says} for one in listed])


# ---- verdicts in words -----------------------------------------------------------------------------------------------


def judged() -> Judged:
    """All claims with the verdicts beside the records, desk's first, paper by paper, in the ledger's order."""
    said = [
        row
        for folder in places.JUDGED
        for row in verdicts.committed(folder)["verdicts"]
        if row["verdict"] != UNJUDGED and (folder == RECORDS or row["profile"] == folder.name)
    ]
    rows, at = verdicts.grouped(said, lambda row: row["claim"]), {claims.PUBLISHED: ON_RUNS}
    return {
        claim: {at.get(row["profile"], f"at {row['profile']}"): row for row in rows.get(claim.id, [])}
        for claim in sorted(claims.ledger(places.LEDGER).values(), key=lambda claim: claim.paper)
    }


def verdict(said: Mapping[str, Mapping[str, Any]]) -> str:
    """The verdicts of a claim with their numbers; "open" where nothing has judged it."""
    told = [
        ": ".join(filter(None, [f"{verdicts.outcome(row)} {where}", verdicts.number(row)]))
        for where, row in said.items()
    ]
    return "; ".join(told) or OPEN


def rests(every: Judged) -> str:
    """The claims of desk that resamples judge, by seeds and by the form of the law, too: how many come to another
    verdict, and a row each."""
    ours = {
        claim: said[AT_DESK] for claim, said in every.items() if said.get(AT_DESK, {}).get("replicates") == "resamples"
    }
    both = {claim: found for claim, row in ours.items() if (found := claims.by_seeds(claim, row))}
    judged = [(ours[claim]["first"], found) for claim, found in both.items() if found.seeds[0] != INCOMPARABLE]
    others = collections.Counter(row["notebook"] for claim, row in ours.items() if claim not in both)
    why = collections.Counter(found.reason for _, found in judged if found.reason)
    said = (
        f"Resamples judge {len(ours)} claims at desk. {len(both)} also have a number for each seed, {len(judged)} of "
        f"these a verdict. {why.total()} of them change: {sum(found.seeds[0] != first for first, found in judged)} by "
        f"seeds, {sum(found.form[0] != first for first, found in judged)} by seeds and form; "
        f"{', '.join(f'{reason} ({n})' for reason, n in why.most_common())}. Without such numbers are claims of "
        f"{', '.join(f'`{name}` ({n})' for name, n in others.items())}."
    )
    rows = [
        {
            "claim": f"[{claim.id}](claims.md#{anchor(claim.id)})",
            "the ledger": f"{row['first'].removesuffix(' at this scale')} {verdicts.number(row)}",
            "by seeds": verdicts.judgement(both[claim].seeds),
            "by seeds and form": verdicts.judgement(both[claim].form) if row["by_form"] else "none by another form",
            "why they differ": both[claim].reason,
        }
        for claim, row in ours.items()
        if claim in both
    ]
    return f"{said}\n\n{table(rows)}" if rows else said


# ---- the papers ------------------------------------------------------------------------------------------------------


@functools.cache
def cited() -> dict[str, list[dict[str, Any]]]:
    """A paper's number here -> its entries in CITATION.cff; other groups' papers share one."""
    entries = yaml.safe_load((places.ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    return verdicts.grouped(entries, lambda entry: entry["notes"][:3])


def authors(number: str) -> str:
    """Who wrote a paper, in short: "Chen et al.", "Capps"; those of several papers in a row; the title where the paper
    names nobody."""
    return ", ".join(map(_short, cited().get(number, [])))


def _short(entry: dict[str, Any]) -> str:
    first, *others = entry["authors"]
    return first.get("family-names", entry["title"]) + (" et al." if others else "")


def source(entry: dict[str, Any]) -> str:
    """Authors in short, title, and number on arXiv where there is one."""
    on_arxiv = entry.get("url", "").replace("https://arxiv.org/abs/", "arXiv ")
    names = dict.fromkeys((_short(entry), entry["title"], on_arxiv))  # where nobody is named the title is both
    return ", ".join(filter(None, names))


def place(claim: Claim) -> str:
    """Where a claim stands: authors, and the place in their paper. Of several papers that share a number, ``where``
    begins with the one on arXiv."""
    if claim.paper not in cited():
        return f"{OURS}, {claim.where}"
    entries = cited()[claim.paper]
    named = [entry for entry in entries if entry.get("url", "").rpartition("/")[2] in claim.where]
    (entry,) = named or entries
    return f"{_short(entry)}, {claim.where}"


# ---- README.md -------------------------------------------------------------------------------------------------------


def found(every: Judged) -> str:
    """The findings that README tells: claims with a ``short`` statement, with the verdicts of both scales, and where to
    see more; and from how many they were chosen."""
    told = [
        {"what the paper says": escaped(claim.short)}
        | {heading: said[at]["verdict"] if at in said else "none published" for at, heading in SCALES.items()}
        | {"see": f"[claim](docs/claims.md#{anchor(claim.id)}), {_see(claim, 'docs/')}"}
        for claim, said in every.items()
        if claim.short
    ]
    firm = collections.Counter(
        row["verdict"] for row in _rows(every) if row["replicates"] != "exact" and (row["again"] or 0) >= claims.FRAGILE
    )
    return (
        f"{table(told)}\n\nWe chose these findings by hand, after judging, among the {firm[REPRODUCED]} reproduced and "
        f"{firm[CONTRADICTED]} contradicted verdicts on trained models "
        "that are [firm](docs/verdicts.md#how-firm-it-is-and-what-would-settle-it)."
    )


def _rows(every: Judged, places: Iterable[str] = SCALES) -> list[verdicts.Row]:
    """Of these places; what desk has counted the addendum does not count anew."""
    return [
        row
        for said in every.values()
        for at, row in said.items()
        if at in places and not (at == AT_ADDENDUM and row["replicates"] == "exact")
    ]


def says(claim: Claim) -> str:
    """What the number of a claim is where the paper is right."""
    if claim.kind in ("ordering", "bound"):
        return "above 0 where the paper is right"
    return f"the paper: {claim.value:g}" + (f" ± {claim.margin:.2g}" if claim.margin else "")


def _see(claim: Claim, docs: str) -> str:
    """Links to the notebooks that judge a claim, as they were executed, and to why it came out so; ``docs`` is the way
    to docs/."""
    links = [f"[{name}]({docs}notebooks/{name}.ipynb)" for name in (claim.notebook, claim.published) if name]
    return ", ".join(links + [f"[why]({docs}explanations.md#{anchor(claim.id)})"] * (claim.id in explanations()))


def anchor(id: str) -> str:
    """Of a claim's line in docs/claims.md."""
    return id.replace(".", "")


def in_numbers(every: Judged) -> str:
    """How many claims came to what, and how many of these verdicts may be wrong: a row for what our runs say, one for
    what is counted and not trained, one for the addendum, and one for published runs. Below it, what came out on both
    scales."""
    rows = _rows(every)
    told = [*rows, *_rows(every, [AT_ADDENDUM])]
    groups, expected = verdicts.grouped(told, verdicts.place), verdicts.expected(told)
    names = SCALES | {
        f"{AT_DESK}, counted": f"{SCALES[AT_DESK]}, by arithmetic alone",
        AT_ADDENDUM: "our addendum: more runs, some claims once more",
    }
    lines = [
        {"judged on": names[at], **counts, "all": f"{len(groups[at])}"}
        | {what: expected[what].get(at, "0") for what in (verdicts.FALSE, verdicts.CHANGED)}
        for at, counts in verdicts.tally(groups).items()
    ]
    return (
        f"{table(lines)}\n\nOf {len(every)} claims {sum(not said for said in every.values())} are open: nothing was "
        f"measured. {len(verdicts.shared(rows))} groups of verdicts share "
        "[one number](docs/verdicts.md#what-stands-beside-a-sum).\n"
        f"{on_both(rows, 'docs/')}"
    )


def on_both(rows: Sequence[verdicts.Row], docs: str) -> str:
    """What came out on both scales, in words and in a table, which names the claims that were decided differently;
    ``docs`` is the way to docs/."""
    pairs = verdicts.both(rows)
    lines = [
        {"rows: ours; columns: published runs": verdict, **counts}
        | {
            "claims that disagree": ", ".join(
                _link(theirs, docs) for own, theirs in verdicts.differing(pairs) if verdicts.outcome(own) == verdict
            )
        }
        for verdict, counts in verdicts.across(pairs).items()
    ]
    return f"{FORETOLD.format_map(verdicts.agreement(pairs))}\n\n{table(lines)}"


def _link(row: verdicts.Row, docs: str) -> str:
    return f"[{row['claim']}]({docs}claims.md#{anchor(row['claim'])}) ({verdicts.outcome(row)})"


def overview(every: Judged) -> str:
    """One row a notebook: its executed copy, what it asks, whose claim that is, and how many of its claims came out as
    the paper says: on our runs, and on published ones, in the row of the notebook that reads these too."""
    return table([_of_notebook(paper, name, every) for paper, names in plans.NOTEBOOKS.items() for name in names])


def _of_notebook(paper: str, name: str, every: Judged) -> dict[str, str]:
    own = [claim for claim in every if claim.notebook == name]
    on_runs = [claim for claim in every if name in (claim.published, claim.notebook)]
    papers = sorted({claim.paper for claim in own or on_runs}) or [paper]
    binder = places.binder(name)
    return {
        "notebook": f"[{name}](docs/notebooks/{name}.ipynb)" + (f", [open in Binder]({binder})" if binder else ""),
        "what it asks": heading(name)[0],
        "paper": ", ".join(papers),
        SCALES[AT_DESK]: _outcome(every[claim][AT_DESK] for claim in own if AT_DESK in every[claim]),
        SCALES[ON_RUNS]: _outcome(every[claim][ON_RUNS] for claim in on_runs if ON_RUNS in every[claim]),
    }


def _outcome(rows: Iterable[Mapping[str, Any]]) -> str:
    """How many of those that could be judged at this scale came out as the paper says, and how many against it; what is
    counted by itself."""
    judged = [row for row in rows if verdicts.outcome(row) not in (INCOMPARABLE, verdicts.NOT_MEASURED)]
    groups = verdicts.grouped(judged, verdicts.place)
    counts = {at: collections.Counter(map(verdicts.outcome, some)) for at, some in groups.items()}
    return "; ".join(
        f"{'counted: ' * at.endswith('counted')}{of[REPRODUCED]} of {of.total()} reproduced"
        + f", {of[CONTRADICTED]} contradicted" * bool(of[CONTRADICTED])
        for at, of in counts.items()
    )


def heading(name: str) -> tuple[str, str]:
    """(a notebook's title, where in its paper the claim stands, empty where none does), from its first cell."""
    text = nbformat.read(places.NOTEBOOKS / f"{name}.ipynb", as_version=4).cells[0].source
    title = text.partition("\n")[0].removeprefix("# ")
    claim = re.search(r"\*\*Claim\*\* \((.*?)\)[.:]\s", " ".join(text.split()))
    where = re.search(r"(Sec\.|App\.|Figs?\.|Tables?|the figure|the table|Alg\.|Eq\.).*", claim[1] if claim else "")
    return title, where[0] if where else ""


# ---- docs/explanations.md --------------------------------------------------------------------------------------------


@functools.cache
def explanations() -> dict[str, str]:
    """Claim -> why its verdict is what it is, in Markdown. Headings in a row, each a claim's id, share the text below
    the last of them."""
    text = places.EXPLAINED.read_text(encoding="utf-8")
    parts = re.findall(r"((?:^## [^\n]+\s+)+)(.+?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {id: why.strip() for ids, why in parts for id in re.findall(r"## (.+)", ids)}


def reason(id: str) -> str:
    """What ``explanations`` says of a claim at desk and on published runs; nothing where it speaks of neither."""
    parts = re.split(r"\n\n(?=\*\w[\w ]*, \d{4}-\d\d-\d\d\.\*)", explanations().get(id, ""))
    return "\n\n".join(part for part in parts if part.startswith(("*Desk", "*Published")))


def explained(every: Judged) -> str:
    """A row for each claim that is explained: its verdicts, and the way to the text."""
    return table(
        [
            {"claim": f"[{claim.id}](#{anchor(claim.id)})", "verdict": escaped(verdict(said))}
            for claim, said in every.items()
            if claim.id in explanations()
        ]
    )


# ---- docs/claims.md --------------------------------------------------------------------------------------------------


def entries(every: Judged) -> str:
    """A heading for every paper, below it a line for every claim: what it says, its verdicts, and where to see more."""
    return "\n\n".join(
        f"## {paper}: {authors(paper) or OURS}\n\n"
        + table(
            [
                {
                    "claim": f'<a id="{anchor(claim.id)}"></a>{claim.id}',
                    "what the paper says": f"{escaped(claim.statement)} ({escaped(place(claim))})",
                    "verdict": escaped(verdict(every[claim])),
                    "see": _see(claim, ""),
                }
                for claim in some
            ]
        )
        for paper, some in itertools.groupby(every, lambda claim: claim.paper)
    )


# ---- docs/verdicts.md ------------------------------------------------------------------------------------------------


def summed(every: Judged) -> dict[str, str]:
    """The name of a part of docs/verdicts.md -> the part: what both scales say, and what stands beside a sum."""
    rows = _rows(every)
    pairs = verdicts.both(rows)
    exact = [pair for pair in pairs if pair[0]["replicates"] == "exact"]
    kinds = verdicts.grouped(pairs, lambda pair: pair[0]["kind"]) | {"counted, of these": exact, "all": pairs}
    return {
        "scales": on_both(rows, ""),
        "kinds": table([{"kind": kind} | verdicts.agreement(some) for kind, some in kinds.items()]),
        "differing": table(
            [
                {"claim": claim.id, "kind": claim.kind, "verdicts": escaped(verdict(said)), "see": _see(claim, "")}
                for claim, said in every.items()
                if verdicts.differing(verdicts.both([*said.values()]))
            ]
        ),
        "expected": table(
            [
                {"of verdicts by an interval": what} | of
                for what, of in verdicts.expected([*rows, *_rows(every, [AT_ADDENDUM, ON_VERSE])]).items()
            ]
        ),
        "addendum": addendum(every),
        "second-text": second_text(every),
        "shared": table(
            [
                {"judged": verdicts.place(some[0]), "claims": ", ".join(_link(row, "") for row in some)}
                for some in verdicts.shared(rows)
            ]
        ),
    }


def addendum(every: Judged) -> str:
    """What became of the claims that desk and the addendum judge: how many came to what, and a row for each that did
    not stay, or that the addendum alone judges."""
    ours = [said for claim, said in every.items() if AT_ADDENDUM in said and claim.replicates != "exact"]
    pairs = [(said[AT_DESK], said[AT_ADDENDUM]) for said in ours if AT_DESK in said]
    kept = [one["claim"] for one, other in pairs if verdicts.outcome(one) == verdicts.outcome(other)]
    lines = [
        {"claim": _link(said[AT_ADDENDUM], "")}
        | {at: escaped(verdict({at: said[at]})) if at in said else "" for at in (AT_DESK, AT_ADDENDUM)}
        for said in ours
        if said[AT_ADDENDUM]["claim"] not in kept
    ]
    across = [{"at desk, and at addendum": one} | of for one, of in verdicts.across(pairs).items()]
    return f"{len(pairs)} claims are judged once more.\n\n{table(across)}\n\n{table(lines)}"


def second_text(every: Judged) -> str:
    """How many of the claims that both texts judge came out the same, and a row each: the verdicts, and by how much the
    number that decides at desk differs."""
    pairs = [(said[AT_DESK], said[ON_VERSE]) for said in every.values() if ON_VERSE in said]
    lines = [
        {"claim": _link(other, "")}
        | {at: escaped(verdict({at: row})) for at, row in ((AT_DESK, one), (ON_VERSE, other))}
        | {"second text less desk, of what decides at desk": escaped(verdicts.difference(one, other))}
        for one, other in pairs
    ]
    kept = sum(verdicts.outcome(one) == verdicts.outcome(other) for one, other in pairs)
    return f"{kept} of {len(pairs)} verdicts are the same.\n\n{table(lines)}"


# ---- docs/scale.md ---------------------------------------------------------------------------------------------------


def asked(profile: str) -> pd.DataFrame:
    """A row for each run that a notebook asks for; what several ask for has a row with each."""
    return pd.DataFrame(
        {
            "paper": paper,
            "notebook": f"`{name}`",
            "key": cfg.key,
            "seed": cfg.train.seed,
            "parameters": count(cfg.model).n_params,
            "tokens": cfg.tokens,
            "flops": run_flops(cfg),
            "memory": memory_of(cfg),
        }
        for paper, name, plan in plans.planned(profile)
        for cfg in plan.runs
    )


def hours(flops: float) -> float:
    """On one GPU, with the assumed utilisation."""
    return flops / (PEAK * UTILISATION) / 3600


def scale() -> dict[str, str]:
    """The name of a part of docs/scale.md -> the part; nothing is trained."""
    every = asked("paper")
    once = every.drop_duplicates("key")
    return {
        "cpu": distinct("cpu"),
        "desk": distinct("desk"),
        "papers": table([*_costs(once, "paper"), *_costs(once.assign(paper="all"), "paper")]),
        "notebooks": table(_costs(every, "notebook")),
    }


def distinct(profile: str) -> str:
    """What a profile trains, in a sentence."""
    runs = asked(profile).drop_duplicates("key")
    return f"{len(runs):,} distinct runs with {runs['seed'].nunique()} seeds, {runs['flops'].sum():.2g} FLOPs."


def _costs(runs: pd.DataFrame, by: str) -> list[dict[str, str]]:
    """What they cost together, and the largest of them, a row each group."""
    return [
        {
            by: str(name),
            "runs": f"{len(its):,}",
            "tokens": short(its["tokens"].sum()),
            "FLOPs": f"{its['flops'].sum():.2g}",
            "GPU hours": f"{hours(its['flops'].sum()):,.1f}",
            "longest run, hours": f"{hours(its['flops'].max()):,.1f}",
            "largest model": short(its["parameters"].max()),
            "memory": f"{its['memory'].max() / 1e9:.3g} GB",
        }
        for name, its in runs.groupby(by, sort=False)
    ]

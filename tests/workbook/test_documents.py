"""README.md and docs/ say what the notebooks, their plans, the ledger, the records and the committed verdicts say."""

import dataclasses
import json
import re

import mistune
import nbformat
import pyarrow.parquet
import pytest
import yaml
from PIL import Image

from lib.flops import count
from lib.store import records
from lib.sweep.measurements import Asked, measure
from lib.sweep.training import sweep
from lib.workbook import claims, documents, parameters, places, plans, verdicts
from lib.workbook.documents import AT_DESK, ON_RUNS, asked, escaped, filled, hours, table
from tests.cases import Case, squared
from tests.runs import several
from tests.workbooks import ROOT, moved, published_at

MEND = ".venv/bin/python -c 'from lib.workbook.documents import write; write()'"

LEDGER = claims.ledger(places.LEDGER)
ANY = next(iter(LEDGER.values()))
KEPT: dict = {}


@pytest.fixture
def parts(plans_once):
    """Made once: it takes half a minute."""
    KEPT.update(KEPT or documents.documents())
    return KEPT


@pytest.mark.parametrize("name", ["README", "SCALE", "CLAIMS", "VERDICTS", "CARD"])
def test_a_document_has_the_tables_of_today(parts, name):
    path = getattr(documents, name)
    text = path.read_text()
    assert filled(text, parts[path]) == text, f"{path.name} is out of date, run {MEND}"


# ---- Markdown


def test_parts_are_put_where_their_names_are():
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\n"
    once = filled(text, {"x": r"| \1 |"})
    assert once == text.replace("old", r"| \1 |") and filled(once, {"x": r"| \1 |"}) == once
    assert filled(text, {"y": "new", "x": "old"}) == text.replace("<!-- /y", "new\n<!-- /y")
    for without in ("", "<!-- x -->\n", "<!-- /x -->"):
        with pytest.raises(ValueError, match="x: the document has no marks of this name"):
            filled(without, {"x": "new"})


def test_plain_text_keeps_its_bars_asterisks_and_angles():
    rendered = mistune.html(table([{"a": escaped("|x| <= D*/N* for all *, x > 0")}]))
    assert "<td>|x| &lt;= D*/N* for all *, x &gt; 0</td>" in rendered


def test_claims_whose_headings_stand_in_a_row_share_an_explanation():
    told = documents.explanations()
    assert told["002-one-rate-for-all"] == told["002-rate-law-in-depth"] != told["003-excluded-flops"]
    assert set(told) <= set(LEDGER) and all(told.values())


# ---- verdicts in words


def row(verdict, mean):
    return {"verdict": verdict, "mean": mean, "low": None, "high": None, "unit": "", "again": None}


def of(id, desk="", published="", **changes):
    """A claim and its verdicts."""
    said = {AT_DESK: row(desk, 1.0), ON_RUNS: row(published, 2.0)}
    return dataclasses.replace(ANY, id=id, **changes), {at: one for at, one in said.items() if one["verdict"]}


def test_contradictions_come_first_those_of_the_papers_own_runs_before_ours():
    every = [
        of("a", desk="reproduced", short="A"),
        of("b", published="reproduced", short="B"),
        of("c", desk="contradicted", short="C"),
        of("d", published="contradicted", statement="D at length."),  # all of these are told
        of("e", desk="contradicted"),
        of("f", desk="not resolved", published="not resolved", short="F"),
        of("g", desk="reproduced", published="contradicted", short="G"),  # told once, by the larger runs
        of("h", desk="contradicted", short="H", replicates="exact"),
    ]
    lines = documents.found(dict(every)).splitlines()[2:]
    told = [re.fullmatch(r"\| \[(.*?)\].*? \| [^|]* \| (.*?) \| (.*?)<br>.*; .* \|", line).groups() for line in lines]
    assert told == [
        ("D at length", "contradicted, on published runs", "2"),
        ("G", "contradicted, on published runs", "2"),
        ("C", "contradicted, at desk", "1"),
        ("H", "contradicted, counted", "1"),
        ("B", "reproduced, on published runs", "2"),
        ("A", "reproduced, at desk", "1"),
    ]


def test_a_finding_says_what_the_paper_says():
    said = {
        "above 0 where the paper is right": {"kind": "bound"},
        "the paper: 0 ± 0.1": {"kind": "tie", "effect": 0.1},
        "the paper: 0.47 ± 0.06": {"kind": "value", "value": 0.47, "uncertainty": 0.06, "effect": 0.01},
        "the paper: 1": {"kind": "value", "value": 1.0, "replicates": "exact"},
    }
    assert [documents.says(of("a", **fields)[0]) for fields in said.values()] == [*said]


def test_claims_are_counted_by_what_judged_them():
    """A verdict that nobody gave has no column."""
    every = [of("a", "reproduced", "contradicted"), of("b", "reproduced"), of("c", "", "reproduced"), of("d")]
    assert documents.in_numbers(dict(every)).splitlines() == [
        "| claims judged | reproduced | contradicted | all |",
        "| --- | --- | --- | --- |",
        "| at desk | 2 | 0 | 2 |",
        "| on published runs | 1 | 1 | 2 |",
        "",
        "There are 4 claims: 1 are judged by both, 1 by neither yet.",
    ]


def test_papers_are_named_by_their_authors():
    numbers = {"000": "Schwethelm et al.", "003": "Looped Transformer: Experiment Log", "005": "Chen et al., Capps"}
    assert {number: documents.authors(number) for number in [*numbers, "beyond"]} == numbers | {"beyond": ""}
    first, log = (documents.source(documents.cited()[number][0]) for number in ("000", "003"))
    assert first.startswith("Schwethelm et al., How Much Is One") and first.endswith(", arXiv 2604.21106")
    assert log == "Looped Transformer: Experiment Log"
    assert documents.place(LEDGER["005-cart-wants-six-loops-when-wide"]).startswith("Capps, arXiv 2606.01495")


def test_a_number_is_said_in_words():
    given = {"mean": 1.0, "low": 0.752, "high": 1.25, "unit": "nats", "again": 0.9}
    assert documents.number(given) == "1 [0.752, 1.25] nats"
    assert documents.number(given | {"again": 0.7}) == "1 [0.752, 1.25] nats, fragile"
    assert documents.number(given | {"low": None, "high": None}) == "1 nats"
    assert documents.number(given | {"low": 1.0, "high": 1.0}) == "1 nats"
    assert documents.number(given | {"mean": None}) == ""


def test_verdicts_are_those_beside_the_records():
    every = documents.judged()
    assert [*every] == sorted(LEDGER.values(), key=lambda claim: claim.paper)
    rows = verdicts.committed(documents.RECORDS)["verdicts"]
    for row in rows:
        assert every[LEDGER[row["claim"]]][ON_RUNS if row["profile"] == "published" else AT_DESK] == row
    assert sum(map(len, every.values())) == len(rows)
    assert documents.verdict(every[LEDGER["000-phi"]]).count(";") == 1 and documents.verdict({}) == "open"


def test_what_is_committed_of_desk_says_the_same_everywhere():
    """The verdicts beside the records, the citation and the ledger, whose rules they were judged by."""
    for row in (rows := verdicts.committed(documents.RECORDS)["verdicts"]):
        claim = LEDGER[row["claim"]]
        assert (row["kind"], row["estimand"], row["statement"]) == (claim.kind, claim.estimand, claim.statement)
        if row["profile"] != claims.PUBLISHED:
            assert (row["effect"], row["replicates"]) == (claim.effect, claim.replicates), claim.id
            given = parameters.at_profile(parameters.kind_of(claim.notebook), "desk").model_dump()
            then = {name: value for name, value in row["parameters"].items() if name in given and name != "jobs"}
            assert then == json.loads(json.dumps({name: given[name] for name in then})), claim.id
    ours = {row["claim"]: row for row in rows if row["profile"] == "desk"}
    assert ours.keys() == {claim.id for claim in LEDGER.values() if claim.notebook}
    assert documents.counted(ours.values()) in yaml.safe_load((ROOT / "CITATION.cff").read_text())["abstract"]


# ---- notebooks and pictures


def test_the_readme_links_to_binder_where_the_workbook_is_published(tmp_path, monkeypatch):
    link = "[instability](notebooks/instability.ipynb)"
    published_at("", monkeypatch, tmp_path)
    assert f"| {link} |" in documents.overview({})
    published_at("https://github.com/a/b", monkeypatch, tmp_path)
    assert f"| {link}, [open in Binder]({places.binder('instability')}) |" in documents.overview({})


def test_where_a_claim_stands_is_read_from_the_first_cell(tmp_path, monkeypatch):
    moved(monkeypatch, tmp_path)
    (tmp_path / "notebooks").mkdir()
    for text, found in {
        "# Why?\n\n**Claim** (A et al., *A Title*, Sec. 3; App. B).\nBecause (see Fig. 9).": ("Why?", "Sec. 3; App. B"),
        "# A game\n\nLoad a run (Fig. 1).": ("A game", ""),
        "# New\n\n**Claim** (none: nobody measured it). More.": ("New", ""),
    }.items():
        cell = nbformat.v4.new_markdown_cell(text)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "notebooks" / "x.ipynb")
        assert documents.heading("x") == found


def test_a_notebook_has_its_verdicts_and_one_that_reads_published_runs_has_those_on_them():
    every = documents.judged()
    rows = dict(line.split(" | ", 2)[::2] for line in documents.overview(every).splitlines()[2:])
    told = {name.partition("[")[2].partition("]")[0]: cell.removesuffix(" |") for name, cell in rows.items()}

    def counted(at, field, name):
        return documents.counted(said[at] for one, said in every.items() if getattr(one, field) == name and at in said)

    on_runs = counted(ON_RUNS, "notebook", "phi_probes")
    assert told["phi_probes"] == f"at desk: {counted(AT_DESK, 'notebook', 'phi_probes')}; on published runs: {on_runs}"
    for name in ("published_runs", "other_groups"):
        read = counted(ON_RUNS, "published", name)
        assert told[name] == f"on published runs: {read}" and read != on_runs
    assert told["generate"] == "no claims" and "claims" not in told["instability"]


def test_every_paper_has_a_picture_of_desk_that_says_which_notebook_drew_it():
    """In README.md and its folder, under the name of the figure."""
    shown = re.findall(r'<img src="(docs/gallery/.*?)"', documents.README.read_text())
    assert {ROOT / path for path in shown} == {*(ROOT / "docs" / "gallery").iterdir()}
    papers = set()
    for path in shown:
        with Image.open(ROOT / path) as image:
            stamp = json.loads(image.info["Description"])
        assert stamp["profile"] == "desk", path
        papers |= {one.paper for one in LEDGER.values() if stamp["notebook"] in (one.notebook, one.published)}
    assert papers == documents.cited().keys() and len(shown) == len(papers)


# ---- what runs cost, and columns


def test_runs_cost_what_count_says_and_count_once(parts):
    expected = sum(
        cfg.tokens * count(cfg.model, 2048).flops_per_token for cfg in plans.plan("extrapolation", "paper").runs
    )
    every = asked("paper")
    assert sorted(name for part in documents.NOTEBOOKS.values() for name in part) == plans.names()
    assert every[every["notebook"] == "`extrapolation`"]["flops"].sum() == pytest.approx(expected)
    assert every["key"].nunique() < len(every)
    assert parts[documents.SCALE]["papers"].splitlines()[-1].startswith(f"| all | {every['key'].nunique():,} |")


def test_the_papers_sizes_stay_within_their_limit(plans_once):
    """10,000 GPU hours without 002."""
    every = asked("paper")
    others = every[every["paper"] != "002"].drop_duplicates("key")
    assert 5000 < hours(others["flops"].sum()) < 10_000 and hours(0.4 * 989e12 * 3600) == pytest.approx(1)


def test_the_readme_and_the_citation_say_how_many_runs_desk_has(parts):
    runs = asked("desk")["key"].nunique()
    readme, citation = (" ".join((ROOT / name).read_text().split()) for name in ("README.md", "CITATION.cff"))
    assert f"its {runs:,} runs are committed" in readme and f"{runs:,} training runs" in citation
    assert parts[documents.SCALE]["desk"].startswith(f"{runs:,} distinct runs")


def test_the_card_has_every_column_of_a_part(store, tmp_path):
    measure(squared, [Case(x=2)], store, jobs=1)
    runs = sweep(several(1), store, jobs=1).results
    records.add(tmp_path, runs, [Asked(squared, Case(x=2)).found(store)])
    for name, listed in documents.columns().items():
        (part,) = (tmp_path / f"{name}.parquet").iterdir()
        there = {*pyarrow.parquet.read_schema(part).names}
        assert there == {one.name for one in listed if not one.name.endswith("...")}
        assert all(one.says and "|" not in one.says for one in listed)

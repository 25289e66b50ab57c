"""README.md and docs/ say what the notebooks, their plans, the ledger, the records and the committed verdicts say."""

import dataclasses
import json
import math
import re

import mistune
import nbformat
import pytest
import yaml
from PIL import Image

from lib.flops import count
from lib.workbook import claims, documents, gallery, parameters, places, plans, verdicts
from lib.workbook.documents import AT_DESK, ON_RUNS, ON_VERSE, asked, escaped, filled, hours, table
from tests.workbooks import ROOT, a_row, moved, published_at

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


def test_the_readme_tells_five_findings_that_would_come_out_again():
    """In at most 20 words each, with a figure, and with the verdicts of both scales."""
    every = documents.judged()
    told, none = [claim for claim in every if claim.short], {"verdict": "none published"}
    lines = [line for line in documents.found(every).splitlines()[2:] if line.startswith("|")]
    assert len(told) == len(lines) == 5
    for claim, line in zip(told, lines, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0] == claim.short and len(claim.short.split()) <= 20 and claim.figure, claim.id
        assert cells[1:3] == [every[claim].get(at, none)["verdict"] for at in (AT_DESK, ON_RUNS)]
        assert {*cells[1:3]} <= {"reproduced", "contradicted", "none published"}
        assert all(row["again"] >= claims.FRAGILE for row in every[claim].values()), claim.id
        assert ("docs/explanations.md#" in line) == (claim.id in documents.explanations())


def test_the_readme_is_short():
    lines = documents.README.read_text().splitlines()
    assert len(lines) <= 120 and max(len(line) for line in lines if not line.startswith("|")) <= 300
    cells = [cell for line in lines if line.startswith("|") for cell in line.strip("|").split("|")]
    assert max(len(re.sub(r"\]\(.*?\)", "]", cell).split()) for cell in cells) <= 20


def test_claims_are_counted_by_what_judged_them():
    """What is counted is no training, and has no errors. A verdict that nobody gave has no column, one without a number
    is none. What both scales judge stands below."""
    every = {
        "a": {AT_DESK: a_row("a", "reproduced"), ON_RUNS: a_row("a", "contradicted", "published", again=0.75)},
        **{f"b{i}": {AT_DESK: a_row(f"b{i}", "reproduced", again=0.5)} for i in range(39)},
        "c": {ON_RUNS: a_row("c", "reproduced", "published")},
        "d": {},
        "e": {AT_DESK: a_row("e", "reproduced", replicates="exact")},
        "f": {AT_DESK: a_row("f", "not resolved", mean=None)},
    }
    told = documents.in_numbers({dataclasses.replace(ANY, id=id): said for id, said in every.items()})
    assert [line for line in told.splitlines() if line.startswith("|")] == [
        "| judged on | reproduced | contradicted | not measured | all "
        "| false on each side, at most | expected to change in fresh draws |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| our small models | 40 | 0 | 1 | 41 | 1 | 20 |",
        "| our small models, by arithmetic alone | 1 | 0 | 0 | 1 | 0 | 0 |",
        "| published runs | 1 | 1 | 0 | 2 | 0.05 | 0.25 |",
        "| rows: ours; columns: published runs | contradicted | claims that disagree |",
        "| --- | --- | --- |",
        "| reproduced | 1 | [a](docs/claims.md#a) (contradicted) |",
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
    assert verdicts.number(given) == "1 [0.752, 1.25] nats"
    assert verdicts.number(given | {"again": 0.7}) == "1 [0.752, 1.25] nats, fragile"
    for ends in ((None, None), (1.0, 1.0), (-math.inf, math.inf)):
        assert verdicts.number(given | dict(zip(("low", "high"), ends, strict=True))) == "1 nats"
    assert verdicts.number(given | {"mean": None}) == verdicts.number(given | {"mean": math.nan}) == ""


def test_verdicts_are_those_beside_the_records():
    every = documents.judged()
    assert [*every] == sorted(LEDGER.values(), key=lambda claim: claim.paper)
    of_all = [verdicts.committed(folder)["verdicts"] for folder in places.JUDGED]
    rows = [row for some in of_all for row in some if row["verdict"] != "not judged at this profile"]
    for row in rows:
        at = {"published": ON_RUNS, "desk": AT_DESK, "addendum": documents.AT_ADDENDUM}.get(row["profile"], ON_VERSE)
        assert every[LEDGER[row["claim"]]][at] == row
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
    abstract = yaml.safe_load((ROOT / "CITATION.cff").read_text())["abstract"]
    assert all(verdicts.counted(some) in abstract for some in verdicts.grouped(ours.values(), verdicts.place).values())


# ---- notebooks and pictures


def test_the_readme_links_to_binder_where_the_workbook_is_published(tmp_path, monkeypatch):
    link = "[instability](docs/notebooks/instability.ipynb)"
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
    """Those that can be judged at the scale, what is counted by itself."""
    every = documents.judged()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in documents.overview(every).splitlines()[2:]
    ]
    told = {name[1:].partition("]")[0]: at for name, _, _, *at in rows}

    def counted(at, field, name):
        texts, rows = [], [one[at] for claim, one in every.items() if getattr(claim, field) == name and at in one]
        for exact in (False, True):
            its = [row for row in rows if row["mean"] is not None and (verdicts.place(row)[-7:] == "counted") == exact]
            said = [row["verdict"] for row in its if row["verdict"] != "not comparable at this scale"]
            against = f", {said.count('contradicted')} contradicted" * ("contradicted" in said)
            texts += ["counted: " * exact + f"{said.count('reproduced')} of {len(said)} reproduced{against}"] * bool(
                said
            )
        return "; ".join(texts)

    assert told["phi_probes"] == [counted(at, "notebook", "phi_probes") for at in (AT_DESK, ON_RUNS)]
    assert "contradicted" in told["phi_probes"][1] and "; counted: " in told["phi_probes"][0]
    for name in ("published_runs", "other_groups"):
        assert told[name] == ["", counted(ON_RUNS, "published", name)]
    assert told["generate"] == ["", ""]


def test_every_paper_has_a_picture_of_desk_that_says_which_notebook_drew_it():
    """In docs/gallery.md and its folder, under the name of the figure; README.md shows one more."""
    shown = re.findall(r"gallery/(\w+\.png)", (ROOT / "docs" / "gallery.md").read_text())
    (first,) = re.findall(r"!\[.+\]\(docs/gallery/(\w+\.png)\)", documents.README.read_text())
    assert {*shown, first} == {path.name for path in gallery.PICTURES.iterdir()}
    papers = set()
    for name in {*shown, first}:
        with Image.open(gallery.PICTURES / name) as image:
            stamp = json.loads(image.info["Description"])
        assert stamp["profile"] == "desk", name
        papers |= {one.paper for one in LEDGER.values() if stamp["notebook"] in (one.notebook, one.published)}
    assert papers - {"006"} == documents.cited().keys()  # ours share notebooks with theirs


# ---- what runs cost, and columns


def test_runs_cost_what_count_says_and_count_once(parts):
    expected = sum(
        cfg.tokens * count(cfg.model, 2048).flops_per_token for cfg in plans.plan("extrapolation", "paper").runs
    )
    every = asked("paper")
    assert sorted(name for part in plans.NOTEBOOKS.values() for name in part) == plans.names()
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
    assert f"{runs:,} committed training runs" in readme and f"{runs:,} training runs" in citation
    assert f"how {len(LEDGER)} claims fare" in readme
    assert parts[documents.SCALE]["desk"].startswith(f"{runs:,} distinct runs")

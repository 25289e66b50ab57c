"""README.md and docs/ say what the notebooks, their plans, the ledger and the committed verdicts say."""

import dataclasses
import json
import re

import nbformat
import pytest
from PIL import Image

from lib.workbook import claims, costs, findings, places
from lib.workbook.findings import Judged
from lib.workbook.markdown import filled
from tests.workbooks import ROOT, moved, published_at

MEND = ".venv/bin/python -c 'from lib.workbook.findings import write; write()'"

LEDGER = claims.ledger(places.LEDGER)
SHORT = [claim for claim in LEDGER.values() if claim.short]
ANY = next(iter(LEDGER.values()))


def row(verdict, mean):
    given = {"verdict": verdict, "mean": mean, "low": None, "high": None, "unit": "", "again": None}
    return given if verdict else {}


def of(id, desk="", published="", **changes):
    return Judged(dataclasses.replace(ANY, id=id, **changes), row(desk, 1.0), row(published, 2.0))


def test_contradictions_come_first_those_of_the_papers_own_runs_before_ours():
    lines = findings.found(
        [
            of("a", desk="reproduced", short="A"),
            of("b", published="reproduced", short="B"),
            of("c", desk="contradicted", short="C"),
            of("d", published="contradicted", statement="D at length."),  # all of these are told
            of("e", desk="contradicted"),
            of("f", desk="not resolved", published="not resolved", short="F"),
            of("g", desk="reproduced", published="contradicted", short="G"),  # told once, by the larger runs
            of("h", desk="contradicted", short="H", replicates="exact"),
        ]
    ).splitlines()[2:]
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
    assert findings.says(of("a", kind="bound").claim) == "above 0 where the paper is right"
    assert findings.says(of("a", kind="tie", effect=0.1).claim) == "the paper: 0 ± 0.1"
    assert findings.says(of("a", kind="value", value=0.47, uncertainty=0.06).claim).startswith("the paper: 0.47 ± ")
    assert findings.says(of("a", kind="value", value=1.0, replicates="exact").claim) == "the paper: 1"


def test_claims_are_counted_by_what_judged_them():
    """A verdict that nobody gave has no column."""
    every = [of("a", "reproduced", "contradicted"), of("b", "reproduced"), of("c", "", "reproduced"), of("d")]
    assert findings.in_numbers(every).splitlines() == [
        "| claims judged | reproduced | contradicted | all |",
        "| --- | --- | --- | --- |",
        "| at desk | 2 | 0 | 2 |",
        "| on published runs | 1 | 1 | 2 |",
        "",
        "There are 4 claims: 1 are judged by both, 1 by neither yet.",
    ]


def test_papers_are_named_by_their_authors():
    assert [findings.authors(number) for number in ("000", "003", "005", "beyond")] == [
        "Schwethelm et al.",
        "Looped Transformer: Experiment Log",
        "Chen et al., Capps",
        "",
    ]
    first, log = (findings.source(findings.cited()[number][0]) for number in ("000", "003"))
    assert first.startswith("Schwethelm et al., How Much Is One") and first.endswith(", arXiv 2604.21106")
    assert log == "Looped Transformer: Experiment Log"
    wide = LEDGER["005-cart-wants-six-loops-when-wide"]
    assert findings.place(wide).startswith("Capps, arXiv 2606.01495")


def test_a_number_is_said_in_words():
    given = {"verdict": "reproduced", "mean": 1.0, "low": 0.752, "high": 1.25, "unit": "nats", "again": 0.9}
    assert findings.number(given) == "1 [0.752, 1.25] nats"
    assert findings.number(given | {"again": 0.7}) == "1 [0.752, 1.25] nats, fragile"
    assert findings.number(given | {"low": None, "high": None}) == "1 nats"
    assert findings.number(given | {"low": 1.0, "high": 1.0}) == "1 nats" and findings.number({}) == ""
    assert findings.number(given | {"mean": None}) == ""


def test_verdicts_are_those_beside_the_records():
    every = {one.claim.id: one for one in findings.judged()}
    assert [*every] == [claim.id for claim in sorted(LEDGER.values(), key=lambda claim: claim.paper)]
    rows = json.loads((places.ROOT / "outputs/records/desk/verdicts.json").read_text())["verdicts"]
    for row in rows:
        one = every[row["claim"]]
        assert row == (one.published if row["profile"] == "published" else one.ours)
    assert sum(bool(one.ours) + bool(one.published) for one in every.values()) == len(rows)
    assert findings.verdict(every["000-phi"]).count(";") == 1 and findings.verdict(of("a")) == "open"


def test_every_claim_has_a_line_with_an_anchor_and_its_page():
    page = (places.ROOT / "docs" / "claims.md").read_text()
    lines = re.findall(r'^\| <a id="(.*?)"></a>\[(\S+)\]\((\S+)\) \| .*? \| .* \|$', page, re.M)
    assert [id for _, id, *_ in lines] == [claim.id for claim in sorted(LEDGER.values(), key=lambda claim: claim.paper)]
    assert all(place == findings.anchor(id) and link.endswith(f"/{id}.html") for place, id, link in lines)
    linked = re.findall(r"\(docs/claims\.md#(.*?)\)", (places.ROOT / "README.md").read_text())
    assert len(linked) >= 10 and {*linked} <= {place for place, *_ in lines}


@pytest.fixture(scope="module")
def kept():
    return {}


@pytest.fixture
def documents(kept, plans_once):
    """Made once: it takes half a minute."""
    kept.update(kept or findings.documents())
    return kept


@pytest.mark.parametrize(
    "path",
    [findings.README, findings.SCALE, findings.CLAIMS, findings.VERDICTS, findings.CARD],
    ids=lambda path: path.stem,
)
def test_a_document_has_the_tables_of_today(documents, path):
    text = path.read_text()
    assert filled(text, documents[path]) == text, f"{path.name} is out of date, run {MEND}"


def test_the_readme_links_to_binder_where_the_workbook_is_published(tmp_path, monkeypatch):
    published_at("", monkeypatch, tmp_path)
    assert findings._links("instability") == "[instability](notebooks/instability.ipynb)"
    published_at("https://github.com/a/b", monkeypatch, tmp_path)
    link = f"[open in Binder]({places.binder('instability')})"
    assert findings._links("instability") == f"[instability](notebooks/instability.ipynb), {link}"


def test_the_readme_and_the_citation_say_how_many_runs_desk_has(documents):
    runs = costs.asked("desk")["key"].nunique()
    readme, citation = (" ".join((ROOT / name).read_text().split()) for name in ("README.md", "CITATION.cff"))
    assert f"its {runs:,} runs are committed" in readme and f"{runs:,} training runs" in citation
    assert documents[findings.SCALE]["desk"].startswith(f"{runs:,} distinct runs")


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
        assert findings.heading("x") == found


def test_a_notebook_has_its_verdicts_and_one_that_reads_published_runs_has_those_on_them():
    every = findings.judged()
    rows = dict(line.split(" | ", 2)[::2] for line in findings.overview(every).splitlines()[2:])
    told = {name.partition("[")[2].partition("]")[0]: cell.removesuffix(" |") for name, cell in rows.items()}
    own = [one for one in every if one.claim.notebook == "phi_probes"]
    ours, on_runs = (findings.counted(getattr(one, of) for one in own) for of in ("ours", "published"))
    assert told["phi_probes"] == f"at desk: {ours}; on published runs: {on_runs}"
    for name in ("published_runs", "other_groups"):
        read = findings.counted(one.published for one in every if one.claim.published == name)
        assert told[name] == f"on published runs: {read}" and read != on_runs
    assert told["generate"] == "no claims" and "claims" not in told["instability"]


def test_every_paper_has_a_picture_of_desk_that_says_which_notebook_drew_it():
    assert findings.PICTURES.keys() == findings.cited().keys()
    assert {path.stem for path in findings.GALLERY.iterdir()} == findings.PICTURES.keys()
    for paper in findings.PICTURES:
        with Image.open(findings.GALLERY / f"{paper}.png") as image:
            stamp = json.loads(image.info["Description"])
        of_published = [one for one in LEDGER.values() if one.published == stamp["notebook"]]
        assert paper in {
            one.paper for one in [*(one for one in LEDGER.values() if one.notebook == stamp["notebook"]), *of_published]
        }
        assert stamp["profile"] == findings.PROFILE, paper

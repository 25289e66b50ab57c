"""README.md and docs/ have the tables that the notebooks, their plans, the ledger and the committed verdicts give."""

import nbformat
import pytest

from lib.workbook import costs, findings, places, tables
from lib.workbook.markdown import filled
from lib.workbook.plans import names
from tests.workbooks import ROOT, moved, published_at

MEND = ".venv/bin/python -c 'from lib.workbook.tables import write; write()'"


@pytest.fixture(scope="module")
def kept():
    return {}


@pytest.fixture
def documents(kept, plans_once):
    """Made once: it takes half a minute."""
    kept.update(kept or tables.documents())
    return kept


@pytest.mark.parametrize("path", [tables.README, tables.SCALE, tables.CLAIMS])
def test_a_document_has_the_tables_of_today(documents, path):
    text = path.read_text()
    assert filled(text, documents[path]) == text, f"{path.name} is out of date, run {MEND}"


def test_the_papers_sizes_stay_within_their_limit(plans_once):
    """10,000 GPU hours without 002."""
    every = costs.costs("paper")
    flops = sum(cost.flops for name, cost in every.items() if name not in costs.NOTEBOOKS["002"])
    assert 5000 < costs.hours(flops) < 10_000


def test_the_documents_say_how_their_tables_are_made():
    assert MEND.removeprefix(".venv/bin/") in (ROOT / "docs" / "scale.md").read_text()
    assert "docs/scale.md" in (ROOT / "README.md").read_text()


def test_the_readme_has_a_row_for_every_notebook(documents):
    table = documents[tables.README]["notebooks"].splitlines()
    rows = [line for line in table if line.startswith("| [")]
    assert sorted(row.partition("[")[2].partition("]")[0] for row in rows) == names()
    assert table[0] == "| notebook | question | verdicts |"


def test_the_readme_links_to_binder_where_the_workbook_is_published(tmp_path, monkeypatch):
    published_at("", monkeypatch, tmp_path)
    assert tables._links("instability") == "[instability](notebooks/instability.ipynb)"
    published_at("https://github.com/a/b", monkeypatch, tmp_path)
    link = f"[open in Binder]({places.binder('instability')})"
    assert tables._links("instability") == f"[instability](notebooks/instability.ipynb), {link}"


def test_the_readme_and_the_citation_say_how_many_runs_desk_has(documents):
    runs = sum(len(cost.own) for cost in costs.costs("desk").values())
    readme, citation = (" ".join((ROOT / name).read_text().split()) for name in ("README.md", "CITATION.cff"))
    assert f"its {runs:,} runs are committed" in readme and f"{runs:,} training runs" in citation
    assert documents[tables.SCALE]["desk"].startswith(f"{runs:,} distinct runs")


def test_writing_fills_both(tmp_path, monkeypatch):
    texts = {tmp_path / "a.md": {"x": "new"}, tmp_path / "b.md": {"y": "newer"}}
    for path, parts in texts.items():
        for name in parts:
            path.write_text(f"1\n<!-- {name} -->\nold\n<!-- /{name} -->\n2")
    monkeypatch.setattr(tables, "documents", lambda: texts)
    tables.write()
    assert [path.read_text().splitlines()[2] for path in texts] == ["new", "newer"]


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
        assert tables.heading("x") == found


@pytest.mark.parametrize("paper", ["000", "001", "002", "004"])
def test_every_documents_notebooks_say_where_their_claims_stand(paper):
    places = [tables.heading(name)[1] for name in costs.NOTEBOOKS[paper]]
    assert sum(map(bool, places)) >= len(places) - 2  # a game, a question of our own


def test_numbers_are_spelled_in_few_characters():
    assert [tables._whole(x) for x in (0, 0.04, 0.26, 9.94, 1234.5)] == ["", "below 0.1", "0.3", "9.9", "1,234"]
    assert [tables._short(x) for x in (0, 999, 1.234e6, 2e9, 4.35e12)] == ["", "999", "1.23M", "2B", "4.35T"]
    assert [tables._bytes(x) for x in (0, 2.345e9, 45.6e9, 1.4e12)] == ["", "2.3 GB", "46 GB", "1.4 TB"]
    assert [tables._range(x) for x in ([], [2_000_000], [3_000_000, 1_000_000])] == ["", "2M", "1M to 3M"]


def test_a_notebook_has_its_verdicts_and_the_one_that_reads_published_runs_has_all_of_these():
    every = findings.judged()
    rows = dict(line.split(" | ", 2)[::2] for line in tables.overview(every).splitlines()[2:])
    told = {name.partition("[")[2].partition("]")[0]: cell.removesuffix(" |") for name, cell in rows.items()}
    own = [one for one in every if one.claim.notebook == "phi_probes"]
    ours, on_runs = (findings.counted(getattr(one, of) for one in own) for of in ("ours", "published"))
    assert told["phi_probes"] == f"at desk: {ours}; on published runs: {on_runs}"
    everybodys = findings.counted(one.published for one in every)
    assert told["published_runs"].endswith(f"on published runs: {everybodys}") and everybodys != on_runs
    assert told["generate"] == "no claims" and "claims" not in told["instability"]

import shutil

import nbformat
import pytest

from lib import overview, scale
from lib.plans import names


def test_the_readmes_table_is_what_the_notebooks_say(tmp_path):
    copy = tmp_path / "README.md"
    shutil.copy(overview.README, copy)
    overview.write(copy)
    assert copy.read_text() == overview.README.read_text()
    rows = [line for line in copy.read_text().splitlines() if line.startswith("| [")]
    assert sorted(row.partition("[")[2].partition("]")[0] for row in rows) == sorted(names())


def test_where_a_claim_stands_is_read_from_the_first_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(overview, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    for text, found in {
        "# Why?\n\n**Claim** (A et al., *A Title*, Sec. 3; App. B).\nBecause (see Fig. 9).": ("Why?", "Sec. 3; App. B"),
        "# A game\n\nLoad a run (Fig. 1).": ("A game", ""),
        "# New\n\n**Claim** (none: nobody measured it). More.": ("New", ""),
    }.items():  # fmt: skip
        cell = nbformat.v4.new_markdown_cell(text)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "notebooks" / "x.ipynb")
        assert overview.heading("x") == found


@pytest.mark.parametrize("paper", ["000", "001", "002", "004"])
def test_every_documents_notebooks_say_where_their_claims_stand(paper):
    places = [overview.heading(name)[1] for name in scale.NOTEBOOKS[paper]]
    assert sum(map(bool, places)) >= len(places) - 2  # a game, a question of our own

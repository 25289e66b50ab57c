"""The page of an executed notebook shows its formulas without a script, a network or a path of the machine."""

import json
import os

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lib.workbook import pages
from tests.pages import loaded
from tests.workbooks import ROOT


@pytest.fixture
def copy(tmp_path):
    """An executed copy, with what a page must not take from it: scripts, widgets, hundreds of bars, a path."""
    bar = [new_output("stream", name="stderr", text=f"\rrun {n} of 300") for n in range(300)]
    wide = {"application/javascript": "fetch('https://example.org')", "text/plain": "only text"}
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}, "text/plain": "a slider"}
    stamp = {"application/vnd.looped.provenance+json": {"commit": "unseen"}}
    traceback = [f"\x1b[31mFile {ROOT}/lib/x.py:3\x1b[39m"]
    error = new_output("error", ename="InputError", evalue=f"lr: {ROOT}/params is\nno number", traceback=traceback)
    shown = [new_output("display_data", data) for data in (wide, widget, stamp)]
    text = "# What $\\varphi$ is\n\nInline $r^2$ and a block\n\n$$\\frac{a}{b} \\qquad |x|$$\n\nfor 5 \\$."
    cells = [new_markdown_cell(text), new_code_cell("1 < 2", outputs=bar + shown)]
    cells.append(new_code_cell("raise", outputs=[error]))
    path = tmp_path / "notebooks" / "cpu" / "some.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


@pytest.fixture
def page(copy, tmp_path):
    path = tmp_path / "report" / "some.html"
    pages.page(copy, path)
    return path


def test_a_page_shows_formulas_without_a_script(page):
    text = page.read_text()
    assert text.count("<math ") == 3 and "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>" in text
    assert 'display="block"' in text and "\\frac" not in text and "$$" not in text
    assert "&lt;</span>" in text and "some, executed at the cpu profile" in text


def test_the_formulas_of_a_title_are_typeset_and_its_words_are_not(copy):
    assert str(pages.title(copy)).startswith("What <math") and str(pages.title(copy)).endswith("</math> is")


@pytest.mark.filterwarnings("error")
def test_a_page_loads_nothing_and_runs_nothing_and_leaves_out_what_nobody_can_see_without_a_warning(copy, tmp_path):
    pages.page(copy, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "unseen" not in text
    assert loaded(text) == {"../../index.html"}
    assert "<script" not in text and "example.org" not in text and "default-src 'none'" in text
    assert "only text" in text and "a slider" in text


def test_a_page_keeps_the_last_state_of_a_bar_and_no_path_of_the_machine(page):
    text = page.read_text()
    assert "run 299 of 300" in text and "run 298" not in text
    assert str(ROOT) not in text and "File lib/x.py:3" in text


def test_a_page_is_written_when_its_copy_changed_and_only_then(copy, page):
    before, dates = page.stat().st_ino, copy.stat()
    os.utime(copy, ns=(1, 1))
    pages.page(copy, page)
    assert page.stat().st_ino == before
    copy.write_text(copy.read_text().replace("for 5", "for 6"))
    os.utime(copy, ns=(dates.st_atime_ns, dates.st_mtime_ns))  # a clock was set back, or it was copied with its date
    pages.page(copy, page)
    assert "for 6" in page.read_text()
    page.write_text("of another time")
    pages.page(copy, page)
    assert "<math" in page.read_text()


@pytest.mark.parametrize("text", ["", '{"cells": [', '{"a": 1}', "[]"])
def test_a_damaged_copy_is_one_line_and_leaves_the_page_of_before(copy, page, text):
    copy.write_text(text)
    before = page.read_text()
    with pytest.raises(ValueError, match=r"\S"):
        pages.page(copy, page)
    assert page.read_text() == before


def test_why_a_notebook_failed_is_one_line(copy):
    assert pages.failure(copy) == "InputError: lr: params is no number"
    notebook = nbformat.read(copy, 4)
    notebook.cells.pop()
    nbformat.write(notebook, copy)
    assert pages.failure(copy) == "it was stopped before its end, or is still running"
    copy.with_name(".some.done").touch()
    assert pages.failure(copy) == ""


def test_a_formula_beyond_the_converter_stays_readable():
    assert pages.formula("x<y").striptags() == "x<y"
    assert pages.formula("\\left( <b>") == "<code>\\left( &lt;b&gt;</code>"


def test_every_formula_of_the_workbook_is_converted():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            parts = "".join(cell["source"]).split("$") if cell["cell_type"] == "markdown" else []
            for tex in filter(None, parts[1::2]):
                assert "\\" not in pages.formula(tex), f"{path.name}: {tex}"
                assert pages.formula(tex).startswith("<math"), f"{path.name}: {tex}"

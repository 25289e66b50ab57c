"""Copies of executed notebooks say what the committed verdicts say, and are small."""

import base64
import io
import re

import nbformat
import numpy as np
import pytest
from nbformat import v4
from PIL import Image

from lib.base.errors import InputError
from lib.workbook import documents, gallery, plans, verdicts
from lib.workbook.documents import AT_DESK, ON_RUNS


def test_executed_copies_have_the_committed_verdicts_and_nothing_of_a_machine():
    every = documents.judged()
    size = {path.stem: path.stat().st_size for path in gallery.NOTEBOOKS.iterdir()}
    assert size.keys() == {*plans.names("desk")} and sum(size.values()) < 8e6 and max(size.values()) < 9e5
    for name in size:
        text = (gallery.NOTEBOOKS / f"{name}.ipynb").read_text()
        assert not re.search(r"<script|\"papermill\"|start_time|/(home|root|tmp|work|Users)/", text), name
        outputs = [one for cell in nbformat.reads(text, 4).cells for one in cell.get("outputs", [])]
        printed = "".join(one.text for one in outputs if one.output_type == "stream")
        found = {id: verdict.strip() for verdict, id in re.findall(r"^(\w[\w ]{14}) ?(\d{3}-[^: \n]+)", printed, re.M)}
        rows = [
            one[at]
            for claim, one in every.items()
            for at, whose in ((AT_DESK, claim.notebook), (ON_RUNS, claim.published))
            if whose == name and at in one
        ]
        said = {row["claim"]: verdicts.outcome(row)[:14].strip() for row in rows}
        assert found == said, name


def test_a_copy_has_its_own_cells_and_smaller_pictures():
    noise = np.random.default_rng(0).integers(0, 255, (400, 1540, 3), dtype=np.uint8)
    Image.fromarray(noise).save(png := io.BytesIO(), "PNG")
    data = {"image/png": base64.b64encode(png.getvalue()).decode()}
    drawn = v4.new_output("display_data", data, metadata={"image/png": {"width": 770}})
    printed = v4.new_output("stream", text="189 runs")
    cells = [
        v4.new_code_cell("x = 1", metadata={"tags": ["parameters"], "papermill": {"duration": 1.0}}),
        v4.new_code_cell("x = 2", metadata={"tags": ["injected-parameters"]}),
        v4.new_code_cell("draw()", outputs=[printed, drawn]),
    ]
    copy = gallery.shown(v4.new_notebook(cells=cells, metadata={"papermill": {"duration": 2.0}}))
    assert [cell.source for cell in copy.cells] == ["x = 1", "draw()"] and "papermill" not in str(copy)
    said, seen = copy.cells[1].outputs
    with Image.open(io.BytesIO(base64.b64decode(seen["data"]["image/png"]))) as image:
        assert said.text == "189 runs" and image.size == (840, 218) and image.mode == "P"


def test_what_has_not_run_to_its_end_is_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "NOTEBOOKS", tmp_path / "docs")
    with pytest.raises(InputError, match="has not run at desk, run make reproduce-figures first"):
        gallery.write(tmp_path / "outputs")
    assert not (tmp_path / "docs").exists()

"""A notebook can be run again from its executed copy alone to the same numbers, or one line says why not."""

import csv
import json
import shutil

import nbformat
import pytest

from lib.workbook import again
from tests.lines import in_one_line, one_line
from tests.processes import python
from tests.workbooks import make, papermill


def executed(folder, cell="# Parameters\nsteps: int = 7  # of a run\nlr: float = 0.1", **fields):
    """An executed copy as papermill leaves it, of instability where the fields do not say otherwise."""
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell, metadata={"tags": ["parameters"]})])
    fields = {"input_path": "notebooks/instability.ipynb", "parameters": {"lr": 0.2}, **fields}
    node.metadata["papermill"] = {name: value for name, value in fields.items() if value is not None}
    path = folder / "mine.ipynb"
    nbformat.write(node, path)
    return path


def test_defaults_are_those_of_that_time(tmp_path):
    assert again._parameters(again._read(executed(tmp_path))) == {"steps": 7, "lr": 0.2}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"input_path": None}, "was not executed by papermill"),
        ({"input_path": "/home/them/notebooks/gone.ipynb"}, "was made from notebooks/gone.ipynb, which is no longer"),
        ({"parameters": {"lrz": [0.1]}}, "lr: is no longer a parameter of instability, check out an unknown commit"),
    ],
)
def test_a_copy_that_cannot_be_run_again_is_one_line(tmp_path, fields, says):
    copy = executed(tmp_path, **fields)
    with one_line(says):
        again.again(copy)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.ipynb"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), ("text", "is not a notebook"), ("[1]", "is not a notebook"), ("{}", "is not a notebook")],
)
def test_what_is_no_notebook_is_one_line(tmp_path, content, says):
    path = tmp_path / "mine.ipynb"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit) as error:
        again.main(str(path))
    in_one_line(str(error.value), says, starts=f"COPY: {path} ")


def test_make_hands_the_name_over_as_it_is(tmp_path, workbook):
    path = tmp_path / "it's mine.ipynb"
    done = make(workbook, "again", f"COPY={path}")
    assert done.returncode != 0 and done.stderr.startswith(f"COPY: {path} cannot be read (No such file or directory)")


def results(folder):
    """Tables, and claims without who made them."""
    tables = {path.name: list(csv.reader(path.open())) for path in sorted((folder / "tables" / "smoke").glob("*.csv"))}
    claims = {path.name: json.loads(path.read_text()) for path in sorted((folder / "claims" / "smoke").glob("*.json"))}
    return tables, {name: {**claim, "provenance": None, "checksum": None} for name, claim in claims.items()}


@pytest.mark.long
def test_a_notebook_gives_the_same_numbers_again(tmp_path, clean_workbook):
    """What -f and -p set, and what it had by default, from nothing but the executed copy."""
    copy = tmp_path / "mine.ipynb"
    given = ["-f", "params/smoke/instability.yaml", "-p", "lrs", "[4e-3]", "-p", "steps", "4"]
    done = papermill(clean_workbook, "instability", copy, *given, "-p", "outputs", str(tmp_path))
    assert done.returncode == 0, done.stderr
    first, text = results(tmp_path), copy.read_text()
    assert first[0] and first[1]
    for name in ("runs", "tables", "claims"):
        shutil.rmtree(tmp_path / name)
    said, _ = python(f"from lib.workbook.again import main; main({str(copy)!r})").communicate(timeout=300)
    assert results(tmp_path) == first and copy.read_text() == text, said
    assert len(list((tmp_path / "runs").glob("[0-9a-f]*"))) == 3 and "not a parameter" not in said
    assert "unknown commit" not in said and f"notebook   {tmp_path / 'mine.again.ipynb'}" in said
    one, two = (again._read(path) for path in (copy, tmp_path / "mine.again.ipynb"))
    assert again._noted(two)[0].keys() == again._noted(one)[0].keys()
    assert again._parameters(two) == again._parameters(one)

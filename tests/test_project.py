"""The README, the docs, the Makefile and the layout hold what they promise, where a machine can check."""

import re
import textwrap

import pytest

from lib.config import ModelConfig
from lib.model.looped import LoopedLM
from lib.workbook import parameters
from tests.workbooks import ROOT

README, CONTRIBUTING = (ROOT / "README.md").read_text(), (ROOT / "CONTRIBUTING.md").read_text()
USING = (ROOT / "docs" / "using.md").read_text()
DOCS = "\n".join([README, CONTRIBUTING, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))])
LIB = sorted(path.relative_to(ROOT / "lib") for path in (ROOT / "lib").rglob("*.py"))


def test_every_module_has_a_twin():
    """tests/a/test_b.py of lib/a/b.py."""
    for module in LIB:
        if module.name != "__init__.py":
            assert (ROOT / "tests" / module.parent / f"test_{module.name}").is_file(), module


def test_every_file_the_docs_name_exists():
    records = (ROOT / "outputs" / "records" / "README.md").read_text()
    for path in re.findall(r"`((?:lib|params|notebooks|tests|docs|outputs/records)/[\w./-]*)`", DOCS + records):
        assert (ROOT / path).exists(), path


def anchors(path):
    """Of a document's headings, as GitHub makes them: small letters, digits, hyphens, and spaces as these."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.name)
def test_every_link_of_the_docs_leads_somewhere(path):
    for link in re.findall(r"\]\((?!http)(.*?)\)", re.sub(r"`[^`]*`(?!\])", "", path.read_text())):
        name, _, anchor = link.partition("#")
        there = path.parent / name if name else path
        assert there.exists() and (not anchor or anchor in anchors(there)), link


def test_every_parameter_that_the_docs_change_is_one_of_its_notebook():
    found = re.findall(r"papermill notebooks/(\w+)\.ipynb (.*)", DOCS)
    changed = [(name, parameter) for name, rest in found for parameter in re.findall(r"-p (\w+) ", rest)]
    assert len(changed) >= 7
    for name, parameter in changed:
        assert parameter in parameters.of_cell(name), f"{name}: {parameter}"


def run(word: str) -> dict:
    """What the block of docs/using.md that has this word leaves."""
    block = next(block for block in re.findall(r"((?:^    .*\n|^\n)+)", USING, re.M) if word in block)
    names: dict = {}
    exec(textwrap.dedent(block), names)
    return names


def test_the_docs_tour_of_a_config_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LoopedLM(ModelConfig()).save("model.safetensors")
    names = run("picture.show")
    assert names["count"](names["cfg"]).published["000"] == 1_027_799_040


def test_the_docs_scoring_runs():
    names = run("lib.tasks.scoring")
    assert [*names["found"]] == [1, 8] and names["found"][8]["n"] == 50


def test_the_docs_decoding_runs():
    names = run("lib.decode.generation")
    assert [len(answer.tokens) for answer in names["answers"]] == [8, 8]

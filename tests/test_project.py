"""The README, the docs, the Makefile and the layout hold what they promise, where a machine can check."""

import importlib.metadata
import re
import textwrap

import pytest
import yaml

from lib.config import ModelConfig
from lib.model.looped import LoopedLM
from lib.workbook import parameters
from tests.processes import python
from tests.workbooks import ROOT

README, CONTRIBUTING = (ROOT / "README.md").read_text(), (ROOT / "CONTRIBUTING.md").read_text()
USING = (ROOT / "docs" / "using.md").read_text()
DOCS = "\n".join([README, CONTRIBUTING, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))])
PINS = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][-1]["pip"]

LIB = sorted(path.relative_to(ROOT / "lib") for path in (ROOT / "lib").rglob("*.py"))


def test_every_module_has_a_twin():
    """tests/a/test_b.py of lib/a/b.py."""
    for module in LIB:
        if module.name != "__init__.py":
            assert (ROOT / "tests" / module.parent / f"test_{module.name}").is_file(), module


def test_training_needs_neither_pandas_nor_scipy_nor_matplotlib():
    heavy = ("pandas", "scipy", "matplotlib")
    code = f"import sys, lib.train, lib.sweep, lib.store; print(sorted(m for m in {heavy} if m in sys.modules))"
    output, _ = python(code).communicate(timeout=240)
    assert output.strip().splitlines()[-1] == "[]"


def test_what_is_installed_is_what_is_pinned():
    assert "torch==2.13.0" in PINS
    for pin in PINS:
        if "==" in pin:
            name, version = pin.split("==")
            assert importlib.metadata.version(name).split("+")[0] == version, name


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
    assert len(changed) >= 5
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

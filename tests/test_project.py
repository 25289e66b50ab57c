"""The README, the docs, the Makefile and the layout hold what they promise, where a machine can check."""

import os
import re
import subprocess
import textwrap

import pytest
import yaml

from lib.base.parameters import Training
from lib.config import ModelConfig
from lib.model.looped import LoopedLM
from lib.workbook import parameters, places
from tests.workbooks import ROOT

README, CONTRIBUTING = (ROOT / "README.md").read_text(), (ROOT / "CONTRIBUTING.md").read_text()
USING, PARAMETERS = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("using", "parameters"))
DOCS = "\n".join([README, CONTRIBUTING, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))])
LIB = sorted(path.relative_to(ROOT / "lib") for path in (ROOT / "lib").rglob("*.py"))


def test_every_module_has_a_twin():
    """tests/a/test_b.py of lib/a/b.py. A paper's parameters and figures may be tested with the rest of it."""
    for module in LIB:
        with_the_rest = module.parts[0] == "papers" and module.stem in ("parameters", "figures")
        if module.name != "__init__.py" and not with_the_rest:
            assert (ROOT / "tests" / module.parent / f"test_{module.name}").is_file(), module


def test_every_file_the_docs_name_exists():
    records = (ROOT / "outputs" / "records" / "README.md").read_text()
    for path in re.findall(r"`((?:lib|params|notebooks|tests|docs|outputs/records)/[\w./-]*)`", DOCS + records):
        assert (ROOT / path).exists(), path


def anchors(path):
    """Its own, and of its headings, as GitHub makes them: small letters, digits, hyphens, and spaces as these."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    own = re.findall(r'<a id="(.*?)">', path.read_text())
    return {*own, *(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)}


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.name)
def test_every_link_of_the_docs_leads_somewhere(path):
    for link in re.findall(r"\]\((?!http)(.*?)\)", re.sub(r"`[^`\n]*`(?!\])", "", path.read_text())):
        name, _, anchor = link.partition("#")
        there = path.parent / name if name else path
        assert there.exists() and (not anchor or anchor in anchors(there)), link


def test_every_parameter_that_the_docs_change_is_one_of_its_notebook():
    found = re.findall(r"papermill notebooks/(\w+)\.ipynb (.*)", DOCS)
    changed = [(name, parameter) for name, rest in found for parameter in re.findall(r"-p (\w+) ", rest)]
    assert len(changed) >= 7
    for name, parameter in changed:
        assert parameter in parameters.kind_of(name).model_fields, f"{name}: {parameter}"


def test_the_docs_list_every_parameter_that_stands_in_no_cell_with_its_value():
    """The plumbing with the profiles' own values, and what a notebook's class fixes beside it with its notebooks."""
    listed = {tuple(cell.strip(" `|") for cell in line.split(" | ")[:-1]) for line in PARAMETERS.splitlines()}
    files = {one: places.PARAMS / one / "shared.yaml" for one in ("desk", "smoke", "gpu", "paper")}
    shared = {one: yaml.safe_load(path.read_text()) for one, path in files.items()}
    plumbing = {name: field.default for name, field in Training.model_fields.items() if not field.is_required()}
    for name, default in plumbing.items():
        values = (default, *(of.get(name, "") for of in shared.values()))
        assert (name, *map(said, values)) in listed, name
    fixed: dict[str, dict[str, list[str]]] = {}
    for name in sorted(path.stem for path in places.NOTEBOOKS.glob("*.ipynb")):
        for field, about in parameters.kind_of(name).model_fields.items():
            if not about.is_required() and plumbing.get(field) != about.default:
                fixed.setdefault(field, {}).setdefault(said(about.default), []).append(name)
    for field, values in fixed.items():
        told = "; ".join(f"`{value}` ({', '.join(names)})" for value, names in values.items())
        assert f"| `{field}` | {told} |" in PARAMETERS, field


def said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_commits_that_fixed_rules_are_in_the_history():
    shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True)
    if shallow.stdout.strip() != "false":
        pytest.skip("a shallow clone, or no clone: the history that it looks into is not there")
    named = {*re.findall(r"`([0-9a-f]{7,})` \(\d{4}-\d\d-\d\d\)", (ROOT / "docs/rules.md").read_text())}
    known = subprocess.run(["git", "log", "--format=%H"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert len(named) > 20 and not [one for one in named if not any(full.startswith(one) for full in known)]


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_what_github_runs_is_there_with_the_pinned_python(path):
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)).split()
    steps = [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]
    for first, *rest in (step["run"].split() for step in steps if "run" in step):
        assert rest[0] in phony if first == "make" else os.access(ROOT / first, os.X_OK), first
    pythons = {step["with"]["python-version"] for step in steps if "python-version" in step.get("with", {})}
    pinned = {*re.findall(r"- python=(\S+)", (ROOT / "environment.yml").read_text())}
    assert pythons <= pinned | {"${{ matrix.python }}"}


def run(word: str) -> dict:
    """What the block of docs/using.md that has this word leaves."""
    block = next(block for block in re.findall(r"((?:^    .*\n|^\n)+)", USING, re.M) if word in block)
    names: dict = {}
    exec(textwrap.dedent(block), names)
    return names


def test_what_the_docs_show_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LoopedLM(ModelConfig()).save("model.safetensors")
    tour, scoring = run("picture.show"), run("lib.tasks.scoring")
    assert tour["count"](tour["cfg"]).published["000"] == 1_027_799_040
    assert [*scoring["found"]] == [1, 8] and scoring["found"][8]["n"] == 50
    assert [len(answer.tokens) for answer in run("lib.decode.generation")["answers"]] == [8, 8]

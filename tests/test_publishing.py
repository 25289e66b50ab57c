"""The container and the Actions run the commands of the README and the gate, with what these need."""

import json
import os
import re
import subprocess

import pytest
import yaml

from tests.workbooks import ROOT

README = (ROOT / "README.md").read_text()
MACHINES = (ROOT / "docs" / "machines.md").read_text()
TWO = re.findall(r"^    (make \S.*?) *#", README[README.index("## Install and run") :], re.M)[:2]
(PYTHON,) = re.findall(r"- python=(\S+)", (ROOT / "environment.yml").read_text())
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
PHONY = " ".join(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)).split()


def dockerfile():
    """{stage: [(instruction, what it is told)]}, the last one by the name ""."""
    text = re.sub(r"\\\n|^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M)
    stages, name = {}, None
    for line in filter(None, text.split("\n")):
        instruction, told = line.split(maxsplit=1)
        if instruction == "FROM":
            name = told.partition(" AS ")[2]
            stages[name] = []
        stages[name].append((instruction, told))
    return stages


def told(instruction, stage):
    return [each for name, each in dockerfile()[stage] if name == instruction]


def test_the_image_gets_all_that_is_tracked_and_nothing_that_is_made():
    assert told("COPY", "") == ["--chown=reader:reader . ."]
    ignored = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and not line.startswith("#")]
    assert ignored == [".venv", "**/__pycache__", "*.egg-info", "outputs/*", "!outputs/records"]
    lost = re.compile(r"\.venv/|(.*/)?__pycache__/|[^/]*\.egg-info/|outputs/(?!records/)")
    assert len(TRACKED) > 600 and not [name for name in TRACKED if lost.match(name)]


def test_the_devcontainer_starts_from_the_same_file():
    place = ROOT / ".devcontainer"
    given = json.loads((place / "devcontainer.json").read_text())
    build = given["build"]
    assert (place / build["dockerfile"]).resolve() == ROOT / "Dockerfile" and (
        place / build["context"]
    ).resolve() == ROOT
    assert told("USER", build["target"]) == [given["remoteUser"]]
    assert given["postCreateCommand"] == "make env" and "env" in PHONY


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_what_github_runs_is_there(path):
    """With the pinned Python."""
    workflow = yaml.safe_load(path.read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [step["run"].split() for step in steps if "run" in step]
    for first, *rest in commands:
        assert rest[0] in PHONY if first == "make" else os.access(ROOT / first, os.X_OK), first
    pythons = {step["with"]["python-version"] for step in steps if "python-version" in step.get("with", {})}
    assert pythons <= {PYTHON}

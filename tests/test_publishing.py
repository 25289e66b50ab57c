"""The container gets what is tracked, and the Actions run commands that are there, with the pinned Python."""

import os
import re
import subprocess

import pytest
import yaml

from tests.workbooks import ROOT

(PYTHON,) = re.findall(r"- python=(\S+)", (ROOT / "environment.yml").read_text())
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
PHONY = " ".join(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)).split()


def test_the_image_gets_all_that_is_tracked_and_nothing_that_is_made():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and not line.startswith("#")]
    assert ignored == [".venv", "**/__pycache__", "*.egg-info", "outputs/*", "!outputs/records"]
    lost = re.compile(r"\.venv/|(.*/)?__pycache__/|[^/]*\.egg-info/|outputs/(?!records/)")
    assert len(TRACKED) > 600 and not [name for name in TRACKED if lost.match(name)]


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

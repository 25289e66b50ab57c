"""The Actions run commands that are there, with the pinned Python."""

import os
import re

import pytest
import yaml

from tests.workbooks import ROOT

(PYTHON,) = re.findall(r"- python=(\S+)", (ROOT / "environment.yml").read_text())
PHONY = " ".join(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)).split()


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

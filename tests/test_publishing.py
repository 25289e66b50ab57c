"""The container and the Actions run the commands of the README and the gate, with what these need."""

import json
import re
import subprocess

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


def test_the_readmes_two_commands_are_those_that_the_container_ends_in():
    smoke, desk = TWO
    assert (smoke, desk) == ("make reproduce-figures PROFILE=smoke", "make reproduce-figures")
    assert json.loads(told("CMD", "")[0]) == desk.split() and told("RUN", "") == ["make env"]
    runs = re.findall(r"^    docker run --name \w+ looped-lm ?(.*?) *(?:# (.*))?$", MACHINES, re.M)
    assert runs == [(smoke, ""), ("", desk)]


def test_the_image_has_the_pinned_python_a_compiler_and_git_and_runs_nothing_as_root():
    assert told("FROM", "machine") == [f"python:{PYTHON}-slim AS machine"] and told("FROM", "") == ["machine"]
    (apt,), (user,), (folder,) = (told(each, "machine") for each in ("RUN", "USER", "WORKDIR"))
    assert {"build-essential", "git"} <= {*apt.split()} and f"/bin/bash {user} " in apt
    assert re.search(rf"--owner={user} --group={user} {folder}$", apt) and not told("USER", "")
    assert f"docker cp desk:{folder}/outputs/report report" in MACHINES


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


def test_github_runs_the_gate_and_nothing_else():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "gate.yml").read_text())
    assert {*workflow["on"]} == {"push", "pull_request"} and workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert ".ci/run" in TRACKED and (ROOT / ".ci" / "run").stat().st_mode & 0o111
    (python,) = [step["with"] for step in job["steps"] if "with" in step]
    assert python["python-version"] == PYTHON and [*ROOT.glob(python["cache-dependency-path"])]
    assert [step["uses"].split("@")[0] for step in job["steps"] if "uses" in step] == [
        "actions/checkout",
        "actions/setup-python",
    ]

"""What make installs are the locks: all that the pins of a group need, on every machine, each by its hashes."""

import ast
import functools
import importlib.metadata
import itertools
import json
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.workbooks import ROOT

ENVIRONMENT = (ROOT / "environment.yml").read_text()
#: group -> its pins
PINS = {
    group: [Requirement(pin) for pin in re.findall(r"^ +- (\S+==\S+)$", lines, re.M)]
    for group, lines in re.findall(r"^ +# (\w+):(.*\n(?: .*\n)+?)(?= +# \w+: |\Z)", ENVIRONMENT, re.M)
}
#: of tasks, too; only its files are used
FILES_ONLY = [Requirement(pin) for pin in re.findall(r"# pip install --no-deps (\S+)$", ENVIRONMENT, re.M)]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: what lib imports where it is installed
OPTIONAL = {"lm_eval": "tasks", "ray": "ray", "flash_attn": "flash"}

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
MACHINES = {"linux": "x86_64", "linux on ARM": "aarch64", "darwin": "arm64"}
PLATFORMS = {
    f"{name}, {python}": {
        **default_environment(),
        **{"implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix"},
        **{"sys_platform": name.split()[0], "platform_system": name.split()[0].capitalize()},
        **{"platform_machine": machine, "python_version": python, "python_full_version": f"{python}.0"},
    }
    for (name, machine), python in itertools.product(MACHINES.items(), PYTHONS)
}


def read(name):
    """[(requirement, its hashes)] of a file that pip reads."""
    text = re.sub(r"^#.*\n", "", (ROOT / "locks" / f"{name}.txt").read_text(), flags=re.M).replace("\\\n", "")
    lines = [re.split(r"\s+--hash=", line) for line in text.splitlines()]
    return [(Requirement(first), hashes) for first, *hashes in lines]


LOCKS = {name: read(name) for name in ("core", "tasks", "dev", "torch-cpu", "torch-cuda")}


def locked(*names, platform):
    """{name: version} of what pip installs there of these locks, which agree."""
    found = {}
    for requirement, _ in itertools.chain(*(LOCKS[name] for name in names)):
        if requirement.marker is None or requirement.marker.evaluate(platform):
            (pin,) = requirement.specifier
            assert pin.operator == "==" and found.setdefault(canonicalize_name(requirement.name), pin.version)
            assert found[canonicalize_name(requirement.name)] == pin.version, requirement
    return found


@functools.cache
def asked(name):
    """What a package says that it needs; nothing where it is one of another platform."""
    try:
        return [Requirement(text) for text in importlib.metadata.requires(name) or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def needed(pins, platform):
    """{name: [specifiers]} of pins and of all that they need there, as what is installed here says of itself."""
    found, extras_of, todo = {}, {}, [*pins]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        found.setdefault(name, []).append(requirement.specifier)
        extras = {"", *requirement.extras} - extras_of.setdefault(name, set())
        extras_of[name] |= extras
        for needs in asked(name) if requirement not in FILES_ONLY else []:
            if any(needs.marker is None or needs.marker.evaluate({**platform, "extra": extra}) for extra in extras):
                todo.append(needs)
    return found


def pins(group):
    return [*PINS["core"], *(PINS[group] if group != "core" else []), *(FILES_ONLY if group == "tasks" else [])]


def test_every_package_is_locked_to_files_by_their_sha256():
    for requirement, hashes in itertools.chain(*LOCKS.values()):
        assert hashes and len({*hashes}) == len(hashes), requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    ((_, hashes),) = LOCKS["torch-cpu"]
    assert len(hashes) == len(PLATFORMS)  # each has its file


@pytest.mark.parametrize("torch", ["torch-cpu", "torch-cuda"])
@pytest.mark.parametrize("group", PINS)
def test_the_pins_of_a_group_and_all_that_they_need_are_locked_at_versions_that_fit(group, torch):
    for platform in PLATFORMS.values():
        there = locked("core", group, torch, platform=platform)
        for name, specifiers in needed(pins(group), platform).items():
            assert name in there, f"{name}: run make lock"
            assert all(specifier.contains(there[name], prereleases=True) for specifier in specifiers), name


def test_what_is_locked_is_installed_and_needed_by_its_group():
    assert [*PINS] == ["core", "tasks", "dev"]
    here = {**default_environment(), "extra": ""}
    for group in PINS:
        there = locked("core", group, "torch-cpu", platform=here)
        assert {*there} <= {*needed(pins(group), here)}
        for name, version in there.items():
            assert importlib.metadata.version(name).split("+")[0] == version, f"{name}: run make test"


def test_the_core_has_what_lib_and_the_notebooks_import():
    """But for what is said to be asked for: the tasks, and extras of pyproject.toml."""
    sources = [path.read_text() for path in (ROOT / "lib").rglob("*.py")]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        sources += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    imported = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"lib"}
    assert imported > {"torch", "matplotlib", *OPTIONAL}
    assert {*OPTIONAL.values()} <= {"tasks", *PROJECT["optional-dependencies"]}
    core = locked("core", "torch-cpu", platform={**default_environment(), "extra": ""})
    packages = importlib.metadata.packages_distributions()
    for name in imported - {*OPTIONAL}:
        assert {canonicalize_name(package) for package in packages[name]} & {*core}, name


def test_what_comes_with_cuda_alone_is_linuxs_and_apart():
    for name, platform in PLATFORMS.items():
        alone = locked("torch-cuda", platform=platform)
        assert len(alone) > 10 if name.startswith("linux") else {*alone} == {"torch"}
    assert not [name for name in locked(*PINS, platform=PLATFORMS["linux, 3.11"]) if re.match("torch$|nvidia", name)]


def dry(*arguments):
    """What make would install, in order."""
    command = ["make", "--dry-run", "--always-make", *arguments, f"PYTHON={sys.executable}"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace("\\\n", "")
    return [each for each in re.split(r"\n|\|\|", said) if "pip install" in each]


@pytest.mark.parametrize("torch", ["cpu", "cuda"])
def test_make_env_installs_the_core_and_no_file_without_a_hash(torch):
    """But this library, with a build backend that the lock has."""
    *files, own = dry("env", f"TORCH={torch}")
    assert all(re.search(r"--no-deps --require-hashes .*-r locks/[\w-]+\.txt", each) for each in files)
    assert [re.findall(r"locks/(\S+)\.txt", each)[0] for each in files][-2:] == [f"torch-{torch}", "core"]
    assert "--no-deps --no-build-isolation --editable ." in own
    assert "setuptools" in locked("core", platform=PLATFORMS["linux, 3.11"])


@pytest.mark.parametrize(("goal", "groups"), [("tasks", ["tasks"]), ("lint", ["dev"]), ("test", ["tasks", "dev"])])
def test_what_needs_more_than_the_core_adds_it(goal, groups):
    added = [each for each in dry(goal, "TORCH=cpu") if re.search(r"locks/(tasks|dev)\.txt", each)]
    lock = re.compile(r"--no-deps --require-hashes -r locks/(\w+)\.txt")
    assert [*map(lock.findall, added)] == [[group] for group in groups]


@pytest.mark.parametrize("minor", range(10, 16))
def test_make_takes_the_pythons_of_the_locks_alone(minor, tmp_path):
    """A Python that says it is another, and does nothing else."""
    fine = f"3.{minor}" in PYTHONS
    assert (f"3.{minor}" in SpecifierSet(PROJECT["requires-python"])) is fine
    for name in ("Makefile", "pyproject.toml", "notebooks", "params", "lib"):
        (tmp_path / name).symlink_to(ROOT / name)
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
        case $1 in
        -I) echo fine;;
        -c) exec {sys.executable} -c "import sys; sys.version_info = (3, {minor}); $2";;
        esac""")
    python.chmod(0o755)
    command = ["make", "env", "TORCH=cpu", f"PYTHON={python}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (f"PYTHON: '{python}' is not Python 3.11 to 3.14, pass PYTHON=" in done.stderr) is not fine
    assert ("installing" in done.stdout) is fine

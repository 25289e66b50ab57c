"""What make env installs is the lock, which has all that the pins need on every platform, each with its hashes."""

import importlib.metadata
import itertools
import re
import subprocess
import sys

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.workbooks import ROOT

LOCKS = ROOT / "locks"
ENVIRONMENT = (ROOT / "environment.yml").read_text()
#: those of environment.yml; of the last, which stands in a comment, only the files are used
PINS = [pin for pin in yaml.safe_load(ENVIRONMENT)["dependencies"][-1]["pip"] if "==" in pin]
FILES_ONLY = re.findall(r"^# pip install --no-deps (\S+)$", ENVIRONMENT, re.M)

MACHINES = {"linux": "x86_64", "linux on ARM": "aarch64", "darwin": "arm64"}
PLATFORMS = {
    name: {
        **default_environment(),
        **{"implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix"},
        **{"sys_platform": name.split()[0], "platform_system": name.split()[0].capitalize()},
        **{"platform_machine": machine, "python_version": "3.11", "python_full_version": "3.11.0"},
    }
    for name, machine in MACHINES.items()
}


def read(name):
    """[(requirement, its hashes)] of a file that pip reads."""
    text = re.sub(r"^#.*\n", "", (LOCKS / name).read_text(), flags=re.M).replace("\\\n", "")
    lines = [re.split(r"\s+--hash=", line) for line in text.splitlines()]
    return [(Requirement(first), hashes) for first, *hashes in lines]


PACKAGES, CPU, CUDA = read("packages.txt"), read("torch-cpu.txt"), read("torch-cuda.txt")


def locked(*files, platform):
    """{name: version} of what pip installs there."""
    found = {}
    for requirement, _ in itertools.chain(*files):
        if requirement.marker is None or requirement.marker.evaluate(platform):
            (pin,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            assert pin.operator == "==" and name not in found, requirement
            found[name] = pin.version
    return found


def needed(platform):
    """{name: [specifiers]} of the pins and of all that they need there, as what is installed here says of itself."""
    found, asked = {}, {}
    todo = [Requirement(pin) for pin in [*PINS, *FILES_ONLY]]
    files_only = {canonicalize_name(Requirement(pin).name) for pin in FILES_ONLY}
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        found.setdefault(name, []).append(requirement.specifier)
        extras = {"", *requirement.extras} - asked.setdefault(name, set())
        asked[name] |= extras
        if name in files_only or not extras:
            continue
        try:
            texts = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
        for needs in map(Requirement, texts):
            if needs.marker is None or any(needs.marker.evaluate({**platform, "extra": extra}) for extra in extras):
                todo.append(needs)
    return found


def test_every_package_is_locked_to_files_by_their_sha256():
    assert len(PACKAGES) > 200 and len(CPU) == 1
    for requirement, hashes in [*PACKAGES, *CPU, *CUDA]:
        assert hashes and len({*hashes}) == len(hashes), requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@pytest.mark.parametrize("torch", [CPU, CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_the_pins_and_all_that_they_need_are_locked_at_versions_that_fit(platform, torch):
    there = locked(PACKAGES, torch, platform=platform)
    for name, specifiers in needed(platform).items():
        assert name in there, f"{name}: run make lock"
        assert all(specifier.contains(there[name], prereleases=True) for specifier in specifiers), name


def test_what_is_locked_is_installed_and_needed():
    here = {**default_environment(), "extra": ""}
    there = locked(PACKAGES, CPU, platform=here)
    assert {*there} <= {*needed(here)}
    for name, version in there.items():
        assert importlib.metadata.version(name).split("+")[0] == version, f"{name}: run make env"


def test_what_comes_with_cuda_alone_is_linuxs_and_apart():
    assert {*locked(CUDA, platform=PLATFORMS["darwin"])} == {"torch"} and len(CUDA) > 10
    apart = locked(PACKAGES, platform=PLATFORMS["linux"])
    assert not [name for name in apart if re.match("torch$|triton|nvidia|cuda", name)]


@pytest.mark.parametrize("torch", ["cpu", "cuda"])
def test_make_env_installs_no_file_without_a_hash(torch):
    """But this library, with a build backend that the lock has."""
    command = ["make", "--dry-run", "--always-make", "env", f"TORCH={torch}", f"PYTHON={sys.executable}"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace("\\\n", "")
    installs = [each for each in re.split(r"\n|\|\|", said) if "pip install" in each]
    *files, own = installs
    assert all(re.search(r"--no-deps --require-hashes .*-r locks/[\w-]+\.txt", each) for each in files)
    assert [re.findall(r"locks/(\S+)\.txt", each)[0] for each in files][-2:] == [f"torch-{torch}", "packages"]
    assert "--no-deps --no-build-isolation --editable ." in own and "setuptools" in locked(
        PACKAGES, platform=PLATFORMS["linux"]
    )

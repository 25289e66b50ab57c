"""Gives tests a small run, a store and a copy of the workbook, and sees that none touches this workbook's outputs."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from tests.watched import sitecustomize

sitecustomize.begin()

from lib.base import files  # noqa: E402
from lib.store.runs import RunStore  # noqa: E402
from lib.workbook import places  # noqa: E402
from tests.workbooks import WATCHED, copied  # noqa: E402

# make tells a make inside it to print the folders it enters; those that tests start are nobody's
for told in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
    os.environ.pop(told, None)
# some shells start what they leave in the background deaf to it, and what that starts; tests send it
signal.signal(signal.SIGINT, signal.default_int_handler)


hypothesis.settings.register_profile("thorough")  # of make test-long


def examples(most: int) -> int:
    """How many examples hypothesis tries: all of them in make test-long, a tenth, and at least ten, elsewhere."""
    thorough = hypothesis.settings.get_current_profile_name() == "thorough"
    return most if thorough else max(10, most // 10)


def pytest_collection_modifyitems(items):
    """What is costly is begun first, so that no process is left alone with it at the end."""
    items.sort(key=lambda item: not item.get_closest_marker("costly"))


_watching = False


def _watch(event: str, arguments: tuple) -> None:
    """No test reads them either; of the processes that tests start ``sitecustomize`` sees that they do not write."""
    if not _watching:
        return
    if event in ("open", "os.listdir", "os.scandir", *sitecustomize.CHANGES):
        for path in arguments[:2]:
            if sitecustomize.own(path):
                raise RuntimeError(f"a test touches the workbook's own outputs: {event} {path}")


def pytest_addoption(parser):
    parser.addoption("--made", metavar="OUTPUTS", help="what make reproduce-figures PROFILE=smoke made, for -m smoke")


def pytest_configure(config):
    global _watching
    sys.addaudithook(_watch)
    _watching = not config.getoption("made")
    if _watching:
        os.environ["WATCHED"] = "1"
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WATCHED), os.environ.get("PYTHONPATH")]))


def pytest_unconfigure():
    global _watching
    _watching = False


@pytest.fixture(autouse=True)
def no_records(monkeypatch, tmp_path_factory):
    """Notebooks that a test starts find no committed records."""
    monkeypatch.setattr(places, "RECORDS", tmp_path_factory.getbasetemp() / "no-records")


@pytest.fixture(scope="session")
def found_once(tmp_path_factory) -> Path:
    """A folder that all processes of a test run share, for what is found out once."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


@pytest.fixture
def plans_once(monkeypatch, found_once) -> None:
    """``plans.plan`` of a notebook as it stands, found out once a test run, whichever test asks first."""
    from lib.workbook import plans

    find_out = plans.plan

    def plan(name: str, profile: str, **changes):
        path = found_once / f"{name}-{profile}.plan"
        if changes:
            return find_out(name, profile, **changes)  # it is not what others read as the notebook's plan
        if not path.exists():
            with files.replacing(path) as draft:
                draft.write_bytes(pickle.dumps(find_out(name, profile)))
        return pickle.loads(path.read_bytes())

    monkeypatch.setattr(plans, "plan", plan)


@pytest.fixture
def letters(tmp_path) -> Path:
    """A text of 40 documents, each a run of one letter of its own length."""
    path = tmp_path / "letters.txt"
    path.write_text("\n\n".join(chr(65 + i) * (3 * i + 1) for i in range(40)))
    return path


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def style():
    """The look of figures, and none of them left open."""
    from matplotlib import pyplot

    from lib.figures.style import use_style

    use_style("smoke")
    yield
    pyplot.close("all")


@pytest.fixture
def workbook(tmp_path) -> Path:
    """A copy of the workbook that nothing was made in."""
    return copied(tmp_path / "workbook")


@pytest.fixture(scope="session")
def clean_workbook(tmp_path_factory) -> Path:
    """One for all who leave nothing in it: whatever they make goes elsewhere."""
    place = copied(tmp_path_factory.mktemp("clean") / "workbook")
    yield place
    assert not (place / "outputs").exists()


class SmallDisk:
    """A file system of four megabytes at ``path``."""

    def __init__(self, path: Path):
        self.path = path

    @contextlib.contextmanager
    def full(self, leave: int = 0):
        """All of it is taken but ``leave`` bytes."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        with filler.open("r+b") as file:
            file.truncate(filler.stat().st_size - leave)
        try:
            yield
        finally:
            filler.unlink()

    @contextlib.contextmanager
    def read_only(self):
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.path], check=True)


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield SmallDisk(path)
    subprocess.run(["umount", "--lazy", path], check=True)  # mapped files hold on to it

"""A make that is killed, stopped or not alone ends with the numbers of one that nothing disturbed."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from lib.store.runs import RunStore
from tests.processes import ENDED, until
from tests.runs import numbers
from tests.workbooks import ODD, copied, own_environment

pytestmark = [pytest.mark.long, pytest.mark.precision]

NOTEBOOK = "instability"
KILLS = 3  # of each victim
RUNNER = "lib.workbook.make_notebooks"  # it forks a driver for each notebook, and that one the kernel


class Workbook:
    """A copy of the workbook in a folder with an odd name, in which a notebook takes some seconds to train: by itself,
    or with ``jobs`` on so many processes."""

    def __init__(self, place: Path, jobs: int = 0):
        self.path, self.jobs = copied(place / ODD), jobs
        path = self.path / "params" / "smoke" / f"{NOTEBOOK}.yaml"
        text = re.sub(r"^steps: .*", "steps: 40", path.read_text(), flags=re.M)
        path.write_text(re.sub(r"^max_hours: .*", "max_hours: 2.0", text, flags=re.M))

    def start(self, **environment: str) -> subprocess.Popen:
        """make in a session of its own, as in a terminal."""
        command = ["make", "reproduce-figures", "PROFILE=smoke", "TORCH=cpu", f"ONLY={NOTEBOOK}", f"JOBS={self.jobs}"]
        self.log = (self.path.parent / f"{time.monotonic_ns()}.log").open("w+")
        own = {"cwd": self.path, "env": {**own_environment(), **environment}, "start_new_session": True}
        return subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, **own)

    def said(self) -> str:
        return Path(self.log.name).read_text().replace("\r", "\n")

    def finish(self) -> dict[str, str]:
        """What has come out when make has run to its end."""
        assert self.start().wait(timeout=900) == 0 and "failed" not in self.said(), self.said()
        self.wait_until_alone()
        return self.numbers()

    def processes(self, kind: str = "") -> list[int]:
        """Those that work here, and whose command line holds ``kind``; the oldest first."""
        every = [one.info for one in psutil.process_iter(["pid", "cwd", "status", "cmdline", "create_time"])]
        here = [one for one in every if one["cwd"] and Path(one["cwd"]).is_relative_to(self.path)]
        alive = [one for one in here if one["status"] != psutil.STATUS_ZOMBIE]
        works = [one for one in alive if kind in " ".join(one["cmdline"]) + " "]
        return [one["pid"] for one in sorted(works, key=lambda one: (one["create_time"], one["pid"]))]

    def wait_until_alone(self) -> None:
        until(lambda: not self.processes(), ENDED, said=self.processes)

    def training(self) -> bool:
        """In processes of its own, beside the one that forks them, or in the notebook's."""
        at_it = len(self.processes("forkserver")) >= 2 if self.jobs else len(self.processes(RUNNER)) >= 3
        return bool(at_it) and any((self.path / "outputs/runs").glob(".*.lock"))

    def numbers(self) -> dict[str, str]:
        """Everything that came out, but the clock and who made it."""
        outputs = self.path / "outputs"
        found = {run.key: json.dumps(numbers(run), sort_keys=True) for run in RunStore(outputs / "runs").runs()}
        for path in outputs.glob("tables/*/*.csv"):
            found[path.name] = path.read_text()
        for path in outputs.glob("claims/*/*.json"):
            finding = json.loads(path.read_text())
            del finding["checksum"], finding["provenance"]["parameters"]["jobs"]
            found[path.name] = json.dumps(finding, sort_keys=True)
        figures = sorted(path.name for path in outputs.glob("figures/*/*.p*"))
        return {**found, "figures": ", ".join(figures)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:

    whole = Workbook(tmp_path_factory.mktemp("whole"))
    process = whole.start(LC_ALL="C")  # whose file names are bytes
    assert process.wait(timeout=900) == 0, whole.said()
    found = whole.numbers()
    assert sum(len(name) == 16 for name in found) == 6 and len(found["figures"].split(", ")) == 8
    assert "Traceback" not in whole.said()
    return found


#: who is killed -> what is in its command line, how many older ones have it too, and seconds in which it is still alive
VICTIMS = {
    "make": ("make ", 0, 6),
    "runner": (RUNNER, 0, 6),
    "driver": (RUNNER, 1, 6),
    "kernel": (RUNNER, 2, 4),
    "worker": ("forkserver", 1, 1),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_whatever_is_killed_a_second_call_finishes_to_the_same_numbers(tmp_path, undisturbed, victim):
    """Some times in a row, at a random moment of its life."""
    workbook, chance, kills = Workbook(tmp_path, jobs=2 * (victim == "worker")), random.Random(victim), 0
    kind, others, life = VICTIMS[victim]
    while kills < KILLS:
        make = workbook.start()
        delay = chance.uniform(0, life)
        while make.poll() is None and len(workbook.processes(kind)) <= others:
            time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            make.wait(timeout=delay)
        found = workbook.processes(kind)[others:]  # the process that forks workers is older than they are
        for pid in found if victim == "make" else found[:1]:
            os.kill(pid, signal.SIGKILL)
        kills += bool(found)
        if victim != "make":  # whose children live on, and are met by the next make
            make.wait(timeout=900)
            workbook.wait_until_alone()
        if not found:  # everything was done before
            shutil.rmtree(workbook.path / "outputs")
    assert workbook.finish() == undisturbed


def test_four_makes_at_once_train_each_run_once(tmp_path, undisturbed):
    workbook = Workbook(tmp_path)
    makes = [(workbook.start(), workbook.log) for _ in range(4)]
    assert [make.wait(timeout=900) for make, _ in makes] == [0] * 4, [Path(log.name).read_text() for _, log in makes]
    said = "".join(Path(log.name).read_text() for _, log in makes)
    assert said.count(f"notebook   {NOTEBOOK} (") == 1 and "set aside" not in said
    assert workbook.numbers() == undisturbed


@pytest.mark.parametrize("jobs", [0, 2])
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_make_that_is_stopped_ends_at_once_and_goes_on_later(tmp_path, undisturbed, how, jobs):
    workbook = Workbook(tmp_path, jobs)
    make = workbook.start()
    until(workbook.training, running=lambda: make.poll() is None, said=workbook.said)
    before = len(workbook.said())
    if how == "Ctrl-C":
        os.killpg(make.pid, signal.SIGINT)
    else:
        make.send_signal(signal.SIGTERM)
    make.wait(timeout=ENDED)
    workbook.wait_until_alone()
    said = workbook.said()[before:]
    assert "stopped, what was begun goes on" in said and "Traceback" not in said
    lines = [line for line in said.splitlines() if line.strip() and not re.match(r"\d+ runs:", line)]
    assert len(lines) <= 5, said
    assert workbook.finish() == undisturbed

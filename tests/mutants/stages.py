"""What the twins missed meets the gate's stages, as make runs them: many faults at once, until it is known which."""

import collections
import itertools
import os
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.copies import clear, environment, limit_memory, renewed
from tests.mutants.faults import Mutant, mutated, named, source_of
from tests.mutants.notes import STAGES, Notes, noticed

ENOUGH = 20  # tests that fail before a stage ends


def stage(
    place: Path, name: str, limit: float, codes: dict[str, str], tests: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The same three ends as a twin's, in a new copy, with a target of make to notice; and the tests that failed, some
    of them at least, where make names any. ``codes``: of modules; ``tests``: those that are run, all of the target's
    when empty."""
    copy = renewed(place) / "workbook"
    for module, code in codes.items():
        source_of(copy, module).write_text(code)
    begun_by_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SINCE", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in begun_by_make}
    told = {**inherited, **environment(place), "PYTEST_ADDOPTS": shlex.join([f"--maxfail={ENOUGH}", *tests])}
    with (place / "output.txt").open("w") as output:
        make = subprocess.Popen(
            ["make", name, "TORCH=cpu"],
            cwd=copy,
            env=told,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=limit_memory,
        )
        try:
            status = make.wait(limit)
        except subprocess.TimeoutExpired:
            return "killed by the limit", []
        finally:
            clear(place)
            make.wait()
    if status == 0:
        return "survived", []
    text = (place / "output.txt").read_text(errors="replace")
    return "killed", [*dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) (tests/[^\s\[]+)", text, re.M))]


def alone(place: Path, name: str, notes: Notes) -> float:
    """The seconds that a stage takes without any fault, which has to pass."""
    if ("", name) not in notes.all():
        begin = time.monotonic()
        end, by = stage(place / "0", name, 4 * 3600, {})
        if end != "survived":
            raise SystemExit(f"make {name} fails without any fault: {by}, see {place / '0' / 'output.txt'}")
        notes.add("", name, end, seconds=time.monotonic() - begin)
    return notes.all()["", name]["seconds"]


# ---- many faults -----------------------------------------------------------------------------------------------------


def meet_stages(place: Path, sample: list[Mutant], notes: Notes) -> None:
    """What the twins missed meets the stages, until one notices; one stage at a time, for each takes all cores."""
    for name in STAGES:
        known = notes.all()
        left = [fault for fault in sample if not noticed(fault, known) and (fault.key, name) not in known]
        for group in apart(left):
            meet_stage(place, name, group, notes)


def apart(faults: list[Mutant]) -> list[list[Mutant]]:
    """As few groups as can be, none of which has two faults of one module."""
    of_module = collections.defaultdict(list)
    for fault in faults:
        of_module[fault.module].append(fault)
    return [[*filter(None, group)] for group in itertools.zip_longest(*of_module.values())]


def meet_stage(place: Path, name: str, group: list[Mutant], notes: Notes) -> None:
    """All of a group at once, since a stage takes minutes and most that get this far change nothing. Where the stage
    notices, each meets the tests that failed by itself, and who passes them meets the stage again with the others;
    where these tests do not tell who it was, each half meets the stage by itself."""
    limit = 30 + 2 * alone(place, name, notes)
    end, failed = meet_together(place, name, group, limit)
    if end == "survived" or len(group) == 1:
        for fault in group:
            note_stage(place, name, fault, notes, end, failed)
        return
    left = group
    if failed:
        left = [fault for fault in group if not meet_tests(place, name, fault, notes, limit, failed)]
    middle = len(group) // 2
    parts = [left] if len(left) < len(group) else [group[:middle], group[middle:]]
    for part in filter(None, parts):
        meet_stage(place, name, part, notes)


def meet_tests(place: Path, name: str, fault: Mutant, notes: Notes, limit: float, tests: list[str]) -> bool:
    """Whether these tests of a stage notice a fault by itself, which is noted then."""
    end, failed = meet_together(place, name, [fault], limit, tests)
    if end != "survived":
        note_stage(place, name, fault, notes, end, failed)
    return end != "survived"


def meet_together(
    place: Path, name: str, group: list[Mutant], limit: float, tests: Sequence[str] = ()
) -> tuple[str, list[str]]:
    codes = {fault.module: mutated(source_of(place / "snapshot", fault.module).read_text(), fault) for fault in group}
    return stage(place / "0", name, limit, codes, tests)


def note_stage(place: Path, name: str, fault: Mutant, notes: Notes, end: str, failed: list[str]) -> None:
    by = failed[0] if failed else ""
    notes.add(fault.key, name, end, by=by)
    print(f"make {name}, {end} {by}: {named(place / 'snapshot', fault)}", flush=True)

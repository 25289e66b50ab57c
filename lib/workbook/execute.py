"""A notebook run for make: by one process at a time, and ended in one line however it ends."""

import json
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

import lib
from lib.base import files
from lib.base.errors import in_one_line
from lib.workbook import reference
from lib.workbook.reference import spell

ROOT = Path(lib.__file__).parent.parent


class Failed(Exception):
    """A cell that raised, or a kernel that died."""


def execute(
    name: str, profile: str, jobs: int, made_from: str, outputs: Path = ROOT / "outputs",
    chosen: Sequence[str] = (), since: float = 0.0,
) -> None:  # fmt: skip
    """Runs notebooks/<name>.ipynb with params/<profile>/<name>.yaml, and ``jobs`` where that knows them.

    The executed copy is written to outputs/notebooks/<profile>/ as it runs. The mark beside it, .<name>.done, says at
    its end what it was ``made_from``; where it says so already, another process was faster and nothing is done.
    Raises Failed, and DiskFull or InputError where the copy cannot be written."""
    folder = outputs / "notebooks" / profile
    mark = folder / f".{name}.done"
    with files.lock(folder / f".{name}.lock"):
        if mark.exists() and mark.read_text() == made_from:
            return
        files.remove(mark)
        place = _place(name, profile, chosen, since, folder) if chosen else ""
        print(f"notebook   {name}{place}\n", end="", flush=True)  # in one piece: others print too
        parameters = yaml.safe_load((ROOT / "params" / profile / f"{name}.yaml").read_text())
        with files.disk_full_says(folder / f"{name}.ipynb"):
            parameters |= {"jobs": jobs} if "jobs" in parameters else {}
            run(ROOT / "notebooks" / f"{name}.ipynb", folder / f"{name}.ipynb", parameters)
        with files.replacing(mark) as draft:
            draft.write_text(made_from)


def _place(name: str, profile: str, chosen: Sequence[str], since: float, folder: Path) -> str:
    """Which of the ``chosen`` it is, and how long it and those after it take: at the pace, against the reference, of
    those that ran ``since``, or at this machine's where none did."""
    known, number = reference.read(), chosen.index(name) + 1
    here = f" ({number} of {len(chosen)})"
    if not known.seconds([name], profile):
        return here  # its own plan says how long its runs take
    ran = [other for other in chosen if _ended(folder / f".{other}.done") >= since]
    expected, took = known.seconds(ran, profile), sum(_seconds(folder / f"{other}.ipynb") for other in ran)
    pace = took / expected if expected else known.slowdown()
    at_once = max(1.0, took / (time.time() - since))  # at smoke there are several
    left = known.seconds(chosen[number - 1 :], profile) * pace / at_once
    return f"{here}: about {spell(known.seconds([name], profile) * pace)}, {spell(left)} until all are done"


def _seconds(copy: Path) -> float:
    """What an executed copy took."""
    return float(json.loads(copy.read_text())["metadata"]["papermill"]["duration"])


def _ended(mark: Path) -> float:
    return mark.stat().st_mtime if mark.exists() else 0.0


def run(source: Path, place: Path, parameters: dict[str, Any]) -> None:
    """Executes a notebook into ``place``, and prints what it prints. Raises Failed."""
    without_grammar()
    import papermill  # which takes a while, and a signal may come before
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    for logger in ("papermill", "asyncio"):  # what they would say of a cell that was stopped is said here
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        papermill.execute_notebook(
            source, place, parameters,
            progress_bar=False, stdout_file=sys.stdout, stderr_file=sys.stderr,
            coalesce_streams=True,  # of a bar the copy keeps what is seen of it in the end
            # an interpreter with torch in it takes a second to end, and without processes of its own leaves nothing
            shutdown_kernel="immediate" if parameters.get("jobs") == 1 else "graceful",
        )  # fmt: skip
    except PapermillExecutionError as error:
        raise Failed("\n".join([f"{source.stem}, cell {error.exec_count}:", *error.traceback])) from None
    except DeadKernelError:
        raise Failed(f"{source.stem}: its kernel died, killed or out of memory; the same command goes on") from None


def without_grammar() -> None:
    """What imports nbformat after this waits two seconds less: jsonschema goes without a grammar of kinds of addresses
    that no notebook has."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def main(name: str, profile: str, jobs: int, made_from: str, chosen: Sequence[str], since: float) -> None:
    """``execute`` for the Makefile. SIGTERM stops it as Ctrl-C does, and its kernel with it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup and some shells want it
            signal.signal(number, _stop)
    stopped = f"{name}: stopped, what was begun goes on from its checkpoints with the same command"
    outputs = ROOT / "outputs"
    in_one_line(execute, name, profile, jobs, made_from, outputs, chosen, since, stopped=stopped, complaints=(Failed,))


def _stop(number: int, frame: FrameType | None) -> None:
    for again in (signal.SIGINT, signal.SIGTERM):  # the kernel is being shut down, which takes a moment
        signal.signal(again, signal.SIG_IGN)
    raise KeyboardInterrupt

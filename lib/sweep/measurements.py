"""Measurements: what is computed with models and is no run. Each is made once, in parallel, and kept in a file beside
the runs."""

import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import lib
from lib.base import files, processes
from lib.base.errors import InputError
from lib.base.machine import provenance
from lib.config import Config
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep.jobs import Progress, check_hours, flop_bar, work_through

#: what is measured: a Config of all that decides the numbers, with ``flops``, which is what the measurement costs
C = TypeVar("C", bound=Any)
Function = Callable[[C], dict[str, Any]]


def named(name: str) -> Callable[[Function[C]], Function[C]]:
    """Declares the ``name`` under which a function's measurements are kept. They are found by it, so it stays the same
    wherever the function moves and whatever it is called."""

    def declare(function: Function[C]) -> Function[C]:
        vars(function)["measured_as"] = name
        return function

    return declare


def measure(
    function: Function[C], cases: Sequence[C], store: RunStore, jobs: int | None = None, max_hours: float | None = None
) -> list[dict[str, Any]]:
    """``function(case)``, a dict of numbers and lists, for each of ``cases``, in their order.

    A measurement is kept as measured/<name>/<key>.json beside the store's runs as soon as it is made, so that an
    interrupted series goes on where it stopped; what is there, or in the store's records, is read. ``function`` must be
    importable, and declared with ``named``. jobs: processes, one a core when None (one on a GPU). The cheapest case is
    measured first, then the one in the middle; if the others would take more than max_hours at the better one's rate,
    an InputError says so.
    """
    keys = [key(case) for case in cases]
    asked = {of: Asked(function, case) for of, case in zip(keys, cases, strict=True)}
    there = {of: one.found(store) for of, one in asked.items()}
    missing = sorted((one for of, one in asked.items() if there[of] is None), key=lambda one: one.case.flops)
    at_once = min(processes.processes(jobs), max(1, len(missing)))
    timed = [missing[i] for i in sorted({0, len(missing) // 2})] if missing else []
    others = [one for one in reversed(missing) if one not in timed]  # none is left alone at the end
    with flop_bar([one.case.flops for one in (*timed, *others)], "measurements") as show:
        rate = 0.0
        for i, one in enumerate(timed):
            begin = time.perf_counter()
            one.measure(store)
            rate = max(rate, one.case.flops / (time.perf_counter() - begin))
            show(i, 1.0)
        hours = sum(one.case.flops for one in others) / rate / at_once / 3600 if rate else 0.0
        check_hours(f"{len(others)} missing measurements", hours, max_hours)
        work_through(functools.partial(_measure, store), others, at_once, lambda i, share: show(len(timed) + i, share))
    there |= {one.key: one.found(store) for one in missing}
    return [cast(records.Measured, there[of]).measured for of in keys]


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """A function that is asked of a case."""

    function: Function[Any]
    case: Any
    of_finished: bool = False  # of a run that diverged it is not asked

    @functools.cached_property
    def key(self) -> str:
        return key(self.case)

    @property
    def run(self) -> str:
        """The key of the run that it is measured on; empty where it needs none."""
        return str(getattr(self.case, "run", ""))

    def found(self, store: RunStore) -> records.Measured | None:
        return kept_under(name(self.function), self.key, store, self._check)

    def _check(self, kept: records.Measured) -> None:
        """Raises ValueError where the case that was kept, before it had some of its fields perhaps, is not this one."""
        fields = {
            name: getattr(self.case, name) for name, field in type(self.case).model_fields.items() if field.exclude
        }
        fields |= {name: tuple(x) if isinstance(x, list) else x for name, x in kept.case.items()}
        if key(type(self.case)(**fields)) != self.key:
            raise ValueError("its case is not that of its key")

    def measure(self, store: RunStore) -> None:
        """Measures and keeps it, unless it is kept, or is when the lock of another process is released."""
        path = _path(name(self.function), self.key, store)
        with files.lock(path.with_name(f".{path.stem}.lock"), stays=False):
            if not path.exists():
                with processes.one_thread_on_cpu():
                    measured = self.function(self.case)
                list(records.flat(measured))  # raises an error for what no table holds
                kept = {"case": self.case.model_dump(mode="json"), "measured": measured, "provenance": provenance()}
                files.write_checked(path, kept)


def _measure(store: RunStore, asked: Asked, progress: Progress) -> None:
    asked.measure(store)


def key(case: Config) -> str:
    """A hash of the recipe and of the case's fields that differ from their defaults."""
    fields = {"recipe": lib.RECIPE, **case.model_dump(mode="json", exclude_defaults=True)}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def name(function: Function[C]) -> str:
    """What ``named`` declares: the folder of the function's measurements."""
    declared: str | None = vars(function).get("measured_as")
    if declared is None:
        raise InputError(f"function: {function.__qualname__} has no name to be kept under, declare one with named")
    return declared


def kept_under(name: str, key: str, store: RunStore, check_case: records.Check = bool) -> records.Measured | None:
    """A measurement of the store or of its records. A file that cannot be read, or whose case is another one, is set
    aside, to be measured again."""
    path = _path(name, key, store)
    if path.exists():
        with files.set_aside_if_unreadable(path, "measurement", "made"):
            fields = files.read_checked(path)
            kept = records.Measured(
                name, key, dict(fields["case"]), dict(fields["measured"]), dict(fields["provenance"])
            )
            list(records.flat(kept.measured))
            check_case(kept)
            return kept
    found = (records.of(folder).measurement(name, key, check_case) for folder in store.records)
    return next(filter(None, found), None)


def _path(name: str, key: str, store: RunStore) -> Path:
    return store.path.parent / "measured" / name / f"{key}.json"

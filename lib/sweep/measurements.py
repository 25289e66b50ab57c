"""Measurements: what is computed with models and is no run. Each is made once, in parallel, and kept in a file beside
the runs."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import time
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

import lib
from lib.base import files, processes
from lib.base.errors import InputError
from lib.base.processes import one_thread_on_cpu
from lib.base.progress import Bar
from lib.base.provenance import provenance
from lib.config import ModelConfig
from lib.store import records
from lib.store.numbers import check
from lib.store.records import Measured
from lib.store.runs import RunStore, set_aside_if_unreadable


class Case(Protocol):
    """What is measured: a config that holds all that decides the numbers; ``flops`` are what the measurement costs."""

    @property
    def flops(self) -> float: ...

    def model_dump(self, *, mode: str = ..., exclude_defaults: bool = ...) -> dict[str, Any]: ...


class ModelCase(Case, Protocol):
    """A case that is measured on a model of its own."""

    @property
    def model(self) -> ModelConfig: ...


C = TypeVar("C", bound=Case)
M = TypeVar("M", bound=ModelCase)
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
    distinct = dict(zip(keys, cases, strict=True))
    there = {of: found(function, case, store) for of, case in distinct.items()}
    missing = sorted((case for of, case in distinct.items() if there[of] is None), key=lambda case: case.flops)
    jobs = min(processes.processes(jobs), max(1, len(missing)))
    with Bar(total=len(missing), desc=f"{len(missing)} measurements", disable=not missing) as bar:
        middle, rate = len(missing) // 2, 0.0
        timed = missing[:1] if middle == 0 else [missing[0], missing[middle]]
        others = missing[1:middle] + missing[middle + 1 :]
        for case in timed:  # the first of all pays for what torch loads
            begin = time.perf_counter()
            with one_thread_on_cpu():
                _keep(function, case, store)
            bar.update()
            rate = max(rate, case.flops / (time.perf_counter() - begin))
        hours = sum(case.flops for case in others) / rate / jobs / 3600 if others else 0.0
        if max_hours is not None and not hours <= max_hours:
            raise InputError(
                f"max_hours: {len(others)} missing measurements need up to {hours:.2g} hours here, more than "
                f"max_hours={max_hours:g}; raise max_hours, or choose a smaller profile"
            )
        if jobs == 1:
            for case in others:
                with one_thread_on_cpu():
                    _keep(function, case, store)
                bar.update()
        else:
            with processes.pool(jobs, torch.set_num_threads, 1) as pool:
                # the longest first, so that none is left alone at the end
                for future in [pool.submit(_keep, function, case, store) for case in reversed(others)]:
                    future.result()
                    bar.update()
    there |= {key(case): found(function, case, store) for case in missing}
    return [typing.cast(dict[str, Any], there[of]) for of in keys]


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

    def found(self, store: RunStore) -> Measured | None:
        return kept_under(name(self.function), self.key, store)

    def measure(self, store: RunStore) -> None:
        """Measures and keeps it, where nobody has."""
        if self.found(store) is None:
            with one_thread_on_cpu():
                _keep(self.function, self.case, store)


def key(case: Case) -> str:
    """A hash of the recipe and of the case's fields that differ from their defaults."""
    fields = {"recipe": lib.RECIPE, **case.model_dump(mode="json", exclude_defaults=True)}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def name(function: Function[C]) -> str:
    """What ``named`` declares: the folder of the function's measurements."""
    declared: str | None = vars(function).get("measured_as")
    if declared is None:
        raise InputError(f"function: {function.__qualname__} has no name to be kept under, declare one with named")
    return declared


def found(function: Function[C], case: C, store: RunStore) -> dict[str, Any] | None:
    """What was measured, or None. A file that cannot be read is set aside, so that it is measured again."""
    kept = kept_under(name(function), key(case), store)
    return None if kept is None else kept.measured


def has(function: Function[C], case: C, store: RunStore) -> bool:
    """Whether it has been measured; nothing is read."""
    asked = name(function), key(case)
    kept = any(asked in records.of(folder).measured for folder in store.records)
    return kept or _path(*asked, store).exists()


def kept_under(name: str, key: str, store: RunStore) -> Measured | None:
    """A measurement of the store or of its records, by its names."""
    path = _path(name, key, store)
    if path.exists():
        with set_aside_if_unreadable(path, "measurement", "made"):
            return read(path)
    return next((kept for folder in store.records if (kept := records.find_measured(folder, name, key))), None)


def read(path: Path) -> Measured:
    """What a file says was measured; raises OSError, ValueError, KeyError or TypeError where it is damaged."""
    fields = files.read_checked(path)
    return Measured(path.parent.name, path.stem, fields["case"], dict(fields["measured"]), fields["provenance"])


def _path(name: str, key: str, store: RunStore) -> Path:
    return store.path.parent / "measured" / name / f"{key}.json"


def _keep(function: Function[C], case: C, store: RunStore) -> None:
    """Measures a case and writes the result, unless another process did while this one waited for the lock."""
    path = _path(name(function), key(case), store)
    lock = path.with_name(f".{path.stem}.lock")
    with files.lock(lock):
        if not path.exists():
            measured = function(case)
            check(measured)
            kept = {"case": case.model_dump(mode="json"), "measured": measured, "provenance": provenance()}
            files.write_checked(path, kept)
    with contextlib.suppress(FileNotFoundError):
        lock.unlink()

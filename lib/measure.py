"""Measurements that are no training runs: each is made once, in parallel, and kept in a file beside the runs."""

import hashlib
import json
from collections.abc import Callable, Sequence

import torch
from tqdm import tqdm

import lib
from lib import files, workers
from lib.config import Config
from lib.store import RunStore
from lib.train import one_thread_on_cpu, provenance


def measure(function: Callable[[Config], dict], cases: Sequence[Config], store: RunStore, jobs: int | None = None):
    """``function(case)``, a dict of numbers and lists, for each of ``cases``, in their order.

    Each is kept as measured/<name of the function>/<key>.json beside the store's runs as soon as it is made, so that
    an interrupted series goes on where it stopped; those in the store's records are read. A case holds all that
    decides its numbers. ``function`` must be importable by name; jobs: processes, one a core when None (one on a GPU).
    """
    missing = {key(case): case for case in cases if _found(function, case, store) is None}
    jobs = min(workers.processes(jobs), max(1, len(missing)))
    with tqdm(total=len(missing), desc=f"{len(missing)} measurements", disable=not missing) as bar:
        if jobs == 1:
            for case in missing.values():
                with one_thread_on_cpu():
                    _keep(function, case, store)
                bar.update()
        else:
            with workers.pool(jobs, torch.set_num_threads, 1) as pool:
                for future in [pool.submit(_keep, function, case, store) for case in missing.values()]:
                    future.result()
                    bar.update()
    return [_found(function, case, store) for case in cases]


def key(case: Config) -> str:
    """A hash of the recipe and of the case's fields that differ from their defaults."""
    fields = {"recipe": lib.RECIPE, **case.model_dump(mode="json", exclude_defaults=True)}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _found(function: Callable, case: Config, store: RunStore) -> dict | None:
    for root in (store.path.parent, *store.records):
        path = root / "measured" / function.__name__ / f"{key(case)}.json"
        if path.exists():
            return json.loads(path.read_text())["measured"]
    return None


def _keep(function: Callable, case: Config, store: RunStore) -> None:
    path = store.path.parent / "measured" / function.__name__ / f"{key(case)}.json"
    kept = {"case": case.model_dump(mode="json"), "measured": function(case), "provenance": provenance()}
    files.write_json(path, kept)

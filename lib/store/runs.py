"""The run store: finished runs on disk, found again by what they are.

    runs/<key>/            config, result, metrics (JSON) and model.safetensors: the run is finished if this exists;
                           result holds checksums of itself and of the others
    runs/.<key>.partial    the checkpoint of a run that is still training, or was interrupted
    runs/.<key>.lock       held by the process that trains it
    tokens/                tokenised texts, beside runs/

Records may be read along: runs made elsewhere, without weights (``lib/store/records.py``).
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors

from lib.base import files
from lib.base.errors import InputError
from lib.config import RunConfig
from lib.store import records
from lib.store.result import RunResult, check

if TYPE_CHECKING:
    import pandas as pd

WEIGHTS = "model.safetensors"
SAID = 3  # of what is left out, how many a line names


class RunStore:
    """Runs under ``path``. ``records``: folders of records that are read along."""

    def __init__(self, path: Path | str, records: Sequence[Path | str] = ()):
        self.path = Path(path)
        self.records = [Path(record) for record in records]
        self.tokens = self.path.parent / "tokens"

    @contextlib.contextmanager
    def lock(self, key: str, wait: bool = True) -> Iterator[bool]:
        """Held by the process that trains a run. Another that wants the run waits for it, or without ``wait`` is told
        False."""
        with files.lock(self.path / f".{key}.lock", wait, stays=False) as held:
            for draft in self.path.glob(f".*{key}*.tmp") if held else ():
                files.remove(draft)  # of a process that was killed while it wrote
            yield held

    def partial(self, key: str) -> Path:
        return self.path / f".{key}.partial"

    def find(self, cfg: RunConfig) -> RunResult | None:
        """The finished run, or None. One that cannot be read is set aside, so that it is trained again."""
        return self.find_key(cfg.key)

    def find_key(self, key: str) -> RunResult | None:
        """``find`` for a run whose key is known."""
        path = self.path / key
        if path.is_dir():
            with files.set_aside_if_unreadable(path, "run", "trained"):
                return read_run(path)
        return next((found for folder in self.records if (found := records.of(folder).run(key))), None)

    def get(self, cfg: RunConfig) -> RunResult:
        """The finished run. Raises InputError where there is none."""
        result = self.find(cfg)
        if result is None:
            raise InputError(
                f"runs: there is no run {cfg.key} in {self.path}, train it, or give the folder its name back"
            )
        return result

    def finish(self, result: RunResult, save_weights: Callable[[Path], None]) -> RunResult:
        """Writes everything under a temporary name and renames it: a directory that exists is a finished run. Where
        locks do not reach, another machine may have finished it first, with the same numbers."""
        path = self.path / result.key
        if not path.is_dir():
            with files.replacing(path) as draft:
                draft.mkdir()
                (draft / "config.json").write_text(
                    result.config.without_paths().model_dump_json(indent=1), encoding="utf-8"
                )
                (draft / "metrics.json").write_text(json.dumps({"columns": result.metrics}), encoding="utf-8")
                save_weights(draft / WEIGHTS)
                fields = {
                    "status": result.status,
                    "summary": result.summary,
                    "provenance": result.provenance,
                    "files": {file.name: files.digest(file) for file in sorted(draft.iterdir())},
                }
                (draft / "result.json").write_text(files.sealed(fields), encoding="utf-8")
        files.remove(self.partial(result.key))
        return dataclasses.replace(result, path=path)

    def take_in(self, key: str, contents: Mapping[str, bytes]) -> None:
        """Writes a finished run that a machine sent which does not see this folder: name of a file -> its bytes."""
        if not (self.path / key).is_dir():
            with files.replacing(self.path / key) as draft:
                draft.mkdir()
                for name, content in contents.items():
                    (draft / name).write_bytes(content)

    def weights(self, result: RunResult) -> Path:
        """The weights of a finished run. Raises InputError for a record without any, and for damaged ones."""
        if result.path is None:
            kept = self._kept_weights(result.key)
            if kept is None:
                raise InputError(f"runs: the record {result.key} has no weights to measure with, train it here")
            return kept
        path = result.path / WEIGHTS
        if files.read_checked(result.path / "result.json")["files"][WEIGHTS] != files.digest(path):
            raise InputError(f"runs: {path} has changed since it was written, remove {path.parent} to train it again")
        return path

    def _kept_weights(self, key: str) -> Path | None:
        """Of a record."""
        return next((path for folder in self.records if (path := records.find_weights(folder, key))), None)

    def runs(self) -> list[RunResult]:
        """Every finished run, of the store and of its records. A line names those that are left out, since they are of
        another recipe or cannot be read."""
        results: dict[str, RunResult] = {}
        damaged = []
        for folder in sorted(self.path.iterdir()) if self.path.is_dir() else []:
            if folder.is_dir() and "." not in folder.name:
                try:
                    results[folder.name] = read_run(folder)
                except files.UNREADABLE as error:
                    damaged.append(f"{folder.name}: {error}")
        if damaged:
            said = "; ".join(damaged[:SAID]) + "; ..." * (len(damaged) > SAID)
            print(f"runs: {len(damaged)} in {self.path} are left out ({said}), train them again")
        for recorded in map(records.of, self.records):
            for key in recorded.keys:
                if key not in results and (run := recorded.run(key)):
                    results[key] = run
        return list(results.values())

    @property
    def problems(self) -> list[str]:
        """What was left out of its records as far as they were read, in lines."""
        return [line for folder in self.records for line in records.of(folder).problems]

    def named(self, key: str) -> RunResult:
        """The run whose key begins so, of those that finished and whose weights are there. Raises InputError where that
        is none or several."""
        found = [
            run
            for run in self.runs()
            if run.key.startswith(key) and run.status == "finished" and (run.path or self._kept_weights(run.key))
        ]
        if not key or len(found) != 1:
            raise InputError(
                f"run: {key!r} names {len(found)} finished runs with weights in {self.path}, use a whole key, the name "
                "of a run's folder there"
            )
        return found[0]

    def frame(self) -> "pd.DataFrame":
        """A pandas frame with one row a run: every field of its config, its status and its summary."""
        return frame(self.runs())


def frame(results: list[RunResult]) -> "pd.DataFrame":
    """One row a run; fields of the config are named like ``model.width``."""
    import pandas as pd

    ends = [{"key": result.key, "status": result.status, **result.summary} for result in results]
    return pd.concat(
        [pd.DataFrame(ends), pd.json_normalize([result.config.model_dump() for result in results])], axis=1
    )


def curves(results: list[RunResult], names: Sequence[str] = ()) -> "pd.DataFrame":
    """A pandas frame with one row a run and logged step, joined by ``key``; of all quantities, or of those named, which
    is much less to read. What a run did not follow is nan."""
    import pandas as pd

    if not results:
        return pd.DataFrame(columns=["key", "step", *names])
    asked = ("step", *names) if names else ()
    followed = [{name: of.metrics[name] for name in asked or of.metrics if name in of.metrics} for of in results]
    rows = [pd.DataFrame({"key": of.key, **columns}) for of, columns in zip(results, followed, strict=True)]
    whole = pd.concat(rows, ignore_index=True)
    return whole.reindex(columns=["key", "step", *names]) if names else whole


def read_run(path: Path) -> RunResult:
    """A run from its directory; raises one of ``files.UNREADABLE`` when something in it is missing, cut off, altered
    since it was written, or not its own."""
    fields = files.read_checked(path / "result.json")
    for name in ("config.json", "metrics.json"):  # weights are large, and checked where they are used
        if files.digest(path / name) != fields["files"][name]:
            raise ValueError(f"{name} is not what result.json has the checksum of")
    config = RunConfig(**json.loads((path / "config.json").read_text(encoding="utf-8")))
    if not config.data.content or config.key != path.name.split(".")[0]:
        raise ValueError("config.json belongs to another run")
    metrics = dict(json.loads((path / "metrics.json").read_text(encoding="utf-8"))["columns"])
    try:
        with safetensors.safe_open(path / WEIGHTS, framework="pt"):
            pass  # opening compares the header with the file's length
    except safetensors.SafetensorError as error:
        raise ValueError(f"{WEIGHTS}: {error}") from None
    if np.array([*metrics.values()]).dtype.kind not in "if":  # raises ValueError where columns are not as long
        raise ValueError("metrics.json has other things than numbers")
    run = RunResult(config, fields["status"], dict(fields["summary"]), metrics, dict(fields["provenance"]), path)
    check(run)
    return run

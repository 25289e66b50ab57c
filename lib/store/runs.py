"""The run store: finished runs on disk, found again by what they are.

    runs/<key>/            config, result, metrics (JSON) and model.safetensors: the run is finished if this exists;
                           result holds checksums of itself and of the others; what is measured on the run later is
                           noted there too (loss by depth)
    runs/.<key>.partial    the checkpoint of a run that is still training, or was interrupted
    runs/.<key>.lock       held by the process that trains it
    tokens/                tokenised texts, beside runs/

Directories of records may be read along: runs made elsewhere, in the same layout, without weights and with
checksums.json, by which a damaged one is noticed. With a ``remote``, the directory is this machine's own; finished
runs, checkpoints and notes are sent to the remote and fetched from there.
"""

import contextlib
import dataclasses
import errno
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors

from lib.base import files
from lib.base.errors import InputError
from lib.config import RunConfig
from lib.store.remote import Remote

if TYPE_CHECKING:
    import pandas as pd

WEIGHTS = "model.safetensors"
CHECKSUMS = "checksums.json"  # file -> SHA-256 of what a record holds
DESCRIBED = ("config.json", "metrics.json")  # what a run and a record have, beside result.json
STATUSES = ("finished", "diverged")
#: what reading a damaged run raises
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """A finished run.

    status is 'finished' or 'diverged'; summary holds the numbers of its end, metrics a column of numbers for each
    quantity that was followed (with ``step``), provenance who made it. ``path`` is None for a run kept nowhere.
    """

    config: RunConfig
    status: str
    summary: dict[str, Any]
    metrics: dict[str, list[Any]]
    provenance: dict[str, Any]
    path: Path | None = None

    @property
    def key(self) -> str:
        return self.config.key

    @property
    def folder(self) -> Path:
        """Where it is kept. Raises ValueError for a run that is kept nowhere."""
        if self.path is None:
            raise ValueError(f"run {self.key} is kept nowhere")
        return self.path


class RunStore:
    """Runs under ``path``. ``records``: directories of runs that are only read; ``remote``: the URL of a folder, for
    machines that share no file system."""

    def __init__(self, path: Path | str, records: Sequence[Path | str] = (), remote: str = ""):
        self.path, self.remote = Path(path), Remote(remote) if remote else None
        self.records = [Path(record) for record in records]
        self.tokens = self.path.parent / "tokens"

    @contextlib.contextmanager
    def lock(self, key: str, wait: bool = True) -> Iterator[bool]:
        """Held by the process that trains a run. Another that wants the run waits for it, or without ``wait`` is told
        False."""
        with files.lock(self.path / f".{key}.lock", wait) as held:
            for draft in self.path.glob(f".*{key}*.tmp") if held else ():
                files.remove(draft)  # of a process that was killed while it wrote
            yield held

    def partial(self, key: str) -> Path:
        return self.path / f".{key}.partial"

    def fetch_partial(self, key: str) -> Path | None:
        """The checkpoint that some machine sent last, put beside this machine's own, which may be the later one."""
        sent = self.partial(key).with_suffix(".fetched")
        return sent if self.remote and self.remote.fetch(self.partial(key).name, sent) else None

    def send_partial(self, key: str) -> None:
        """Sends the checkpoint, if there is a remote. A failure is printed, since the next one is sent again."""
        try:
            if self.remote:
                self.remote.send(self.partial(key), self.partial(key).name)
        except InputError as error:
            print(error)

    def _send_run(self, remote: Remote, key: str) -> None:
        remote.send_run(self.path / key)
        remote.remove(self.partial(key).name)

    def find(self, cfg: RunConfig) -> RunResult | None:
        """The finished run, or None. One that cannot be read is set aside, so that it is trained again."""
        if self.remote and (self.path / cfg.key).is_dir():
            self._send_run(self.remote, cfg.key)  # unless it was: the network may have gone when the run ended
        elif self.remote:
            with _unless_there(self.path / cfg.key):
                self.remote.fetch_run(self.path / cfg.key)
        for root in (self.path, *self.records):
            path, own = root / cfg.key, root == self.path
            if not path.is_dir():
                continue
            with set_aside_if_unreadable(path, own, "run", "trained"):
                return read_run(path, with_weights=own)
        return None

    def get(self, cfg: RunConfig) -> RunResult:
        """The finished run. Raises InputError where there is none."""
        result = self.find(cfg)
        if result is None:
            raise InputError(
                f"runs: there is no run {cfg.key} in {self.path}, train it, or give the folder its name back"
            )
        return result

    def finish(self, result: RunResult, save_weights: Callable[[Path], None]) -> RunResult:
        """Writes everything under a temporary name and renames it: a directory that exists is a finished run."""
        path = self.path / result.key
        with _unless_there(path), files.replacing(path) as draft:
            draft.mkdir()
            (draft / "config.json").write_text(result.config.without_paths().model_dump_json(indent=1))
            (draft / "metrics.json").write_text(json.dumps({"columns": result.metrics}))
            save_weights(draft / WEIGHTS)
            fields = {"status": result.status, "summary": result.summary, "provenance": result.provenance}
            fields["files"] = {file.name: files.digest(file) for file in sorted(draft.iterdir())}
            (draft / "result.json").write_text(files.sealed(fields))
        if self.remote:
            self._send_run(self.remote, result.key)
        files.remove(self.partial(result.key))
        return dataclasses.replace(result, path=path)

    def noted(self, result: RunResult, name: str) -> dict[str, Any]:
        """What was measured on a finished run after its training and noted beside it, {} where nothing was."""
        path, sums = result.folder / f"{name}.json", result.folder / CHECKSUMS
        if sums.exists() and path.name not in files.read_checked(sums):
            return {}  # a note that came into somebody's record when two were merged file by file
        try:
            return files.read_checked(path) if path.exists() else {}
        except files.Unchecked:
            raise
        except ValueError as error:
            aside = files.set_aside(path)
            print(f"the note {path} cannot be read ({error}): set aside as {aside.name}, to be measured again")
            return {}

    def note(self, result: RunResult, name: str, values: dict[str, Any]) -> None:
        """Notes what was measured beside a finished run; a record keeps it when its weights are gone."""
        files.write_checked(result.folder / f"{name}.json", values)
        if self.remote:
            self.remote.send(result.folder / f"{name}.json", f"{result.key}/{name}.json")

    def weights(self, result: RunResult) -> Path:
        """The weights of a finished run. Raises InputError for a record, which has none, and for damaged ones."""
        path = result.folder / WEIGHTS
        if not path.exists():
            raise InputError(f"runs: the record {result.key} has no weights to measure with, train it here")
        if files.read_checked(result.folder / "result.json")["files"][WEIGHTS] != files.digest(path):
            raise InputError(f"runs: {path} has changed since it was written, remove {path.parent} to train it again")
        return path

    def runs(self) -> list[RunResult]:
        """Every finished run, of the store and of its records; those of another recipe or unreadable are left out."""
        paths: dict[str, Path] = {}
        for root in (*reversed(self.records), self.path):
            found = sorted(root.iterdir()) if root.is_dir() else []
            paths |= {path.name: path for path in found if path.is_dir() and "." not in path.name}
        results = []
        for path in paths.values():
            with contextlib.suppress(*UNREADABLE):
                results.append(read_run(path, with_weights=False))
        return results

    def frame(self) -> "pd.DataFrame":
        """A pandas frame with one row a run: every field of its config, its status and its summary."""
        return frame(self.runs())


@contextlib.contextmanager
def _unless_there(path: Path) -> Iterator[None]:
    """Passes over the error of a run that is there already: where locks do not reach, another machine may have finished
    it first, with the same numbers."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not path.is_dir():
            raise


def frame(results: list[RunResult]) -> "pd.DataFrame":
    """One row a run; fields of the config are named like ``model.width``."""
    import pandas as pd

    rows = []
    for result in results:
        row = {"key": result.key, "status": result.status}
        for part, fields in result.config.model_dump().items():
            row |= {f"{part}.{name}": value for name, value in fields.items()}
        rows.append(row | result.summary)
    return pd.DataFrame(rows)


def curves(results: list[RunResult]) -> "pd.DataFrame":
    """A pandas frame with one row a run and logged step, joined by ``key``."""
    import pandas as pd

    if not results:
        return pd.DataFrame(columns=["key", "step"])
    return pd.concat([pd.DataFrame({"key": r.key, **r.metrics}) for r in results], ignore_index=True)


def _compare(path: Path, where: str, sums: Any, needed: set[str]) -> None:
    """Raises ValueError if a file of a run is not what ``where`` has the checksum of. Weights are large, and checked
    where they are used."""
    if not isinstance(sums, dict) or not sums.keys() >= needed or any(Path(name).name != name for name in sums):
        raise ValueError(f"{where} does not name the files beside it")
    for name, expected in sums.items():
        if name != WEIGHTS and (not (path / name).exists() or files.digest(path / name) != expected):
            raise ValueError(f"{name} is not what {where} has the checksum of")


@contextlib.contextmanager
def set_aside_if_unreadable(path: Path, own: bool, what: str, made: str) -> Iterator[None]:
    """Sets aside what the block cannot read of the store's ``own`` files, and says so. Raises InputError for a record,
    which nobody can make again here."""
    try:
        yield
    except files.Unchecked:
        raise
    except UNREADABLE as error:
        if not own:
            raise InputError(f"records: the record {path} cannot be read ({error}), restore it or remove it") from None
        aside = files.set_aside(path)
        print(f"{what} {path.name} cannot be read ({error}): set aside as {aside.name}, to be {made} again")


def read_run(path: Path, with_weights: bool) -> RunResult:
    """A run from its directory; raises one of UNREADABLE when something in it is missing, cut off, altered since it was
    written, or not its own."""
    if (path / CHECKSUMS).exists():  # a record
        _compare(path, CHECKSUMS, files.read_checked(path / CHECKSUMS), {"result.json", *DESCRIBED})
        fields = files.read_json(path / "result.json")
    else:
        fields = files.read_checked(path / "result.json")
        _compare(path, "result.json", fields["files"], {WEIGHTS, *DESCRIBED})
    config = RunConfig(**files.read_json(path / "config.json"))
    if config.key != path.name.split(".")[0]:
        raise ValueError(f"config.json belongs to run {config.key}")
    metrics = dict(files.read_json(path / "metrics.json")["columns"])
    if fields["status"] not in STATUSES or not all(isinstance(fields[x], dict) for x in ("summary", "provenance")):
        raise ValueError("result.json is not that of a run")
    if len({len(column) for column in metrics.values()}) > 1:
        raise ValueError("the columns of metrics.json differ in length")
    if with_weights:
        try:
            with safetensors.safe_open(path / WEIGHTS, framework="pt"):
                pass  # opening compares the header with the file's length
        except safetensors.SafetensorError as error:
            raise ValueError(f"{WEIGHTS}: {error}") from None
    return RunResult(config, fields["status"], fields["summary"], metrics, fields["provenance"], path)

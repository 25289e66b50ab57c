"""The run store: finished runs on disk, found again by what they are.

    runs/<key>/            config, result, metrics (JSON) and model.safetensors: a directory that exists is finished;
                           what is measured on it later is noted there too (loss by depth)
    runs/.<key>.partial    the checkpoint of a run that is still training, or was interrupted
    runs/.<key>.lock       held by the process that trains it
    tokens/                tokenised texts, beside runs/

A second directory of records may be read along: runs made elsewhere, in the same layout without weights, and with
checksums.json, by which a damaged one is noticed. With a ``remote``, the directory is this machine's own, and what is
finished, checkpoints and notes are sent there and fetched.
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import safetensors

from lib import files
from lib.config import RunConfig
from lib.errors import InputError
from lib.remote import Remote

CHECKSUMS = "checksums.json"  # file -> SHA-256 of what a record holds
#: what reading a damaged run raises
UNREADABLE = (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """A finished run.

    status is 'finished' or 'diverged'; summary holds the numbers of its end, metrics a column of numbers for each
    quantity that was followed (with ``step``), provenance who made it. ``path`` is None for a run kept nowhere.
    """

    config: RunConfig
    status: str
    summary: dict
    metrics: dict[str, list]
    provenance: dict
    path: Path | None = None

    @property
    def key(self) -> str:
        return self.config.key


class RunStore:
    """Runs under ``path``; ``records`` are directories of runs that are only read, ``remote`` the URL of a folder that
    machines share who share no file system."""

    def __init__(self, path: Path | str, records: list[Path | str] | tuple = (), remote: str = ""):
        self.path, self.remote = Path(path), Remote(remote) if remote else None
        self.records = [Path(record) for record in records]
        self.tokens = self.path.parent / "tokens"

    @contextlib.contextmanager
    def lock(self, key: str, wait: bool = True) -> Iterator[bool]:
        """One process trains a run, another that wants it waits here, or is told False where it does not ``wait``."""
        with files.lock(self.path / f".{key}.lock", wait) as held:
            for draft in self.path.glob(f".*{key}*.tmp") if held else ():
                files.remove(draft)  # of a process that was killed while it wrote
            yield held

    def partial(self, key: str) -> Path:
        return self.path / f".{key}.partial"

    def fetch_partial(self, key: str) -> Path | None:
        """A checkpoint that some machine sent, beside this one's own, which may be the later one."""
        sent = self.partial(key).with_suffix(".fetched")
        return sent if self.remote and self.remote.fetch(self.partial(key).name, sent) else None

    def send_partial(self, key: str) -> None:
        """Whoever cannot send it now sends the next one."""
        try:
            if self.remote:
                self.remote.send(self.partial(key), self.partial(key).name)
        except InputError as error:
            print(error)

    def _send_run(self, key: str) -> None:
        self.remote.send_run(self.path / key)
        self.remote.remove(self.partial(key).name)

    def find(self, cfg: RunConfig) -> RunResult | None:
        """The finished run, or None. One that cannot be read is set aside with its name, to be trained again."""
        if self.remote and (self.path / cfg.key).is_dir():
            self._send_run(cfg.key)  # unless it was: the network may have gone when the run ended
        elif self.remote:
            with _unless_there(self.path / cfg.key):
                self.remote.fetch_run(self.path / cfg.key)
        for root in (self.path, *self.records):
            path = root / cfg.key
            if not path.is_dir():
                continue
            try:
                return read_run(path, with_weights=root == self.path)
            except UNREADABLE as error:
                if root != self.path:
                    raise OSError(f"the record {path} cannot be read ({error}), restore it or remove it") from None
                aside = files.set_aside(path)
                print(f"run {path.name} cannot be read ({error}): set aside as {aside.name}, to be trained again")
        return None

    def finish(self, result: RunResult, save_weights) -> RunResult:
        """Writes everything under a temporary name and renames it: a directory that exists is a finished run."""
        path = self.path / result.key
        with _unless_there(path), files.replacing(path) as draft:
            draft.mkdir()
            (draft / "config.json").write_text(result.config.without_paths().model_dump_json(indent=1))
            (draft / "metrics.json").write_text(json.dumps({"columns": result.metrics}))
            fields = {"status": result.status, "summary": result.summary, "provenance": result.provenance}
            (draft / "result.json").write_text(json.dumps(fields, indent=1))
            save_weights(draft / "model.safetensors")
        if self.remote:
            self._send_run(result.key)
        files.remove(self.partial(result.key))
        return dataclasses.replace(result, path=path)

    def noted(self, result: RunResult, name: str) -> dict:
        """What was measured on a finished run after its training and noted beside it, {} where nothing was."""
        path, sums = result.path / f"{name}.json", result.path / CHECKSUMS
        if sums.exists() and path.name not in json.loads(sums.read_text()):
            return {}  # a note that came into somebody's record when two were merged file by file
        return json.loads(path.read_text()) if path.exists() else {}

    def note(self, result: RunResult, name: str, values: dict) -> None:
        """Notes what was measured beside a finished run; a record keeps it when its weights are gone."""
        files.write_json(result.path / f"{name}.json", values)
        if self.remote:
            self.remote.send(result.path / f"{name}.json", f"{result.key}/{name}.json")

    def runs(self) -> list[RunResult]:
        """Every finished run, of the store and of its records; those of another recipe or unreadable are left out."""
        paths = {}
        for root in (*reversed(self.records), self.path):
            found = sorted(root.iterdir()) if root.is_dir() else []
            paths |= {path.name: path for path in found if path.is_dir() and "." not in path.name}
        results = []
        for path in paths.values():
            with contextlib.suppress(*UNREADABLE):
                results.append(read_run(path, with_weights=False))
        return results

    def frame(self):
        """A pandas frame with one row a run: every field of its config, its status and its summary."""
        return frame(self.runs())


@contextlib.contextmanager
def _unless_there(path: Path) -> Iterator[None]:
    """Where locks do not reach, another machine may have finished the same run first: its numbers are the same."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not path.is_dir():
            raise


def frame(results: list[RunResult]):
    """One row a run; fields of the config are named like ``model.width``."""
    import pandas as pd

    rows = []
    for result in results:
        row = {"key": result.key, "status": result.status}
        for part, fields in result.config.model_dump().items():
            row |= {f"{part}.{name}": value for name, value in fields.items()}
        rows.append(row | result.summary)
    return pd.DataFrame(rows)


def curves(results: list[RunResult]):
    """A pandas frame with one row a run and logged step, joined by ``key``."""
    import pandas as pd

    if not results:
        return pd.DataFrame(columns=["key", "step"])
    return pd.concat([pd.DataFrame({"key": r.key, **r.metrics}) for r in results], ignore_index=True)


def read_run(path: Path, with_weights: bool) -> RunResult:
    """A run from its directory; raises one of UNREADABLE when something in it is missing, cut off, altered since it was
    packed, or not its own."""
    sums = json.loads((path / CHECKSUMS).read_text()) if (path / CHECKSUMS).exists() else {}
    for name, expected in dict(sums).items():
        if hashlib.sha256((path / name).read_bytes()).hexdigest() != expected:
            raise ValueError(f"{name} has changed since it was packed")
    config = RunConfig(**json.loads((path / "config.json").read_text()))
    if config.key != path.name.split(".")[0]:
        raise ValueError(f"config.json belongs to run {config.key}")
    fields = json.loads((path / "result.json").read_text())
    metrics = dict(json.loads((path / "metrics.json").read_text())["columns"])
    if with_weights:
        with safetensors.safe_open(path / "model.safetensors", framework="pt"):
            pass  # opening compares the header with the file's length
    return RunResult(config, fields["status"], fields["summary"], metrics, fields["provenance"], path)

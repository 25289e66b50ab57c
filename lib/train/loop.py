"""One run: a config goes in, a finished run comes out, resumed where an earlier attempt stopped.

``train(cfg, store)`` is a function of cfg. All randomness is a function of (seed, step, row); a run that is killed at
any step and started again gives bit for bit the numbers of an uninterrupted one on the same machine. In a script that
torchrun starts on several GPUs it is one run on all of them: the same rows, the same numbers but for the order of sums.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

import lib
from lib.base import distributed, files, processes
from lib.base.errors import InputError
from lib.base.machine import provenance
from lib.config import RunConfig
from lib.data.rows import Rows, TokenStore, token_store, training_rows, validation_batch
from lib.data.tokens import Progress as Reading
from lib.flops import run_flops
from lib.kernels.functions import library
from lib.model.layers import attention_kind
from lib.model.looped import Draw, LoopedLM
from lib.model.probes import state_metrics
from lib.model.weights import load_strictly
from lib.store.result import LAST, RunResult
from lib.store.runs import RunStore
from lib.train.evaluate import Followed, mean_of_passes
from lib.train.optimiser import Optimizer

LOCK_LOOKED_AT = 5.0  # seconds between looks at a lock that another process holds

Progress = Callable[[int, float], None]  # steps done, loss

processes.import_first(__name__)  # every process that trains needs this module, which takes seconds to import


def train(
    cfg: RunConfig, store: RunStore | None = None, *, checkpoint_seconds: float = 30.0, progress: Progress | None = None
) -> RunResult:
    """The finished run: read from the store, waited for while another process trains it, or trained here.

    checkpoint_seconds: the time between two checkpoints, longer if one takes long to write; 0 asks for one after every
    step. Without a store nothing is kept. Under torchrun every process calls this with the same cfg and a store that
    all of them see. Raises InputError for data that does not fit the config; divergence is a result, not an error.
    """
    if store is None:
        with tempfile.TemporaryDirectory() as folder:
            result = train(cfg, RunStore(Path(folder) / "runs"), checkpoint_seconds=math.inf, progress=progress)
            return dataclasses.replace(result, config=cfg, path=None)
    cfg = cfg.planned
    together = distributed.here()
    together.rows(0, cfg.train.micro_batch or cfg.train.batch)  # refuses what does not divide
    if finished := _finished(cfg, store, together):  # which takes no lock: it may lie where nobody can write
        return finished
    with _locked(cfg.key, store, together):
        if finished := _finished(cfg, store, together):  # another process has trained it meanwhile
            return finished
        with processes.one_thread_on_cpu():
            return _Training(cfg, store, together).run(checkpoint_seconds, progress or (lambda step, loss: None))


def _finished(cfg: RunConfig, store: RunStore, together: distributed.Ranks) -> RunResult | None:
    """The run, where the first of these processes finds it finished."""
    found = store.find(cfg) if together.first else None
    return (found or store.get(cfg)) if together.first_says(found is not None) else None


@contextlib.contextmanager
def _locked(key: str, store: RunStore, together: distributed.Ranks) -> Iterator[None]:
    """Holds the run's lock. Of several processes the first holds it for all; while it waits for the lock it tells the
    others so again and again, since they give up after WAITS without a word."""
    while True:
        with store.lock(key, wait=together.size == 1) if together.first else contextlib.nullcontext(False) as held:
            if together.first_says(held):
                yield
                return
        time.sleep(LOCK_LOOKED_AT)


def load_data(
    cfg: RunConfig, store: RunStore, progress: Reading = lambda what, count: None
) -> tuple[TokenStore, Rows, np.ndarray]:
    """The run's tokens, training rows and validation rows [B, S + 1]. Raises InputError where they do not fit cfg, or
    the text has changed since cfg was planned."""
    cfg = cfg.planned
    tokens = token_store(cfg.data, store.tokens, progress)
    if tokens.tokenizer.vocab_size > cfg.model.vocab_size:
        raise InputError(
            f"model.vocab_size: {cfg.model.vocab_size} is smaller than the tokenizer's "
            f"{tokens.tokenizer.vocab_size}, raise it"
        )
    progress("packing", 0)
    return tokens, training_rows(cfg.data, tokens, cfg.train.seed), validation_batch(cfg.data, tokens)


class _Training:
    """The state of one run between steps: model, optimiser, metrics so far, and the next step."""

    def __init__(self, cfg: RunConfig, store: RunStore, together: distributed.Ranks):
        self.cfg, self.store, self.partial = cfg, store, store.partial(cfg.key)
        self.ranks, self.device = together, together.device
        self.tokens, self.rows, self.validation = load_data(cfg, store)
        self._begin()

    def _begin(self) -> None:
        """Puts the run before its first step."""
        cfg, train = self.cfg, self.cfg.train
        self.model = LoopedLM(cfg.model, seed=train.seed).set_precision(train.precision)
        self.model.checkpoint_loops = train.checkpoint_loops
        self.compiles = train.compiles_on(self.device.type)
        if self.compiles:
            torch._dynamo.config.suppress_errors = True  # a block that does not compile on this card stays as it is
            self.model.compile_blocks()
        self.loss = distributed.distribute(self.model, self.ranks)
        self.optimizer = Optimizer(self.model, cfg.optim, train.steps, cfg.tokens_per_step, self.ranks, train.grown)
        self.followed = Followed(cfg, self.validation, self.tokens, self.compiles)
        self.step, self.seconds = 0, 0.0

    def run(self, checkpoint_seconds: float, progress: Progress) -> RunResult:
        """Steps until all are made or the run blows up, with a checkpoint from time to time. The step in which it blows
        up is counted, though it moves no weight: what is measured last is measured on those before it. ``seconds`` are
        those of steps alone."""
        self._resume()
        self.model.train()
        steps, blown_up = self.cfg.train.steps, False
        saved, cost = time.monotonic(), 0.0
        while self.step < steps and not blown_up:
            begin = time.perf_counter()
            values, blown_up = self._one_step()
            self.step += 1
            seconds = time.perf_counter() - begin
            self.seconds += seconds
            values["tokens_per_s"] = self.cfg.tokens_per_step / seconds
            self.followed.log(self.model, self.step, values, last=blown_up or self.step == steps)
            progress(self.step, values["loss"])
            # a large checkpoint takes long to write: no more than a twentieth of the time is spent on it
            every = max(checkpoint_seconds, 20 * cost) if checkpoint_seconds else 0.0
            due = time.monotonic() - saved >= every and self.step < steps and not blown_up
            if self.ranks.first_says(due):
                begin = time.monotonic()
                self._checkpoint()
                saved = time.monotonic()
                cost = saved - begin
        known = math.isfinite(self.followed.columns["val_loss"][-1])  # the last update may have been one too many
        return self._kept("finished" if known and not blown_up else "diverged")

    def _one_step(self) -> tuple[dict[str, float], bool]:
        """Forward and backward over the step's rows, a part of them in each pass; then the update, unless the run has
        blown up. Returns what was measured, and whether it has."""
        cfg = self.cfg.train
        size = cfg.micro_batch or cfg.batch
        loops = cfg.grow_from if self.step < cfg.grown else None
        begin, end_of_step = self.step * cfg.batch, (self.step + 1) * cfg.batch
        passes = []
        for start in range(begin, end_of_step, size):
            rows = self.ranks.rows(start, start + size)
            batch = torch.as_tensor(self.rows.batch(rows.start, rows.stop)).to(self.device)
            last = start + size == end_of_step  # after it alone processes exchange gradients
            with contextlib.nullcontext() if last or self.ranks.size == 1 else self.loss.no_sync():
                loss, end = self.loss(batch[:, :-1], batch[:, 1:], loops, Draw(cfg.seed, self.step, rows), self.ranks)
                (loss * (size / cfg.batch)).backward()
            passes.append({"loss": end.cross_entropy.item(), **state_metrics(end)})
            if end.routing:
                passes[-1]["router_loss"] = loss.item() - passes[-1]["loss"]
        values = mean_of_passes(passes, self.ranks)
        values["grad_norm"] = self.optimizer.clip_gradients()
        finite = math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])
        blown_up = not (finite and values["state_rms"] <= cfg.max_state_rms)
        if not blown_up:
            self.optimizer.step(self.step)
        self.optimizer.zero_grad()
        return values, blown_up

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Writes model, optimiser and position to one file, which does not depend on the number of processes; any
        number can go on from it."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()} | self.optimizer.state()
        if self.ranks.first:
            position = {"key": self.cfg.key, "step": self.step, "seconds": self.seconds}
            save(tensors, {**position, "metrics": self.followed.columns}, self.partial)

    def _resume(self) -> None:
        """Continues from the checkpoint, if there is one. One that is damaged is set aside and the run begins anew."""
        if not self.ranks.first_says(self.partial.exists()):
            return
        problem = None
        try:
            tensors, position = load(self.partial)
            if position["key"] != self.cfg.key:
                raise ValueError(f"it is one of run {position['key']}")
            load_strictly(self.model, {k[len("model.") :]: v for k, v in tensors.items() if k.startswith("model.")})
            self.optimizer.load_state(tensors)
            self.step, self.seconds = position["step"], position["seconds"]
            self.followed.columns = position["metrics"]
        except files.UNREADABLE as error:
            problem = error
        if self.ranks.first_says(problem is not None):
            if self.ranks.first:
                print(
                    f"the checkpoint of run {self.cfg.key} is damaged ({problem}): set aside as "
                    f"{files.set_aside(self.partial).name}, starting anew"
                )
            del self.model, self.loss, self.optimizer  # there may be no room for two
            self._begin()
        elif problem is not None:
            raise OSError(f"the checkpoint {self.partial} cannot be read here ({problem}), though it can elsewhere")

    # ---- what is kept ------------------------------------------------------------------------------------------------

    def _kept(self, status: str) -> RunResult:
        metrics = self.followed.columns
        summary = {
            **{name: metrics[name][-1] for name in LAST},
            "steps_done": self.step,
            "tokens": self.step * self.cfg.tokens_per_step,
            "train_flops": run_flops(self.cfg, self.step),
            "max_state_rms": float(np.max(metrics["state_rms"])),
            "seconds": self.seconds,
        }
        result = RunResult(self.cfg, status, summary, metrics, self._provenance())
        if self.ranks.first:
            self.store.finish(result, self.model.save)
        self.ranks.first_says(0)  # for which the others wait
        return dataclasses.replace(result, path=self.store.path / self.cfg.key)

    def _provenance(self) -> dict[str, Any]:
        dtype = self.model.compute_dtype
        compiled = self.device.type == "cpu" and not self.compiles and library(dtype) is not None
        return {
            "recipe": lib.RECIPE,
            "attention": "kernels.c" if compiled else attention_kind(self.device, dtype, self.cfg.data.context),
            "text": self.tokens.meta,
            "compiled": self.compiles and _all_compiled(),
            **({"processes": self.ranks.size} if self.ranks.size > 1 else {}),
            **provenance(),
        }


def _all_compiled() -> bool:
    """Whether every block that was to be compiled in this process was, and as a whole."""
    counts = torch._dynamo.utils.counters
    return counts["frames"]["ok"] == counts["frames"]["total"] and not counts["graph_break"]


# ---- a checkpoint ----------------------------------------------------------------------------------------------------


def save(tensors: dict[str, Tensor], position: dict[str, Any], path: Path) -> None:
    """A run between two steps in one safetensors file that is whole or not there, with a checksum of what it says.
    ``position``: which run, its next step, the metrics so far."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(position)
    with files.replacing(path) as draft:
        safetensors.torch.save_file(tensors, draft, metadata={"position": text, "sha256": _digest(tensors, text)})


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the position of a checkpoint; raises one of UNREADABLE where it is damaged."""
    metadata, tensors = _metadata(path), safetensors.torch.load_file(path)
    if metadata["sha256"] != _digest(tensors, metadata["position"]):
        raise ValueError("it has changed since it was written")
    return tensors, json.loads(metadata["position"])


def step_of(path: Path) -> int:
    """The next step of a checkpoint, which is not checked; -1 where it is not there or cannot be read."""
    try:
        return json.loads(_metadata(path)["position"])["step"]
    except files.UNREADABLE:
        return -1


def _metadata(path: Path) -> dict[str, str]:
    files.need_file("checkpoint", path)
    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata() or {}


def _digest(tensors: dict[str, Tensor], position: str) -> str:
    digest = hashlib.sha256(position.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()

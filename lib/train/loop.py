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
import safetensors
import safetensors.torch
import torch

import lib
from lib.base import distributed, files, processes
from lib.base.distributed import Ranks, accumulating, distribute
from lib.base.errors import InputError
from lib.base.processes import one_thread_on_cpu
from lib.base.provenance import provenance
from lib.config import RunConfig
from lib.data.rows import Rows, TokenStore, token_store, training_rows, validation_batch
from lib.data.tokens import Progress as Reading
from lib.flops import run_flops
from lib.kernels.compiled import library
from lib.model.layers import attention_kind
from lib.model.looped import Draw, LoopedLM
from lib.model.probes import (
    increment_cosines,
    looped_choices,
    mean_cosines,
    spectra,
    state_metrics,
    state_trace,
    stream,
)
from lib.model.routing import divergence_by_pair
from lib.model.weights import load_strictly
from lib.store.result import RunResult
from lib.store.runs import UNREADABLE, RunStore
from lib.train.evaluate import validate
from lib.train.optimiser import Optimizer

LOGGED = 500  # steps that are logged: all of a shorter run, at least so many of a longer one
SPECTRA_LOGGED = 100  # the same of spectral radii and norms, which take longer to compute
LOCK_LOOKED_AT = 5.0  # seconds between looks at a lock that another process holds
TRACED_LOOPS, TRACED_ROWS = 24, 32  # a trace follows so many validation rows through at least so many loops

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
            alone = RunStore(Path(folder) / "runs")
            result = train(cfg, alone, checkpoint_seconds=math.inf, progress=progress)
            return RunResult(cfg, result.status, result.summary, result.metrics, result.provenance)
    cfg = cfg.planned
    together = distributed.here()
    together.rows(0, cfg.train.micro_batch or cfg.train.batch)  # refuses what does not divide
    with _locked(cfg.key, store, together):
        found = store.find(cfg) if together.first else None
        if together.first_says(found is not None):
            return found or store.get(cfg)
        with one_thread_on_cpu():
            training = _Training(cfg, store, together)
            return training.run(checkpoint_seconds, progress or (lambda step, loss: None))


@contextlib.contextmanager
def _locked(key: str, store: RunStore, together: Ranks) -> Iterator[None]:
    """Holds the run's lock. Of several processes the first holds it for all; while it waits for the lock it tells the
    others so again and again, since they give up after WAITS without a word."""
    if together.size == 1:
        with store.lock(key):
            yield
        return
    while True:
        with store.lock(key, wait=False) if together.first else contextlib.nullcontext(False) as held:
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

    def __init__(self, cfg: RunConfig, store: RunStore, together: Ranks):
        self.cfg, self.store, self.partial = cfg, store, store.partial(cfg.key)
        self.ranks, self.device = together, together.device
        tokens, self.rows, self.validation = load_data(cfg, store)
        self.token_bytes = tokens.tokenizer.token_bytes
        self.text = tokens.meta
        self._begin()

    def _begin(self) -> None:
        """Puts the run before its first step."""
        cfg = self.cfg
        self.model = LoopedLM(cfg.model, seed=cfg.train.seed).set_precision(cfg.train.precision)
        self.model.checkpoint_loops = cfg.train.checkpoint_loops
        self.compiles = cfg.train.compiles_on(self.device.type)
        if self.compiles:
            torch._dynamo.config.suppress_errors = True  # a block that does not compile on this card stays as it is
            self.model.compile_blocks()
        self.loss = distribute(self.model, self.ranks)
        self.optimizer = Optimizer(
            self.model, cfg.optim, cfg.train.steps, cfg.tokens_per_step, self.ranks, cfg.train.grown
        )
        self.step, self.seconds = 0, 0.0
        self.metrics: dict[str, list[float]] = {}

    def run(self, checkpoint_seconds: float, progress: Progress) -> RunResult:
        self._resume()
        status, saved, cost = "finished", time.monotonic(), 0.0
        self.model.train()
        while self.step < self.cfg.train.steps:
            loss, blown_up = self._one_step()
            progress(self.step, loss)
            if blown_up:
                status = "diverged"
                break
            # a large checkpoint takes long to write: no more than a twentieth of the time is spent on it
            every = max(checkpoint_seconds, 20 * cost) if checkpoint_seconds else 0.0
            due = time.monotonic() - saved >= every and self.step < self.cfg.train.steps
            if self.ranks.first_says(due):
                begin = time.monotonic()
                self._checkpoint()
                saved = time.monotonic()
                cost = saved - begin
        result = RunResult(self.cfg, status, self._summary(), self.metrics, self._provenance())
        with self.ranks.first_before_the_others():
            if self.ranks.first:
                return self.store.finish(result, self.model.save)
            return dataclasses.replace(result, path=self.store.path / self.cfg.key)

    # ---- a step ------------------------------------------------------------------------------------------------------

    def _one_step(self) -> tuple[float, bool]:
        """Forward, backward, update. Returns the loss and whether the run has blown up."""
        cfg, begin = self.cfg.train, time.perf_counter()
        size = cfg.micro_batch or cfg.batch
        loops = cfg.grow_from if self.step < cfg.grown else None
        passes, end_of_step = [], (self.step + 1) * cfg.batch
        for start in range(self.step * cfg.batch, end_of_step, size):
            rows = self.ranks.rows(start, start + size)
            batch = torch.as_tensor(self.rows.batch(rows.start, rows.stop)).to(self.device)
            with accumulating(self.loss, last=start + size == end_of_step):
                loss, end = self.loss(batch[:, :-1], batch[:, 1:], loops, Draw(cfg.seed, self.step, rows), self.ranks)
                (loss * (size / cfg.batch)).backward()
            passes.append({"loss": end.cross_entropy.item(), **state_metrics(end)})
            if end.routing:
                passes[-1]["router_loss"] = loss.item() - passes[-1]["loss"]
        values = self._mean(passes)
        values["grad_norm"] = self.optimizer.clip_gradients()
        blown_up = not (
            math.isfinite(values["loss"])
            and math.isfinite(values["grad_norm"])
            and values["state_rms"] <= cfg.max_state_rms
        )
        if not blown_up:
            self.optimizer.step(self.step)
        self.optimizer.zero_grad()
        self.step += 1
        seconds = time.perf_counter() - begin
        self.seconds += seconds
        self._log(values, seconds, last=blown_up or self.step == cfg.steps)
        return values["loss"], blown_up

    def _mean(self, passes: list[dict[str, float]]) -> dict[str, float]:
        """The mean over the passes of a step, each over all its rows."""
        for values in passes:
            values["state_rms"] **= 2  # a mean of squares is what may be averaged
        table = self.ranks.mean(torch.tensor([list(values.values()) for values in passes], dtype=torch.float64))
        table[:, list(passes[0]).index("state_rms")].sqrt_()
        return dict(zip(passes[0], table.mean(0).tolist(), strict=True))

    def _log(self, values: dict[str, Any], seconds: float, last: bool) -> None:
        cfg = self.cfg.train
        validates = last or (cfg.eval_every and self.step % cfg.eval_every == 0)
        traces = cfg.trace_every and self.cfg.model.recur and (last or self.step % cfg.trace_every == 0)
        if not (validates or traces) and self.step % max(1, cfg.steps // LOGGED):
            return
        values = {"step": self.step, **values, "tokens_per_s": self.cfg.tokens_per_step / seconds}
        looks = validates or traces or self.step == 1 or self.step % max(1, cfg.steps // SPECTRA_LOGGED) == 0
        if looks:
            values |= spectra(self.model)
        if validates or traces:
            # one pass is not worth a compilation of its own
            with torch.compiler.set_stance("force_eager") if self.compiles else contextlib.nullcontext():
                values |= self._validate() if validates else {}
                values |= self._trace() if traces else {}
        rows = len(self.metrics.get("step", []))
        for name in {**self.metrics, **values}:  # what is not measured now is nan
            self.metrics.setdefault(name, [math.nan] * rows).append(values.get(name, math.nan))

    def _validate(self) -> dict[str, float]:
        """The losses. Where routers loop, also ``routing none 1-2`` and so on: the share of tokens that keep none of
        their experts from loop 1 to loop 2, the mean over layers."""
        values = validate(self.model, self.validation, self.token_bytes)
        if self.cfg.model.experts > 1 and self.cfg.model.mean_loops > 1:
            tokens = torch.as_tensor(self.validation[:TRACED_ROWS, :-1], device=self.device)
            pairs = divergence_by_pair(looped_choices(self.model, tokens))
            values |= {f"routing {name}": share for name, share in pairs.items()}
        return values

    def _trace(self) -> dict[str, float]:
        """``trace loop 1`` and so on: the state's norms on its way through the model. Where nothing is injected, also
        the mean cosines between the increments of loops: ``trace cosine`` of early pairs, ``trace last cosine``."""
        own = self.cfg.model.mean_loops
        # hyper-connections have no more loops than they are trained with
        loops = own if self.cfg.model.injection == "hyper-connections" else max(TRACED_LOOPS, own)
        tokens = torch.as_tensor(self.validation[:TRACED_ROWS, :-1], device=self.device)
        trace = state_trace(self.model, tokens, loops)
        if self.cfg.model.injection == "none":
            cosines = increment_cosines(stream(self.model, tokens))
            trace["cosine"], trace["last cosine"] = mean_cosines(cosines)
        return {f"trace {place}": value for place, value in trace.items()}

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Writes model, optimiser and position to one safetensors file, which replaces the last one in one step. The
        file does not depend on the number of processes, and any number can go on from it."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= self.optimizer.state()
        if not self.ranks.first:
            return
        tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        position = {
            "key": self.cfg.key,
            "step": self.step,
            "next_row": self.step * self.cfg.train.batch,
            "seconds": self.seconds,
            "metrics": self.metrics,
        }
        with files.replacing(self.partial) as draft:
            save_checkpoint(tensors, position, draft)

    def _resume(self) -> None:
        """Continues from the checkpoint, if there is one. One that is damaged is set aside and the run begins anew."""
        if not self.ranks.first_says(self.partial.exists()):
            return
        try:
            tensors, position = load_checkpoint(self.partial)
            if position["key"] != self.cfg.key:
                raise ValueError(f"it is one of run {position['key']}")
            weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
            load_strictly(self.model, weights)
            self.optimizer.load_state(tensors)
            self.step, self.seconds, self.metrics = position["step"], position["seconds"], position["metrics"]
            problem = None
        except UNREADABLE as error:
            problem = error
        damaged = self.ranks.first_says(problem is not None)
        if problem is not None and not damaged:
            raise OSError(f"the checkpoint {self.partial} cannot be read here ({problem}), though it can elsewhere")
        if damaged:
            if self.ranks.first:
                aside = files.set_aside(self.partial)
                print(
                    f"the checkpoint of run {self.cfg.key} is damaged ({problem}): set aside as {aside.name}, "
                    "starting anew"
                )
            del self.model, self.loss, self.optimizer  # there may be no room for two
            self._begin()

    # ---- what is kept ------------------------------------------------------------------------------------------------

    def _summary(self) -> dict[str, Any]:
        last = {name: self.metrics[name][-1] for name in ("loss", "val_loss", "val_perplexity", "val_bpb", "rho")}
        tokens = self.step * self.cfg.tokens_per_step
        return {
            **last,
            "steps_done": self.step,
            "tokens": tokens,
            "train_flops": run_flops(self.cfg, self.step),
            "max_state_rms": float(np.max(self.metrics["state_rms"])),
            "seconds": self.seconds,
        }

    def _provenance(self) -> dict[str, Any]:
        dtype = self.model.compute_dtype
        compiled = self.device.type == "cpu" and not self.compiles and library(dtype) is not None
        return {
            "recipe": lib.RECIPE,
            "attention": "kernels.c" if compiled else attention_kind(self.device, dtype, self.cfg.data.context),
            "text": self.text,
            "compiled": self.compiles,
            **({"processes": self.ranks.size} if self.ranks.size > 1 else {}),
            **provenance(),
        }


def step_of(checkpoint: Path) -> int:
    """The next step of a checkpoint, -1 where it is not there or cannot be read."""
    try:
        return read_position(checkpoint)["step"]
    except UNREADABLE:
        return -1


def save_checkpoint(tensors: dict[str, torch.Tensor], position: dict[str, Any], path: Path) -> None:
    """``position``: which run, its next step and row, the metrics so far."""
    text = json.dumps(position)
    metadata = {"position": text, "sha256": _digest(tensors, text)}
    safetensors.torch.save_file(tensors, path, metadata=metadata)


def load_checkpoint(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the position of a checkpoint; raises one of UNREADABLE where it is damaged."""
    metadata, tensors = _metadata(path), safetensors.torch.load_file(path)
    if metadata["sha256"] != _digest(tensors, metadata["position"]):
        raise ValueError("it has changed since it was written")
    return tensors, json.loads(metadata["position"])


def read_position(path: Path) -> dict[str, Any]:
    """The position of a checkpoint alone, unchecked."""
    return json.loads(_metadata(path)["position"])


def _metadata(checkpoint: Path) -> dict[str, str]:
    with safetensors.safe_open(checkpoint, framework="pt") as file:
        return file.metadata() or {}


def _digest(tensors: dict[str, torch.Tensor], position: str) -> str:
    digest = hashlib.sha256(position.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()

"""Sweeps on a Ray cluster: a run is a core task, Ray places it, and the store owns what is finished.

A worker or a node that dies costs the runs in flight, which begin again elsewhere: at their checkpoints, where the node
sees the folder of the driver. Where it does not, it keeps checkpoints of its own and sends the files of what is
finished. The driver may die too: started again, it asks for what the store does not have.
"""

import contextlib
import dataclasses
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic

import lib
from lib.base import distributed, files, processes
from lib.base.errors import Checked, InputError, first_line
from lib.base.machine import COMMIT, provenance
from lib.config import RunConfig
from lib.flops import count
from lib.store.runs import RunStore
from lib.sweep.jobs import Show
from lib.train.loop import step_of, train

ANSWERS_WITHIN = 30.0  # seconds for a cluster
RETRIES = 5  # of one run, whose worker or node died; one that kills its workers every time must end
LOOK_EVERY = 2.0  # seconds between looks at what has finished
RESIDENT = 1 << 30  # bytes of a process that has torch imported, with room for its batches of text


class Cluster(Checked):
    """Where runs are trained and what each asks for.

    address: host:port of a running cluster, or "auto" for the one of this machine; when empty, a new one is started on
    this machine. cpus, gpus: of a run, also fractions; gpus None: 1 if the cluster has any. memory: bytes of a run,
    estimated from its size when None. checkpoint_seconds: the work that a death may cost."""

    model_config = pydantic.ConfigDict(validate_by_name=True, validate_by_alias=True)

    address: str = pydantic.Field("", alias="RAY_ADDRESS")
    cpus: float = pydantic.Field(1.0, ge=0.01, alias="RUN_CPUS")
    gpus: float | None = pydantic.Field(None, ge=0, le=1, alias="RUN_GPUS")
    memory: float | None = pydantic.Field(None, ge=1, alias="RUN_MEMORY")
    checkpoint_seconds: float = 30.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Cluster | None":
        """What make was told: ENGINE (ray, or nothing), RAY_ADDRESS, RUN_CPUS, RUN_GPUS, RUN_MEMORY (bytes). They
        say where runs are trained and not which, so they are no parameters of notebooks. Raises InputError
        for values that they cannot have."""
        engine = environment.get("ENGINE", "")
        if engine not in ("", "ray"):
            raise InputError(f"ENGINE: {engine!r} is not known, use ray, or leave it out for the cores of this machine")
        names = [field.alias or name for name, field in cls.model_fields.items()]
        return cls(**{name: environment[name] for name in names if environment.get(name)}) if engine else None


def memory_of(cfg: RunConfig) -> int:
    """An estimate of the bytes that a run needs: the process, the state of its parameters, and 34 bytes for each number
    of the residual stream, in each layer and loop that is kept for the backward pass (Korthikanti et al. 2022)."""
    rows, model = cfg.train.micro_batch or cfg.train.batch, cfg.model
    loops = 1 if cfg.train.checkpoint_loops else model.max_backprop_loops or model.mean_loops
    layers = model.prelude + model.coda + model.recur * loops
    return int(
        RESIDENT + distributed.STATE * count(model).n_params + 34 * rows * cfg.data.context * model.width * layers
    )


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Ray, ``connected``, as what trains a sweep."""

    ray: ModuleType
    cluster: Cluster

    @property
    def gpus(self) -> float:
        """How many GPUs a run asks for."""
        has_any = self.ray.cluster_resources().get("GPU", 0) > 0
        return float(has_any) if self.cluster.gpus is None else self.cluster.gpus

    def at_once(self, configs: Sequence[RunConfig]) -> int:
        """How many of the runs the cluster can train at once. Raises InputError if no node could hold the largest of
        them: Ray would wait for one in silence."""
        asked = {
            "CPU": self.cluster.cpus,
            "GPU": self.gpus,
            "memory": self.cluster.memory or max(memory_of(cfg) for cfg in configs),
        }
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        held = sum(int(min(node.get(what, 0) / much for what, much in asked.items() if much)) for node in nodes)
        if not held:
            raise InputError(
                f"RUN_CPUS: no node has {asked['CPU']:g} CPUs, {asked['GPU']:g} GPUs and {asked['memory'] / 1e9:.3g} "
                "GB of memory at once, ask for less (RUN_CPUS, RUN_GPUS, RUN_MEMORY)"
            )
        return held

    def train(self, configs: Sequence[RunConfig], store: RunStore, show: Show) -> None:
        """Trains every run. Raises what a run raises; the others then stop, as when this is interrupted, and go on from
        their checkpoints another time."""
        store.path.mkdir(parents=True, exist_ok=True)
        # a node that sees this file sees the driver's folder
        with tempfile.NamedTemporaryFile(prefix=".driver-", dir=store.path) as sign:
            pending = {self._begin(cfg, store, Path(sign.name)): i for i, cfg in enumerate(configs)}
            while pending:
                finished, _ = self.ray.wait(list(pending), num_returns=len(pending), timeout=LOOK_EVERY)
                for reference in finished:
                    i = pending.pop(reference)
                    if sent := self._result(reference):
                        store.take_in(configs[i].key, sent)
                    show(i, 1.0)
                for i in pending.values():
                    # what came after its last checkpoint is lost if its worker dies; a node may keep that to itself
                    show(i, max(0, step_of(store.partial(configs[i].key))) / configs[i].train.steps)

    def _begin(self, cfg: RunConfig, store: RunStore, sign: Path) -> Any:
        task = self.ray.remote(max_retries=RETRIES)(_train).options(
            name=f"run {cfg.key}",
            num_cpus=self.cluster.cpus,
            num_gpus=self.gpus,
            memory=self.cluster.memory or memory_of(cfg),
        )
        return task.remote(_absolute(cfg), store, sign, self.cluster.checkpoint_seconds)

    def _result(self, reference: Any) -> dict[str, bytes]:
        """What ``_train`` returned; raises what it raised, without what Ray puts around it."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, self.ray.exceptions.RaySystemError):  # what it was sent cannot be imported there
                problem = str(error).strip().splitlines()[-1]
                raise InputError(f"ENGINE: a node cannot train ({problem}), install environment.yml there") from None
            raise error.cause if isinstance(error.cause, InputError) else error from None


def _train(cfg: RunConfig, store: RunStore, sign: Path, checkpoint_seconds: float) -> dict[str, bytes]:
    """Trains one run on the node where Ray has put it, unless another process has trained it. Returns its files where
    the node does not see the driver's folder, in which ``sign`` lies; elsewhere the run is there."""
    if sign.exists():
        train(cfg, store, checkpoint_seconds=checkpoint_seconds)
        return {}
    own = RunStore(Path(tempfile.gettempdir()) / f"looped-lm-{os.getuid()}" / "runs")
    train(cfg, own, checkpoint_seconds=checkpoint_seconds)
    found = {file.name: file.read_bytes() for file in (own.path / cfg.key).iterdir()}
    files.remove(own.path / cfg.key)
    return found


def _absolute(cfg: RunConfig) -> RunConfig:
    """As planned here, with the text named by a path that holds in any working directory."""
    data = cfg.planned.data
    paths = {name: Path(getattr(data, name)) for name in ("source", "tokenizer")}
    here = {name: str(path.absolute()) for name, path in paths.items() if path.is_file()}
    return cfg.replace(data=data.replace(**here))


# ---- the cluster -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[Nodes]:
    """Yields the nodes. A cluster that is started for this ends with it. Raises InputError where Ray is not installed,
    does not start or does not answer."""
    try:
        import ray
    except ImportError:
        raise InputError("ENGINE: ray is not installed, run pip install -e .[ray], or leave ENGINE out") from None
    if cluster.address not in ("", "auto"):
        _answers(cluster.address)
    try:
        ray.init(
            cluster.address or "local",
            runtime_env={"py_modules": [lib], "env_vars": {COMMIT: provenance()["commit"]}},
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if cluster.address else {"include_dashboard": False, "num_cpus": processes.cores()}),
        )
    except Exception as error:  # Ray has no class for a node of its own that takes more than half a minute to start
        raise InputError(
            f"ENGINE: Ray does not start at {cluster.address or 'this machine'} ({first_line(error)}), start it again, "
            "or leave ENGINE out"
        ) from None
    try:
        yield Nodes(ray, cluster)
    finally:
        ray.shutdown()


def _answers(address: str) -> None:
    """Raises InputError if no cluster answers there; Ray itself would wait for minutes."""
    ask = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        subprocess.run(ask, capture_output=True, timeout=ANSWERS_WITHIN, check=True)
    except subprocess.SubprocessError:
        raise InputError(
            f"RAY_ADDRESS: no Ray cluster of this version answers at {address}, start it, or use HOST:PORT as ray "
            "start prints it"
        ) from None

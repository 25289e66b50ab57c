"""Sweeps on a Ray cluster: a run is a core task, Ray places it, and the store owns what is finished.

A worker or a node that dies costs the runs in flight, which begin again elsewhere: at their checkpoints, where the node
sees the folder of the driver. Where it does not, it keeps checkpoints of its own and sends the files of what is
finished. The driver may die too: started again, it asks for what the store does not have.
"""

import contextlib
import dataclasses
import logging
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

import lib
from lib.base import files, processes
from lib.base.distributed import STATE, Ranks, launch
from lib.base.errors import InputError
from lib.base.provenance import provenance
from lib.config import RunConfig
from lib.flops import count
from lib.store.runs import RunStore
from lib.train.loop import load_data, step_of, train

ANSWERS_WITHIN = 30.0  # seconds for an address
IMPORTS_WITHIN = 300.0  # seconds for every node to import what a run needs, from a cold disk and on busy cores
RETRIES = 20  # of one run, whose worker or node died; a run that kills its workers must end some time
LOOK_EVERY = 2.0  # seconds between looks at what has finished
RESIDENT = 1 << 30  # bytes of a process that has torch imported, with room for its batches of text


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Where runs are trained and what each asks for.

    address: host:port of a running cluster, or "auto" for the one of this machine; when empty, a new one is started on
    this machine. cpus, gpus: of a run, also fractions; gpus None: 1 if the cluster has any. A run with several GPUs is
    trained on all of them. memory: bytes of a run, estimated from its size when None. checkpoint_seconds: the work that
    a death may cost."""

    address: str = ""
    cpus: float = 1.0
    gpus: float | None = None
    memory: int | None = None
    checkpoint_seconds: float = 30.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Cluster | None":
        """What make was told: ENGINE (ray, or nothing), RAY_ADDRESS, RUN_CPUS, RUN_GPUS, RUN_MEMORY (bytes). They
        say where runs are trained and not which, so they are no parameters of notebooks. Raises InputError
        for values that they cannot have."""
        engine = environment.get("ENGINE", "")
        if engine not in ("", "ray"):
            raise InputError(f"ENGINE: {engine!r} is not known, use ray, or leave it out for the cores of this machine")
        if not engine:
            return None
        asked: dict[str, Any] = {}
        for name, field, least in (("RUN_CPUS", "cpus", 0.01), ("RUN_GPUS", "gpus", 0), ("RUN_MEMORY", "memory", 1)):
            given = environment.get(name, "")
            if not given:
                continue
            try:
                asked[field] = float(given)
            except ValueError:
                asked[field] = math.nan
            in_parts = field == "gpus" and asked[field] > 1 and asked[field] % 1  # Ray gives out several GPUs whole
            if not least <= asked[field] < math.inf or in_parts:
                raise InputError(f"{name}: {given!r} is nothing a run can ask for, use a number from {least} on")
        if "memory" in asked:
            asked["memory"] = int(asked["memory"])
        return cls(environment.get("RAY_ADDRESS", ""), **asked)


def memory_of(cfg: RunConfig) -> int:
    """An estimate of the bytes that a run needs: the process, the state of its parameters, and 34 bytes for each number
    of the residual stream, in each layer and loop that is kept for the backward pass (Korthikanti et al. 2022)."""
    rows, model = cfg.train.micro_batch or cfg.train.batch, cfg.model
    loops = 1 if cfg.train.checkpoint_loops else model.max_backprop_loops or model.mean_loops
    layers = model.prelude + model.coda + model.recur * loops
    return int(RESIDENT + STATE * count(model).n_params + 34 * rows * cfg.data.context * model.width * layers)


def train_all(
    ray: ModuleType, configs: list[RunConfig], store: RunStore, cluster: Cluster, show: Callable[[list[float]], None]
) -> None:
    """Trains every run on ``connected`` Ray; ``show`` is told the share of each that is done. Raises what a run raises.
    The others then stop, as when this is interrupted, and go on from their checkpoints another time."""
    gpus = gpus_of(ray, cluster)
    store.path.mkdir(parents=True, exist_ok=True)
    # a run on several GPUs has processes of its own: where one dies, the one that Ray started raises ChildFailedError
    task = ray.remote(max_retries=RETRIES, retry_exceptions=[ChildFailedError], num_cpus=cluster.cpus, num_gpus=gpus)(
        _train
    )
    done, pending = [0.0] * len(configs), {}
    with tempfile.NamedTemporaryFile(prefix=".driver-", dir=store.path) as sign:
        for i, cfg in enumerate(configs):
            one = task.options(memory=cluster.memory or memory_of(cfg), name=f"run {cfg.key}")
            asked = _absolute(cfg), store, Path(sign.name), cluster.checkpoint_seconds, max(1, int(gpus))
            pending[one.remote(*asked)] = i
        while pending:
            finished, _ = ray.wait(list(pending), num_returns=len(pending), timeout=LOOK_EVERY)
            for reference in finished:
                i = pending.pop(reference)
                if sent := _result(ray, reference):
                    store.take_in(configs[i].key, sent)
                done[i] = 1.0
            for i in pending.values():
                done[i] = max(done[i], _share(configs[i], store))
            show(done)


def gpus_of(ray: ModuleType, cluster: Cluster) -> float:
    """How many GPUs a run asks for."""
    has_any = ray.cluster_resources().get("GPU", 0) > 0
    return float(has_any) if cluster.gpus is None else cluster.gpus


def slots(ray: ModuleType, cluster: Cluster, configs: Sequence[RunConfig]) -> int:
    """How many of the runs the cluster can train at once. Raises InputError if no node could hold the largest of them:
    Ray would wait for one in silence."""
    asked = {"CPU": cluster.cpus, "GPU": gpus_of(ray, cluster)}
    for cfg in configs:
        Ranks(size=max(1, int(asked["GPU"]))).rows(0, cfg.train.micro_batch or cfg.train.batch)
    asked["memory"] = cluster.memory or max(memory_of(cfg) for cfg in configs)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    held = sum(int(min(node.get(what, 0) / much for what, much in asked.items() if much)) for node in nodes)
    if not held:
        raise InputError(
            f"RUN_CPUS: no node has {asked['CPU']:g} CPUs, {asked['GPU']:g} GPUs and {asked['memory'] / 1e9:.3g} GB of "
            "memory at once, ask for less (RUN_CPUS, RUN_GPUS, RUN_MEMORY)"
        )
    return held


def _train(cfg: RunConfig, store: RunStore, sign: Path, checkpoint_seconds: float, processes: int) -> dict[str, bytes]:
    """Trains one run on the node where Ray has put it, unless another process has trained it. Returns its files where
    the node does not see the driver's folder, in which ``sign`` lies; elsewhere the run is there."""
    if sign.exists():
        _train_here(cfg, store, checkpoint_seconds, processes)
        return {}
    own = RunStore(Path(tempfile.gettempdir()) / f"looped-lm-{os.getuid()}" / "runs")
    _train_here(cfg, own, checkpoint_seconds, processes)
    found = {file.name: file.read_bytes() for file in (own.path / cfg.key).iterdir()}
    files.remove(own.path / cfg.key)
    return found


def _train_here(cfg: RunConfig, store: RunStore, checkpoint_seconds: float, processes: int) -> None:
    if processes == 1:
        train(cfg, store, checkpoint_seconds=checkpoint_seconds)
    elif store.find(cfg) is None:
        Ranks(size=processes).rows(0, cfg.train.micro_batch or cfg.train.batch)  # refuses what does not divide
        load_data(cfg, store)  # and so does this, in one line of its own
        launch(processes, _train_here, cfg, store, checkpoint_seconds, 1)


def _share(cfg: RunConfig, store: RunStore) -> float:
    """How much of a run its last checkpoint has; what came after is lost if its worker dies. 0 where the node keeps it
    to itself."""
    return max(0, step_of(store.partial(cfg.key))) / cfg.train.steps


def _absolute(cfg: RunConfig) -> RunConfig:
    """As planned here, with the text named by a path that holds in any working directory."""
    content = cfg.content
    paths = {name: Path(getattr(cfg.data, name)) for name in ("source", "tokenizer")}
    here = {name: str(path.absolute()) for name, path in paths.items() if path.is_file()}
    return cfg.replace(data=cfg.data.replace(**here, content=content)) if here else cfg.planned


# ---- the cluster -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[ModuleType]:
    """Yields Ray, connected, once every node has imported the library. A cluster that is started for this ends with it.

    Raises InputError where Ray is not installed or does not start, nobody answers, or a node lacks a package."""
    try:
        import ray
    except ImportError:
        raise InputError("ENGINE: ray is not installed, run pip install -e .[ray], or leave ENGINE out") from None
    if cluster.address not in ("", "auto"):
        _answers(cluster.address)
    with tempfile.TemporaryDirectory() as folder:
        packed = _packed(Path(folder))
        local: dict[str, Any] = {} if cluster.address else {"include_dashboard": False, "num_cpus": processes.cores()}
        try:
            ray.init(
                cluster.address or "local",
                runtime_env={"py_modules": [str(packed)]},
                log_to_driver=False,
                logging_level=logging.ERROR,
                **local,
            )
        except Exception as error:  # Ray has no class for a node of its own that takes more than half a minute to start
            problem = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            if cluster.address:  # nobody there, or of another version
                raise InputError(f"RAY_ADDRESS: {cluster.address} cannot be joined ({problem}), mend it") from None
            raise InputError(
                f"ENGINE: Ray did not start on this machine ({problem}), close other programs and start again, or "
                "leave ENGINE out"
            ) from None
        try:
            _every_node_imports(ray)
            yield ray
        finally:
            ray.shutdown()


def _packed(folder: Path) -> Path:
    """A copy of the library in ``folder``, with a note of its commit, since workers have no git."""
    shutil.copytree(Path(lib.__file__).parent, folder / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "lib" / "commit.txt").write_text(provenance()["commit"])
    return folder / "lib"


def _answers(address: str) -> None:
    """Raises InputError if nobody listens there, or somebody else does; Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"RAY_ADDRESS: {address!r} is no address, use HOST:PORT as ray start prints it")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise InputError(f"RAY_ADDRESS: {address} does not answer ({error}), start the cluster or mend it") from None
    ask = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        healthy = subprocess.run(ask, capture_output=True, timeout=ANSWERS_WITHIN - 10).returncode == 0
    except subprocess.TimeoutExpired:
        healthy = False
    if not healthy:
        raise InputError(f"RAY_ADDRESS: what answers at {address} is no Ray cluster of this version, mend the address")


def _every_node_imports(ray: ModuleType) -> None:
    """Raises InputError for a node that does not answer in time or cannot import the library."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    asked = {
        ray.remote(num_cpus=0, max_retries=0)(_imports)
        .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
        .remote(): name
        for node, name in nodes.items()
    }
    give_up, missing = time.monotonic() + IMPORTS_WITHIN, list(asked)
    while missing:  # the first node that says it cannot is named at once
        finished, missing = ray.wait(missing, timeout=max(0.0, give_up - time.monotonic()))
        for reference in finished:
            try:
                problem = ray.get(reference)
            except ray.exceptions.RayError as error:
                problem = str(error).strip().splitlines()[-1]
            if problem:
                raise InputError(
                    f"ENGINE: node {asked[reference]} cannot train ({problem}), install environment.yml there"
                )
        if finished:
            continue
        names = ", ".join(asked[reference] for reference in missing)
        raise InputError(f"ENGINE: node {names} did not answer in {IMPORTS_WITHIN:.0f} s, mend it or take it out")


def _imports() -> str:
    """Which package this node lacks, "" if none."""
    try:
        import lib.train.loop  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


def _result(ray: ModuleType, reference: Any) -> dict[str, bytes]:
    """What a run returned; raises what it raised, without what Ray puts around it."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, InputError) else error from None

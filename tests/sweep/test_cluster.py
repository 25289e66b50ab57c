"""A sweep on Ray gives one process's numbers though workers, nodes or the driver die, and errors are named."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import types

import psutil
import pytest

from lib.base.errors import InputError
from lib.data.rows import token_store
from lib.store.runs import RunStore
from lib.sweep import cluster as clusters
from lib.sweep.cluster import Cluster, Nodes, connected, memory_of
from lib.sweep.training import sweep
from lib.train.loop import train
from tests.lines import one_line
from tests.processes import python, until
from tests.runs import numbers, small_run, sweeping


def test_memory_grows_with_what_is_kept():
    small = small_run()
    assert memory_of(small_run(model={"width": 128, "mlp_width": 256})) > memory_of(small) > 1 << 30
    rows = small_run(train={"batch": 64})
    assert memory_of(rows) > memory_of(small) == memory_of(small_run(train={"batch": 64, "micro_batch": 4}))


def test_a_cluster_trains_as_many_runs_as_its_nodes_hold():
    def ray(*nodes):
        alive = [{"Resources": resources, "Alive": True} for resources in nodes]
        dead = {"Resources": {"CPU": 64, "GPU": 8, "memory": 1e12}, "Alive": False}
        total = sum(node.get("GPU", 0) for node in nodes)
        return types.SimpleNamespace(nodes=lambda: [*alive, dead], cluster_resources=lambda: {"GPU": total})

    small, large = {"CPU": 3.0, "memory": 8e9}, {"CPU": 8.0, "GPU": 4.0, "memory": 64e9}
    asked = Cluster(memory=2_000_000_000)
    assert Nodes(ray(small), asked).at_once([small_run()]) == 3
    assert Nodes(ray(small, large), asked).at_once([small_run()]) == 4  # a GPU each, where there are any
    assert Nodes(ray(small), asked.replace(memory=3_000_000_000)).at_once([small_run()]) == 2


def test_a_text_is_named_by_a_path_that_holds_anywhere(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("One two.\n\nThree four.\n\n" * 200)
    monkeypatch.chdir(tmp_path)
    cfg = small_run(data={"source": "text.txt"})
    moved = clusters._absolute(cfg)
    assert moved.data.source == str(tmp_path / "text.txt") and moved.key == cfg.key
    assert clusters._absolute(small_run()) == small_run().planned


def test_make_says_where_and_what_a_run_asks_for():
    assert Cluster.of({}) is None and Cluster.of({"RAY_ADDRESS": "a:1"}) is None
    assert Cluster.of({"ENGINE": "ray"}) == Cluster()
    assert Cluster.of({"ENGINE": "ray", "RUN_CPUS": "1.5"}).cpus == 1.5  # processors are shared, GPUs are not
    asked = {"ENGINE": "ray", "RAY_ADDRESS": "a:1", "RUN_CPUS": "0.5", "RUN_GPUS": "0.25", "RUN_MEMORY": "4e9"}
    assert Cluster.of(asked) == Cluster(address="a:1", cpus=0.5, gpus=0.25, memory=4e9)

    for name, value in (("ENGINE", "slurm"), ("RUN_CPUS", "0"), ("RUN_GPUS", "2"), ("RUN_MEMORY", "nan")):
        with one_line(value, starts=f"{name}: "):
            Cluster.of({"ENGINE": "ray", name: value})


def test_without_ray_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"^ENGINE: ray is not installed, run pip install"), connected(Cluster()):
        pass


@pytest.mark.long
@pytest.mark.parametrize("listens", [False, True])
def test_who_is_no_cluster_is_named_soon(monkeypatch, listens):
    pytest.importorskip("ray")
    monkeypatch.setattr(clusters, "ANSWERS_WITHIN", 13.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if listens:
            other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        says = f"^RAY_ADDRESS: no Ray cluster .* answers at {address}"
        with pytest.raises(InputError, match=says), connected(Cluster(address=address)):
            pass


# ---- three nodes on this machine


#: seconds in which what Ray is asked for comes: it begins a dozen interpreters, and each of them imports torch beside
#: other tests. What ends before it comes is noticed at once.
COMES = 600


@contextlib.contextmanager
def patient():
    """Ray gives its own nodes half a minute to begin, which busy cores do not always keep: its clock goes slower."""
    with pytest.MonkeyPatch.context() as patch:
        slow = types.SimpleNamespace(**{**vars(time), "monotonic": lambda: time.monotonic() / 8})
        patch.setattr("ray._private.node.time", slow)
        patch.setenv("RAY_gcs_server_port_wait_time_s", "240")
        yield


@pytest.fixture(scope="module")
def cluster():
    """A head, to which tests add nodes and take them away."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as OnOneMachine

    with patient():
        cluster = OnOneMachine(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@contextlib.contextmanager
def nodes(cluster, count=2, **options):
    """So many of one processor each, beside the head."""
    with patient():
        added = [cluster.add_node(num_cpus=1, **options) for _ in range(count)]
    try:
        cluster.wait_for_nodes(timeout=COMES)
        yield added
    finally:
        for node in added:
            if node in cluster.worker_nodes:
                cluster.remove_node(node)


@pytest.fixture
def three_nodes(cluster):
    with nodes(cluster) as others:
        yield others


def workers_at_it() -> list[int]:
    """Processes of Ray that are training."""
    every = psutil.process_iter(["cmdline"])
    return [one.pid for one in every if " ".join(one.info["cmdline"] or []).startswith("ray::run ")]


@pytest.mark.long
def test_runs_survive_a_killed_worker_and_a_lost_node(cluster, three_nodes, tmp_path):
    first, _ = three_nodes
    configs = [small_run(train={"steps": 500, "seed": seed, "batch": 8}) for seed in range(5)]
    serial = sweep(configs, RunStore(tmp_path / "serial" / "runs"), jobs=1)
    store, found = RunStore(tmp_path / "ray" / "runs"), []
    where = Cluster(address=cluster.address, memory=1 << 20, checkpoint_seconds=0.5)
    driver = threading.Thread(target=lambda: found.append(sweep(configs, store, cluster=where)))
    driver.start()

    def checkpoints() -> int:
        return len(list(store.path.glob(".*.partial")))

    def two_are_trained() -> bool:
        return checkpoints() >= 2 and len(workers_at_it()) >= 2

    until(two_are_trained, within=COMES, running=driver.is_alive, said=workers_at_it)
    os.kill(workers_at_it()[0], signal.SIGKILL)
    until(two_are_trained, within=COMES, running=driver.is_alive, said=workers_at_it)
    cluster.remove_node(first, allow_graceful=False)
    driver.join(COMES)
    assert found, "the sweep did not end"
    (runs,) = found
    assert [numbers(result) for result in runs.results] == [numbers(result) for result in serial.results]
    assert sorted(path.name for path in store.path.iterdir() if path.is_dir()) == sorted(cfg.key for cfg in configs)
    assert not checkpoints()
    # the store owns what is finished: another driver has nothing to do
    again = sweep(configs, store, cluster=Cluster(address="nobody:1"))
    assert [numbers(result) for result in again.results] == [numbers(result) for result in serial.results]


@pytest.mark.long
def test_a_driver_that_dies_is_started_again(cluster, three_nodes, tmp_path):
    configs = [small_run(train={"steps": 200 + 200 * seed, "seed": seed, "batch": 8}) for seed in range(4)]
    serial = sweep(configs, RunStore(tmp_path / "serial" / "runs"), jobs=1)
    runs = tmp_path / "runs"

    def driver():
        where = f"Cluster(address={cluster.address!r}, memory=1 << 20, checkpoint_seconds=0.5)"
        return python(f"from lib.sweep.cluster import Cluster\n{sweeping(configs, runs, f'cluster={where}')}")

    first = driver()

    def under_way() -> bool:
        return any(runs.glob("[0-9a-f]*/result.json")) and any(runs.glob(".*.partial"))

    until(under_way, within=COMES, running=lambda: first.poll() is None)
    first.kill()
    first.communicate()
    finished = {path: path.stat().st_mtime_ns for path in runs.glob("[0-9a-f]*/result.json")}
    assert 0 < len(finished) < len(configs)
    second = driver()
    said, _ = second.communicate(timeout=COMES)
    assert second.returncode == 0, said
    store = RunStore(runs)
    assert [numbers(store.find(cfg)) for cfg in configs] == [numbers(result) for result in serial.results]
    assert all(path.stat().st_mtime_ns == at for path, at in finished.items())


def test_a_node_that_does_not_see_the_drivers_folder_sends_the_run(store, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters.tempfile, "tempdir", str(tmp_path / "node"))
    cfg = small_run()
    sent = clusters._train(cfg, RunStore("/nobody/runs"), tmp_path / "absent", 30.0)
    assert not list((tmp_path / "node").rglob(f"{cfg.key}*"))  # it keeps nothing but the text
    store.take_in(cfg.key, sent)
    assert numbers(store.find(cfg)) == numbers(train(cfg, RunStore(tmp_path / "other" / "runs")))
    store.take_in(cfg.key, sent)  # and once more it is there already
    assert [path.name for path in store.path.iterdir()] == [cfg.key]


@pytest.mark.long
def test_a_node_that_cannot_import_is_named(cluster, tmp_path):
    (tmp_path / "safetensors.py").write_text("raise ImportError('No module named safetensors')")
    configs = [small_run(train={"seed": seed}) for seed in range(8)]
    says = pytest.raises(InputError, match=r"^ENGINE: a node cannot train \(.*No module named safetensors\), install")
    with nodes(cluster, 1, env_vars={"PYTHONPATH": str(tmp_path)}), says:
        sweep(configs, RunStore(tmp_path / "runs"), cluster=Cluster(address=cluster.address, memory=1 << 20))


@pytest.mark.long
def test_an_error_of_a_run_is_its_own_and_no_node_is_waited_for_in_vain(cluster, three_nodes, tmp_path):
    store = RunStore(tmp_path / "runs")
    with pytest.raises(InputError, match="RUN_CPUS: no node has 99 CPUs"):
        sweep([small_run()], store, cluster=Cluster(address=cluster.address, cpus=99))
    (tmp_path / "text.txt").write_text("One two three.\n\nFour five six.\n\n" * 400)
    cfg = small_run(data={"source": str(tmp_path / "text.txt")})
    token_store(cfg.data, store.tokens)
    with pytest.raises(InputError, match="does not exist"), connected(Cluster(address=cluster.address)) as there:
        (tmp_path / "text.txt").unlink()  # a text that the workers do not have
        there.train([cfg], store, lambda i, share: None)

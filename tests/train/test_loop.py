"""A run learns real text and gives the same bits every time, also killed at any step and resumed."""

import math
import os
import random
import time

import pytest
import safetensors.torch
import torch

from lib.base import processes as workers
from lib.config import TrainConfig
from lib.flops import count
from lib.model.layers import Block, RMSNorm
from lib.store.runs import RunStore
from lib.train.loop import load, save, step_of, train
from tests.processes import python, until
from tests.runs import native_run, numbers, same_weights, stopped

pytestmark = pytest.mark.precision


def begun(cfg, store, every=0.0, progress=None):
    """A process that trains, of those that have the library imported already."""
    given = {"checkpoint_seconds": every, "progress": progress}
    process = workers.start().Process(target=train, args=(cfg, store), kwargs=given)
    process.start()
    return process


def test_training_learns_real_text(store):
    result = train(native_run(train={"steps": 80, "batch": 8}, optim={"warmup_steps": 8}), store)
    assert result.status == "finished"
    losses = result.metrics["loss"]
    assert losses[0] > 5 and losses[-1] < 3.2  # the unigram entropy of the text is 3.04
    assert result.summary["val_loss"] < 3.2
    assert result.summary["val_perplexity"] == pytest.approx(math.exp(result.summary["val_loss"]))
    assert result.summary["tokens"] == 80 * 8 * 32


def test_the_numbers_of_the_recipe(store, monkeypatch):
    """Golden values, in fp32 on a CPU: when they move, the numerics changed and lib.RECIPE must be raised."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = train(native_run(train={"precision": "fp32", "steps": 4}), store)
    assert result.metrics["loss"] == pytest.approx([5.70344, 5.01204, 4.65000, 4.46838], abs=2e-3)


def test_the_same_config_gives_the_same_numbers(tmp_path):
    a, b = (train(native_run(), RunStore(tmp_path / name / "runs")) for name in "ab")
    assert numbers(a) == numbers(b) and same_weights(a, b)
    assert numbers(train(native_run())) == numbers(a)  # also without a store
    assert numbers(train(native_run(train={"seed": 1}))) != numbers(a)


def test_micro_batches_see_the_same_rows_depths_and_states():
    whole, split = (train(native_run(train={"precision": "fp32", "micro_batch": m})) for m in (None, 2))
    assert split.metrics["loss"] == pytest.approx(whole.metrics["loss"], rel=1e-4)
    assert split.metrics["state_norm"] == pytest.approx(whole.metrics["state_norm"], rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_killed_at_a_random_step_and_resumed_gives_the_same_bits(tmp_path, optimizer):
    cfg = native_run(train={"steps": 40, "eval_every": 7}, optim={"name": optimizer, "warmup_steps": 3})
    whole = train(cfg, RunStore(tmp_path / "whole" / "runs"))
    store = RunStore(tmp_path / "killed" / "runs")
    at, seen = random.randint(2, 15), workers.start().RawArray("d", 41)  # the losses of steps that were done
    process = begun(cfg, store, progress=seen.__setitem__)
    until(lambda: seen[at], running=process.is_alive, pause=0.001)  # steps are quick
    process.kill()
    process.join()
    assert store.find(cfg) is None and store.partial(cfg.key).exists()
    begins_at, steps = step_of(store.partial(cfg.key)), []
    assert at - 1 <= begins_at < 40
    resumed = train(cfg, store, progress=lambda step, loss: steps.append(step))
    assert steps[0] == begins_at + 1, f"killed at {at}"
    assert numbers(resumed) == numbers(whole) and same_weights(resumed, whole), f"killed at {at}"
    assert not store.partial(cfg.key).exists()


def test_two_processes_want_one_run_and_one_trains_it(store):
    cfg = native_run(train={"steps": 40})
    seen = [workers.start().RawArray("d", 41) for _ in range(2)]
    processes = [begun(cfg, store, 1e9, losses.__setitem__) for losses in seen]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(sum(map(bool, losses)) for losses in seen) == [0, 40]
    assert len(store.frame()) == 1


def test_a_run_that_blows_up_is_a_result_with_its_curve(store):
    exploding = native_run(model={"injection": "concat", "mean_loops": 8}, optim={"lr": 0.5}, train={"steps": 40})
    result = train(exploding, store)
    assert result.status == "diverged"
    done = result.summary["steps_done"]
    assert 1 <= done < 40 and result.metrics["step"] == list(range(1, done + 1))
    assert result.metrics["state_rms"][-1] > 1e4 and result.summary["max_state_rms"] > 1e4
    assert store.find(exploding).status == "diverged"
    never = exploding.train.replace(max_state_rms=1e300, steps=400, precision="fp32")
    result = train(exploding.replace(train=never))
    assert result.status == "diverged"
    assert not all(math.isfinite(result.metrics[name][-1]) for name in ("loss", "grad_norm", "state_rms"))
    assert all(math.isfinite(value) for value in result.metrics["loss"][:-1])
    result = train(native_run(optim={"lr": 1e10}, train={"steps": 1}), store)  # whose only update is one too many
    assert result.status == "diverged" and math.isnan(store.get(result.config).summary["val_loss"])


def test_a_trained_tokenizer_and_bits_per_byte(store):
    cfg = native_run(model={"vocab_size": 512}, data={"tokenizer": "bpe-512"}, train={"steps": 40, "batch": 8})
    result = train(cfg, store)
    assert result.provenance["text"]["vocab_size"] == 512
    # a token is more than a byte: nats per token over ln 2 exceed bits per byte
    assert result.summary["val_bpb"] < 0.75 * result.summary["val_loss"] / math.log(2)


def test_a_cpu_run_uses_one_thread_and_gives_the_others_back():
    before, seen = torch.get_num_threads(), []
    train(native_run(), progress=lambda *_: seen.append(torch.get_num_threads()))
    assert set(seen) == {1} and torch.get_num_threads() == before


@pytest.mark.long
def test_a_compiled_run_learns_the_same_and_resumes_to_the_same_bits(tmp_path, monkeypatch):
    cfg = native_run(train={"steps": 12})
    plain = train(cfg)
    monkeypatch.setattr(TrainConfig, "compiles_on", lambda self, device: True)
    whole = train(cfg, RunStore(tmp_path / "whole" / "runs"))
    assert whole.provenance["compiled"]
    assert whole.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=0.03)
    store = RunStore(tmp_path / "killed" / "runs")
    stopped(cfg, store, at=5)
    torch.compiler.reset()  # as in a fresh process, which compiles for the shapes of later steps first
    again = train(cfg, store)
    assert numbers(again) == numbers(whole) and same_weights(again, whole)


@pytest.mark.long
def test_a_run_is_recorded_as_compiled_where_no_block_fell_back(monkeypatch):
    monkeypatch.setattr(TrainConfig, "compiles_on", lambda self, device: True)
    monkeypatch.setattr(Block, "compile", lambda self: torch.nn.Module.compile(self, backend="eager"))
    norm, told = RMSNorm.forward, []
    for refused in (lambda: None, torch._dynamo.graph_break):
        monkeypatch.setattr(RMSNorm, "forward", lambda *x, refused=refused: refused() or norm(*x))
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        told.append(train(native_run()).provenance["compiled"])
    assert told == [True, False]


@pytest.mark.gate
@pytest.mark.long
def test_killed_again_and_again(tmp_path):
    cfg = native_run(train={"steps": 150})
    whole = train(cfg, RunStore(tmp_path / "whole" / "runs"))
    store = RunStore(tmp_path / "killed" / "runs")
    kills = 0
    while store.find(cfg) is None:
        process = begun(cfg, store)
        if kills < 12:
            time.sleep(random.uniform(0.1, 0.5))
            process.kill()
            kills += 1
        process.join()
    assert kills > 2
    assert numbers(store.find(cfg)) == numbers(whole) and same_weights(store.find(cfg), whole)


def test_a_run_imports_nothing_heavy_that_it_does_without(store):
    """Torch's compiler takes three seconds to import, as long as a small run."""
    code = f"""
import sys
from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.train.loop import train
train(RunConfig.model_validate_json({native_run().model_dump_json()!r}), RunStore({str(store.path)!r}))
print([name for name in ("torch._dynamo", "pandas", "scipy", "matplotlib") if name in sys.modules])
"""
    output, _ = python(code).communicate(timeout=120)
    assert output.strip().splitlines()[-1] == "[]", output
    assert store.find(native_run()).status == "finished"


def test_a_growing_model_is_the_small_one_until_it_grows(tmp_path):
    """Its first steps are those of a model with fewer loops, to the bit; later ones cost as much as the whole."""
    fields = dict(injection="concat", state_init="prelude", depth="fixed", backprop_loops="all", init="normal")
    schedule = {"precision": "fp32", "steps": 8}
    small = train(native_run(model={**fields, "mean_loops": 1}, train=schedule))
    grown = train(native_run(model={**fields, "mean_loops": 3}, train={**schedule, "grow_from": 1}))
    losses, of_small = grown.metrics["loss"], small.metrics["loss"]
    assert losses[:6] == of_small[:6] and losses[6] != of_small[6]
    per_token = [count(run.config.model, 32).flops_per_token for run in (small, grown)]
    tokens = grown.config.tokens_per_step
    assert grown.summary["train_flops"] == tokens * (6 * per_token[0] + 2 * per_token[1])


GROWING = {"injection": "concat", "state_init": "prelude", "depth": "fixed", "backprop_loops": "all", "mean_loops": 3}
STOPPED = [
    *[({"model": GROWING, "train": {"precision": "fp32", "steps": 8, "grow_from": 1}}, step) for step in (5, 6, 7)],
    *[({"optim": {"name": name, "update_clipping": True}}, 3) for name in ("adamw", "muon", "muonh")],
    *[({"optim": {"name": name}}, 3) for name in ("adamw", "muon", "muonh")],
]


@pytest.mark.parametrize(("parts", "step"), STOPPED)
def test_a_run_that_is_stopped_goes_on_with_its_optimiser_and_grows_in_the_same_step(tmp_path, parts, step):
    cfg = native_run(**parts)
    whole, store = train(cfg, RunStore(tmp_path / "whole" / "runs")), RunStore(tmp_path / "stopped" / "runs")
    stopped(cfg, store, step)
    again = train(cfg, store)
    assert numbers(again) == numbers(whole) and same_weights(again, whole)


# ---- a checkpoint ----------------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(tmp_path):
    tensors, position = {"a": torch.rand(3, 2).T, "b": torch.ones((), dtype=torch.int64)}, {"step": 7, "key": "x"}
    save(tensors, position, tmp_path / "x")
    loaded, at = load(tmp_path / "x")
    assert at == position and step_of(tmp_path / "x") == 7
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    (tmp_path / "damaged").write_bytes(b"not this")
    os.mkfifo(tmp_path / "pipe")
    assert {step_of(tmp_path / name) for name in ("damaged", "nowhere", "pipe")} == {-1}


def test_a_checkpoint_holds_no_pickle(tmp_path):
    store = RunStore(tmp_path / "runs")
    checkpoint = stopped(native_run(), store, at=3)
    assert len(safetensors.torch.load_file(checkpoint)) > 20 and step_of(checkpoint) == 2
    assert {p for p in store.path.rglob("*") if p.is_file() and p.suffix != ".lock"} == {checkpoint}

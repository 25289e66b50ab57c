import json

import pytest

import lib
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.errors import InputError
from tests.conftest import small_run


@pytest.mark.parametrize(
    ("make", "field", "remedy"),
    [
        (lambda: ModelConfig(widht=64), "widht", "spelling"),
        (lambda: ModelConfig(width="64"), "width", "integer"),
        (lambda: ModelConfig(width=65), "width", "heads"),
        (lambda: ModelConfig(width=6, heads=2), "heads", "RoPE"),
        (lambda: ModelConfig(vocab_size=2**32 + 1), "vocab_size", "at most"),
        (lambda: ModelConfig(prelude=0, recur=0, coda=0), "recur", "layer"),
        (lambda: ModelConfig(recur=0), "mean_loops", "recur"),
        (lambda: ModelConfig(backprop_loops=0), "backprop_loops", "at least 1"),
        (lambda: ModelConfig(injection="none"), "state_init", "prelude"),
        (lambda: ModelConfig(injection="none", state_init="prelude"), "backprop_loops", "'all'"),
        (
            lambda: ModelConfig(recur=0, mean_loops=1, injection="none", state_init="prelude", loop_norm="own"),
            "loop_norm",
            "'none'",
        ),
        (lambda: RunConfig(data="sotu"), "data", "DataConfig"),
        (lambda: ModelConfig(injection="glue"), "injection", "concat"),
        (lambda: OptimConfig(lr=-1.0), "lr", "greater than 0"),
        (lambda: OptimConfig(lr=float("nan")), "lr", "finite"),
        (lambda: OptimConfig(betas=(0.9, 1.0)), "betas", "[0, 1)"),
        (lambda: TrainConfig(batch=8, micro_batch=3), "micro_batch", "divide"),
        (lambda: DataConfig(tokenizer="words"), "tokenizer", "bpe-SIZE"),
        (lambda: DataConfig(tokenizer="bpe-100"), "tokenizer", "260"),
        (lambda: DataConfig(tokenizer=f"bpe-{2**32 + 1}"), "tokenizer", str(2**32)),
        (lambda: RunConfig(model={"width": 65}), "model", "heads"),
        (lambda: small_run(model={"context": 16}), "model.context", "data.context"),
        (lambda: small_run(model={"vocab_size": 100}), "model.vocab_size", "256"),
        (lambda: small_run(data={"tokenizer": "bpe-512"}), "model.vocab_size", "bpe-512"),
        (lambda: small_run(optim={"warmup_steps": 7}), "optim.warmup_steps", "6 steps"),
    ],
)
def test_bad_input_is_one_line_with_the_field_and_the_remedy(make, field, remedy):
    with pytest.raises(InputError) as error:
        make()
    message = str(error.value)
    assert field in message and remedy in message and "\n" not in message


def test_configs_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        ModelConfig().width = 128


def test_a_config_survives_its_json():
    cfg = small_run(optim={"betas": (0.8, 0.95)})
    again = RunConfig(**json.loads(cfg.model_dump_json()))
    assert again == cfg and again.key == cfg.key


def test_everything_that_decides_numbers_changes_the_key():
    cfg = small_run()
    changed = [
        small_run(model={"rope": "half-split"}),
        small_run(data={"val_rows": 17}),
        small_run(optim={"lr": 4.001e-3}),
        small_run(train={"seed": 1}),
        small_run(train={"precision": "bf16"}),
    ]
    assert len({c.key for c in [cfg, *changed]}) == 6


def test_the_recipe_changes_the_key(monkeypatch):
    before = small_run().key
    monkeypatch.setattr(lib, "RECIPE", lib.RECIPE + 1)
    assert small_run().key != before


def test_text_is_known_by_content_not_by_place(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("one\n\ntwo\n")
    (tmp_path / "c.txt").write_text("one\n\nthree\n")
    a, b, c = (small_run(data={"source": str(tmp_path / f"{name}.txt")}) for name in "abc")
    assert a.key == b.key != c.key
    assert str(tmp_path) not in json.dumps(a.canonical())


def test_a_stated_content_needs_no_text():
    cfg = small_run(data={"source": "/nowhere/a.txt", "content": "0123456789abcdef"})
    assert cfg.key == small_run(data={"source": "/elsewhere/b.txt", "content": "0123456789abcdef"}).key


def test_another_text_in_a_config_is_known_as_such(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("one\n\nthree\n")
    a = DataConfig(source=str(tmp_path / "a.txt"))
    b = a.replace(source=str(tmp_path / "b.txt"))
    assert b == DataConfig(source=str(tmp_path / "b.txt")) and a.content != b.content
    assert a.replace(context=32).content == a.content


def test_precision_is_resolved_before_hashing():
    assert TrainConfig().precision in ("fp32", "bf16-mixed")
    assert TrainConfig(precision="fp32").precision == "fp32"


def test_half_rounds_up():
    assert ModelConfig(mean_loops=7, backprop_loops="half").max_backprop_loops == 4
    assert ModelConfig(mean_loops=7, backprop_loops="all").max_backprop_loops is None
    assert ModelConfig(mean_loops=7, backprop_loops=3).max_backprop_loops == 3

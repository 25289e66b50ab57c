"""A published model is asked on its own tokens, and loop by loop what the model itself computes."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.base.errors import InputError
from lib.config import DataConfig
from lib.decode.generation import Exit, score
from lib.flops import count
from lib.model.looped import token_losses
from lib.papers.others import models
from lib.sweep.measurements import measure
from lib.sweep.training import sweep
from lib.text.tokenizer import train_bpe
from tests import checkpoints
from tests.cells import run
from tests.lines import one_line
from tests.models import config, randomized
from tests.runs import small_run

WORDS = "one two three four five six seven eight nine ten looped words follow words and end here"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    text = tmp_path_factory.mktemp("text") / "words.txt"
    text.write_text("\n\n".join(f"{i} {WORDS} {i}" for i in range(300)))
    return DataConfig(source=str(text), context=16, val_rows=8)


@pytest.fixture(scope="module")
def ouro(tmp_path_factory, data):
    """A folder as the hub has it: weights, config.json and tokenizer.json; and what it is when it is opened."""
    folder = tmp_path_factory.mktemp("tiny-ouro")
    about, tensors = checkpoints.ouro(vocab_size=300)
    checkpoints.saved(folder, about, tensors)
    train_bpe([WORDS] * 5, 280, folder / "tokenizer.json")
    return models.of_checkpoint(str(folder), data, folder / "tokens")


def test_a_folder_brings_its_own_tokenizer(ouro, data):
    assert 256 < ouro.tokenizer.vocab_size <= 300
    assert ouro.rows.shape == (8, 17) and ouro.model.exit_gate is not None and not ouro.model.training
    text = ouro.tokenizer.decode(ouro.rows[0].tolist())
    assert "six seven eight" in text


def test_bytes_are_refused_where_the_model_has_other_tokens(tmp_path, data):
    checkpoints.saved(tmp_path, *checkpoints.ouro(vocab_size=300))
    with one_line("bytes", "give the tokenizer.json", starts="tokenizer: "):
        models.of_checkpoint(str(tmp_path), data, tmp_path / "tokens")


@pytest.mark.parametrize("at_once", [20, models.AT_ONCE])  # whose parts change nothing
def test_loops_are_those_of_the_model(ouro, monkeypatch, at_once):
    monkeypatch.setattr(models, "AT_ONCE", at_once)
    assert len(ouro.parts) == (8 if at_once == 20 else 1)
    table = models.by_loops(ouro, [1, 2, 4, 7])
    x, y = ouro.rows[:, :-1], ouro.rows[:, 1:]
    assert [*table.index] == [1, 2, 4, 7]
    for T in table.index:
        assert table.loss[T] == pytest.approx(token_losses(ouro.model, x, y, T).mean().item(), rel=1e-5)
    with torch.no_grad():
        end = ouro.model.hidden(x, 7)[1]
        own, other = (ouro.model(x, T).argmax(-1) for T in (ouro.model.cfg.mean_loops, 7))
    assert table.norm[7] == pytest.approx(end.state.norm(dim=-1).mean().item(), rel=1e-5)
    moved = ((end.state - end.previous).norm(dim=-1) / end.state.norm(dim=-1)).mean().item()
    assert table.move[7] == pytest.approx(moved, rel=1e-4) and np.isnan(table.move[1])
    assert table.agree[7] == pytest.approx((own == other).float().mean().item())
    assert table.agree[ouro.model.cfg.mean_loops] == 1


@pytest.mark.parametrize("kind", ["parcae", "grouped", "gated", "hyper-connections"])
def test_flops_are_shared_out(kind):
    cfg = config(kind, mean_loops=6, backprop_loops="all") if kind == "hyper-connections" else config(kind)
    shares = models.where_flops_go(randomized(cfg))
    assert shares.sum() == pytest.approx(1) and (shares >= -1e-12).all()
    more = count(cfg.replace(mean_loops=2 * cfg.mean_loops)).flops_per_token_forward
    assert shares["loops"] == pytest.approx(more / count(cfg).flops_per_token_forward - 1)  # twice the loops


@pytest.mark.parametrize("criterion", ["entropy", "l2"])
def test_who_predicts_runs_the_coda_at_every_exit(criterion, data):
    """What is counted against entropy and KL is done: the coda sees every token after every loop it makes."""
    model, x = randomized(config("parcae", coda=2)).eval(), torch.randint(61, (3, 9))
    seen = []
    model.coda[0].register_forward_hook(lambda _, given, __: seen.append(given[0].shape[1]))
    never = 1e-9 if criterion == "entropy" else 0.0
    taken = score(model, x[:, :-1], x[:, 1:], Exit(never, criterion)).loops
    assert sum(seen) == (taken.sum() if criterion == "entropy" else taken.size)


def test_a_model_without_a_loop_is_asked_the_same(data):
    cfg = config("passthrough", prelude=2, recur=0, mean_loops=1, vocab_size=256)
    opened = models.Opened(randomized(cfg).eval(), None, torch.randint(256, (2, 9)))
    table = models.by_loops(opened, [1])
    assert table.agree[1] == 1 and np.isnan(table.move[1])
    assert models.where_flops_go(opened.model)["loops"] == 0


def test_tasks_are_asked_at_every_number_of_loops(ouro):
    given = {
        "questions": [models.asked(name, "") for name in ("Parity of 4", "Copying 4")],
        "opened": ouro,
        "T": [1, 3],
    }
    given |= {"p": SimpleNamespace(limit=5), "blue": "b", "of_loops": id}
    table = run("published_models", "answers = ", **given).answers
    assert table.task.tolist() == ["Parity of 4"] * 2 + ["Copying 4"] * 2 and table["T"].tolist() == [1, 3, 1, 3]
    assert table.chance.tolist() == [0.5, 0.5, 0.0, 0.0] and table.accuracy.between(0, 1).all()
    assert table.n.tolist() == [5] * 4
    with one_line("'glue'", starts="tasks: "):
        models.asked("glue", "")
    with one_line("tasks_from", starts="tasks: "):
        models.asked("bigbench_qa_wikidata", "")


def test_a_run_of_the_store_is_opened_like_any_other(store):
    cfg = small_run(model={"mean_loops": 3}, data={"context": 16, "val_rows": 4}, train={"steps": 3})
    (trained,) = sweep([cfg], store).results
    opened = models.of_run(trained.key, store, functools.partial(measure, store=store))
    assert opened.model.cfg == cfg.model and opened.rows.shape == (4, 17)
    loss = models.by_loops(opened, [3]).loss.iloc[0]
    assert loss == pytest.approx(trained.summary["val_loss"], rel=1e-5)
    with pytest.raises(InputError, match="run: 'nobody' names 0"):
        models.of_run("nobody", store, measure)

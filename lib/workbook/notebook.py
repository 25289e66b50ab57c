"""What every notebook does: check its parameters, show the plan, run it, stamp figures and claims with provenance."""

import contextlib
import dataclasses
import functools
import io
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import ipywidgets
import pandas as pd
import torch
from IPython import get_ipython
from IPython.display import Image, Markdown, clear_output, display
from matplotlib import pyplot
from matplotlib.figure import Figure

from lib.base import files
from lib.base.errors import InputError, NotThere
from lib.base.machine import provenance
from lib.base.parameters import Computing, Parameters
from lib.config import Label, RunConfig
from lib.figures import style
from lib.flops import count, run_flops
from lib.store.runs import RunStore
from lib.sweep import measurements, training
from lib.sweep.cluster import Cluster
from lib.sweep.finished import OfText, Runs, held_out
from lib.sweep.measurements import Asked, C
from lib.tasks.evaluations import Evaluation
from lib.workbook import claims, parameters, places, plans, verdicts
from lib.workbook.parameters import Filled

FORMULA = re.compile(r"[=+@\t\r-](?![\d.]+(e[+-]?\d+)?$)")
P = TypeVar("P", bound=Parameters)
NAMED = 4  # of the changed parameters, on a figure
#: columns of a plan
PLAN = ("runs of", "runs", "missing", "parameters", "FLOPs per token", "tokens per run", "FLOPs")


@dataclasses.dataclass(frozen=True)
class Notebook(Generic[P]):
    """A notebook whose parameters have been checked, and where its results go."""

    name: str
    parameters: P
    outputs: Path
    #: what it asks for, as far as its cells have said
    planned: plans.Plan = dataclasses.field(default_factory=plans.Plan)
    #: number of a cell -> what it has said
    said: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    #: how much of its plan is there, where it draws a part alone, and the values of the parameters that were cut to it
    part: str = ""
    cut_from: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: the parameters whose values somebody gave, other than the profile's
    changed: Sequence[str] = ()
    #: what ``start`` put into the kernel's namespace
    filled: Filled = dataclasses.field(default_factory=Filled)

    @property
    def profile(self) -> str:
        return self.parameters.profile

    @property
    def store(self) -> RunStore:
        """Runs of the workbook, and the committed records of this profile."""
        return RunStore(self.outputs / "runs", places.records(self.profile))

    def need(self, holds: bool, otherwise: str) -> None:
        """Of parameters that have to fit together: raises InputError, with a line that names one and the remedy, where
        they do not."""
        if not holds:
            raise InputError(otherwise)

    def plan(self, configs: dict[Label, RunConfig]) -> pd.DataFrame:
        """A table of what the runs cost, one row for each first part of their labels; nothing is trained.

        missing: runs that the store does not have. The configs go to outputs/plans/<profile>/<name>.json. The time it
        would take on this device is measured by ``sweep``, which says it before it begins."""
        store = self.store
        missing = {cfg.key for cfg in configs.values() if store.find(cfg) is None}
        self.planned.labels = configs
        self.planned.runs[:] = {cfg.key: cfg.planned for cfg in configs.values()}.values()
        with self._noting() as noted:
            noted |= {"runs": {cfg.key: cfg.model_dump(mode="json") for cfg in self.planned.runs}, "part": self.part}
        rows = []
        for group in dict.fromkeys(label[0] for label in configs):
            runs = list({cfg.key: cfg for label, cfg in configs.items() if label[0] == group}.values())
            counts = [count(cfg.model, cfg.data.context) for cfg in runs]
            rows.append(
                {
                    "runs of": group,
                    "runs": len(runs),
                    "missing": sum(cfg.key in missing for cfg in runs),
                    "parameters": _range([c.n_params for c in counts]),
                    "FLOPs per token": _range([c.flops_per_token for c in counts]),
                    "tokens per run": _range([cfg.tokens for cfg in runs]),
                    "FLOPs": sum(map(run_flops, runs)),
                }
            )
        return pd.DataFrame(rows, columns=PLAN).set_index("runs of")

    def printed(self, drawn_from: str = "") -> str:
        """On its figures: the profile, or what is drawn in its place; how much of the plan is there; of an addendum,
        how many of the runs are not those of the profile that it adds to; which parameters somebody changed."""
        added = ""
        if base := places.ADDS_TO.get(self.profile):
            theirs = RunStore(self.outputs / "none", [places.RECORDS / base])
            new = sum(theirs.find(cfg) is None for cfg in self.planned.runs)
            added = f"{new} of {len(self.planned.runs)} runs are not {base}'s"
        first, more = self.changed[:NAMED], len(self.changed) - NAMED
        changed = f"changed: {', '.join(first)}{f' and {more} more' * (more > 0)}" if first else ""
        of = drawn_from or self.parameters.drawn_from or f"profile: {self.profile}"
        return ", ".join(filter(None, [of, self.part, added, changed]))

    @contextlib.contextmanager
    def _noting(self) -> Iterator[dict[str, Any]]:
        """What is noted of the plan, to be changed by one process at a time."""
        path = self.outputs / "plans" / self.profile / f"{self.name}.json"
        with files.lock(path.parent / ".lock"):
            noted = plans.read_plan(path)
            yield noted
            files.write_checked(path, noted)

    def will_measure(self, function: measurements.Function[C], cases: Iterable[C]) -> list[C]:
        """Plans measurements, in addition to those asked for before: some are known only when the runs are there.
        Returns their cases, for ``measure``."""
        cases = list(cases)
        self.planned.asked += [Asked(function, case) for case in cases]
        name, costs = measurements.name(function), {measurements.key(case): case.flops for case in cases}
        with self._noting() as noted:
            noted.setdefault("measurements", {}).setdefault(name, {}).update(costs)
        return cases

    def may_measure(self, function: measurements.Function[C], cases: Iterable[C]) -> None:
        """Names all that the notebook might measure, where it chooses by what it finds: of the best run of a budget,
        say. Records of runs that finished have all of it; the notebook itself measures what it then asks for."""
        self.planned.asked += [Asked(function, case, of_finished=True) for case in cases]

    def will_open(self, configs: Collection[RunConfig]) -> None:
        """Says that the notebook opens these runs' weights, other than to measure: records keep them, and the held-out
        rows."""
        self.planned.opened.update(cfg.key for cfg in configs)
        self.may_measure(held_out, [OfText.of(cfg.data, self.store) for cfg in configs])

    def _limits(self) -> tuple[int, float]:
        """(processes, hours); one a core, 0, and no limit where no parameter says so."""
        p = self.parameters
        return (p.jobs, p.max_hours) if isinstance(p, Computing) else (0, math.inf)

    def sweep(self, configs: list[RunConfig], all_may_diverge: bool = False) -> Runs:
        """Trains what is missing, with the notebook's ``jobs`` and ``max_hours``, on Ray where make said so. Where the
        notebook shall not train, raises NotThere for what is missing; where it shall, InputError for what could not be
        measured then. all_may_diverge: something can be drawn also where no run finished."""
        store = self.store
        missing = [cfg.key for cfg in configs if store.find(cfg) is None]
        self._need(missing, "runs")
        for asked in self.planned.asked if missing else ():
            if isinstance(asked.case, Evaluation):
                asked.case.check()
        runs = training.sweep(configs, store, *self._limits(), Cluster.of(os.environ))
        diverged = sum(result.status == "diverged" for result in runs.results)
        if diverged == len(runs.results) > 0 and not all_may_diverge:
            raise InputError(f"lr: all {diverged} runs diverged and leave nothing to draw, lower the learning rates")
        self._say(
            f"{len(runs.results)} runs, {diverged} of them ended as diverged; "
            f"{sum(result.summary['seconds'] for result in runs.results) / 60:.1f} minutes of training in all"
        )
        return runs

    def _need(self, missing: list[str], what: str) -> None:
        """Raises NotThere for what is missing where nothing shall be trained."""
        p = self.parameters
        if missing and isinstance(p, Computing) and not p.train:
            raise NotThere(
                f"train: {len(missing)} {what} are missing, {', '.join(missing[:3])}{' ...' * (len(missing) > 3)}; "
                "set it to true to make them here, or draw when they are there"
            )

    def _say(self, line: str) -> None:
        """Puts a line, below those that the cell has said, in the place of what it has shown: bars are for watching,
        the executed notebook keeps lines."""
        lines = self.said.setdefault(getattr(get_ipython(), "execution_count", 0), [])
        lines.append(line)
        clear_output(wait=True)
        print("\n".join(lines))

    def save(self, figure: Figure, name: str, heading: str = "", n: str = "", drawn_from: str = "") -> None:
        """Writes a figure as PNG and PDF with its provenance inside and a JSON beside it, and shows it.

        heading: what it asks or shows, in words; n: what it is drawn from, the plan's runs and seeds where nothing else
        is said. The report has both beside it. drawn_from: on the figure in the place of the profile, where it draws no
        runs of the plan."""
        display(self._saved(figure, name, heading, n, drawn_from))

    def slide(
        self, draw: Callable[..., Figure], name: str, heading: str = "", n: str = "", **parts: tuple[Any, ...]
    ) -> None:
        """``save`` of what ``draw`` returns with every slider where it begins; in JupyterLab, where somebody can move
        them, the figure is shown below its ``sliders``: in an executed copy these would be empty boxes."""
        picture = self._saved(draw(**{part: at for part, (at, *_) in parts.items()}), name, heading, n)
        display(sliders(draw, **parts) if somebody_is_there() else picture)

    def _saved(self, figure: Figure, name: str, heading: str, n: str, drawn_from: str = "") -> Image:
        """The picture of a figure that has been written."""
        runs = self.planned.runs
        seeds = len({cfg.train.seed for cfg in runs})
        of_plan = f"{len(runs):,} runs, {seeds} seed{'s' * (seeds != 1)}" if runs else ""
        stamp = {**self._stamp, "heading": heading, "n": n or of_plan}
        png = style.save(figure, self.outputs / "figures" / self.profile / name, stamp, self.printed(drawn_from))
        return _shown(figure, png.read_bytes())

    def verdicts(self, findings: list[claims.Finding]) -> Markdown:
        """Prints a line a claim, with the number that decided; returns the reasons of those that are contradicted or
        absent, as docs/explanations.md has them of desk and of published runs."""
        from lib.workbook import documents  # which imports much

        reasons: dict[str, list[str]] = {}
        for finding in findings:
            print(verdicts.line(vars(finding) | {"claim": finding.id, "replicates": _entry(finding.id).replicates}))
            as_told = self.profile == "desk" and not (self.changed or self.part)
            if as_told and finding.verdict in (claims.CONTRADICTED, claims.ABSENT):
                reasons.setdefault(documents.reason(finding.id), []).append(f"**{finding.id}**, {finding.verdict}")
        reasons.pop("", None)
        told = [f"{'; '.join(whose)}\n\n{reason}" for reason, whose in reasons.items()]
        return Markdown("\n\n".join([*told, "The rule of each claim is in `params/claims.yaml`."]))

    def save_table(self, table: pd.DataFrame, name: str, digits: int = 4) -> pd.DataFrame:
        """Writes a data frame as CSV with its provenance in a JSON beside it, for the report; returns the frame."""
        path = self.outputs / "tables" / self.profile / f"{name}.csv"
        with files.replacing_together(path, path.with_suffix(".json")) as (draft, note):
            table.map(_harmless).rename(index=_harmless, columns=_harmless).to_csv(draft, float_format=f"%.{digits}g")
            note.write_text(json.dumps(self._stamp, indent=1) + "\n", encoding="utf-8")
        return table

    @functools.cached_property
    def _stamp(self) -> dict[str, Any]:
        return {
            "notebook": self.name,
            "profile": self.profile,
            "parameters": self.parameters.model_dump(),
            **({"cut_from": self.cut_from} if self.cut_from else {}),
            **provenance(),
        }

    def plan_measurements(self, cases: dict[Label, Any], function: measurements.Function[Any]) -> pd.DataFrame:
        """``plan`` for what ``measure`` would make: a table with one row for each first part of the labels."""
        self.will_measure(function, cases.values())
        rows, store = [], self.store
        for group in dict.fromkeys(label[0] for label in cases):
            some = list({measurements.key(case): case for label, case in cases.items() if label[0] == group}.values())
            rows.append(
                {
                    "measurements of": group,
                    "runs": len(some),
                    "missing": sum(Asked(function, case).found(store) is None for case in some),
                    "parameters": _range([count(case.model).n_params for case in some]),
                    "FLOPs": sum(case.flops for case in some),
                }
            )
        return pd.DataFrame(rows).set_index("measurements of")

    def measure(self, function: measurements.Function[C], cases: list[C]) -> list[dict[str, Any]]:
        """``measurements.measure`` with the notebook's store, ``jobs`` and ``max_hours``."""
        self.will_measure(function, cases)
        store = self.store
        if isinstance(self.parameters, Computing) and not self.parameters.train:
            asked = [Asked(function, case) for case in cases]
            self._need([one.key for one in asked if one.found(store) is None], "measurements")
        results = measurements.measure(function, cases, store, *self._limits())
        self._say("\n".join([f"{len(cases)} measurements", *store.problems]))
        return results

    def claim(
        self,
        id: str,
        values: claims.Numbers,
        seeds: list[int],
        unit: str,
        note: str = "",
        draws: claims.Numbers = (),
        incomparable: str = "",
        **rests: Any,
    ) -> claims.Finding:
        """Reports a claim of the ledger with one number a seed, or with one a seed for each of the comparisons that it
        says all of; ``draws``: their resamples, where those are its replicates; ``incomparable``: why these runs
        cannot be compared with the paper's, where they cannot; ``rests``: ``by_seed`` and ``by_form``, what an
        interval over resamples rests on. Of a part of the plan nothing is judged."""
        return claims.report(
            _entry(id),
            self.name,
            values,
            seeds,
            self.profile,
            self.outputs / "claims" / self.profile,
            unit,
            note,
            draws,
            self._stamp,
            self.part,
            incomparable,
            **rests,
        )

    def claim_of_published(
        self, id: str, values: claims.Numbers, draws: claims.Numbers | tuple[float, float], unit: str, note: str = ""
    ) -> claims.Finding:
        """Reports a claim of the ledger, marked ``published`` there, by what the paper's own runs say: at the paper's
        scale whatever the profile, in claims/published. At smoke nothing is judged, and what is there stays."""
        place = "smoke/published" if self.profile == "smoke" else "published"
        where = (place.partition("/")[0], self.outputs / "claims" / place)
        return claims.report_published(_entry(id), values, draws, *where, unit, note, self._stamp)


def _entry(id: str) -> claims.Claim:
    entry = claims.ledger(places.LEDGER).get(id)
    if entry is None:
        raise InputError(f"claim: {id!r} is not in params/claims.yaml, add it there or correct its spelling")
    return entry


def _harmless(cell: Any) -> Any:
    """A spreadsheet takes for a formula what begins so and is no number."""
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def _shown(figure: Figure, png: bytes) -> Image:
    """A figure as a notebook shows it. It is closed, or the end of the cell would show it once more."""
    pyplot.close(figure)
    return Image(png, width=round(figure.get_figwidth() * style.SCREEN_DPI), alt=style.described(figure))


def _range(values: Sequence[float]) -> float | str:
    """The value, or from the least to the most where they differ."""
    low, high = min(values), max(values)
    return low if low == high else f"{style.short(low)} to {style.short(high)}"


def start(kind: type[P], namespace: dict[str, Any]) -> Notebook[P]:
    """Finds a notebook's parameters: those of its profile, and over them what somebody gives (``parameters.given``).
    Prints what holds, puts all of them into ``namespace``, and goes to the workbook's root, so that a path means the
    same from make, papermill and JupyterLab."""
    before = [value for value in namespace.values() if isinstance(value, Notebook)]
    for one in before:
        one.filled.take_out(namespace)
    given = parameters.given(kind, namespace, not before, somebody_is_there())
    of_profile = parameters.of_kind(kind, given.get("profile", "desk"))
    checked, unchanged = kind(**{**of_profile, **given}), kind(**{**given, **of_profile})
    files.need_folder(places.ROOT / checked.outputs)
    print(parameters.told(checked, unchanged))
    passing = ["outputs", "jobs", "max_hours", "train"]
    changed = [
        name for name in parameters.changed(checked.model_dump(), unchanged.model_dump(), passing) if name in given
    ]
    note, cut_from = "", {}
    if isinstance(checked, Computing) and not checked.train:
        whole = checked.model_dump()
        checked, note = plans.there(checked)
        cut_from = parameters.changed(whole, checked.model_dump())
        if cut_from:
            print(f"{note} is there, drawn with", ", ".join(f"{name} {getattr(checked, name)}" for name in cut_from))
    filled = Filled.into(namespace, checked.model_dump())
    if not somebody_is_there():  # each state of a bar is a line of a log
        os.environ.setdefault("TQDM_MININTERVAL", "10")
    torch.set_num_threads(1)  # as make has it: for models as small as these a second thread waits and costs
    os.chdir(places.ROOT)
    style.use_style(checked.profile)
    return Notebook(
        kind.notebook,
        checked,
        places.ROOT / checked.outputs,
        part=note,
        cut_from=cut_from,
        changed=changed,
        filled=filled,
    )


# ---- sliders ---------------------------------------------------------------------------------------------------------


def somebody_is_there() -> bool:
    """Whether the cell that runs was sent by a front end that may be asked for input, as JupyterLab and VS Code may.

    Papermill and nbconvert say of every cell that nobody would answer; outside a kernel there is nobody."""
    kernel = getattr(get_ipython(), "kernel", None)
    return kernel is not None and bool(kernel.get_parent()["content"].get("allow_stdin"))


def sliders(draw: Callable[..., Figure], **parts: tuple[Any, ...]) -> ipywidgets.VBox:
    """Widgets: a slider for each argument of ``draw``, and the figure that it returns, drawn anew when one is moved.

    parts: name -> (where the slider begins, its least and greatest value, its step), of whole numbers or of floats. An
    InputError of ``draw`` is printed in the figure's place."""
    kinds = {int: ipywidgets.IntSlider, float: ipywidgets.FloatSlider}
    made = {
        name: kinds[type(step)](at, min=low, max=high, step=step, description=name, continuous_update=False)
        for name, (at, low, high, step) in parts.items()
    }

    def show(**values: Any) -> None:
        try:
            figure, png = draw(**values), io.BytesIO()
            figure.savefig(png, format="png")
            display(_shown(figure, png.getvalue()))
        except InputError as error:
            print(error)

    return ipywidgets.VBox([*made.values(), ipywidgets.interactive_output(show, made)])

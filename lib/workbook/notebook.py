"""What every notebook does: check its parameters, show the plan, run it, stamp figures and claims with provenance."""

import ast
import contextlib
import dataclasses
import difflib
import functools
import json
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import yaml
from matplotlib.figure import Figure

import lib
from lib.base import files
from lib.base.errors import InputError, one_line
from lib.base.provenance import provenance
from lib.config import Label, RunConfig
from lib.figures import style
from lib.flops import count
from lib.store.runs import RunStore
from lib.sweep import measurements, training
from lib.sweep.cluster import Cluster
from lib.sweep.finished import Runs
from lib.sweep.measurements import C, M
from lib.workbook import claims, widgets

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Image

#: the workbook: notebooks/, params/ and outputs/ lie here
ROOT = Path(lib.__file__).parent.parent
RECORDS = ROOT / "outputs" / "records"
PROFILES = ("smoke", "cpu", "gpu", "paper")
#: kind of output under which an executed copy keeps its provenance; no front end shows it
PROVENANCE = "application/vnd.looped-lm.provenance+json"
#: columns of a plan
PLAN = ("runs of", "runs", "missing", "shared with", "parameters", "FLOPs per token", "tokens per run", "FLOPs")


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook whose parameters have been checked, and where its results go."""

    name: str
    parameters: dict[str, Any]
    outputs: Path

    @property
    def profile(self) -> str:
        return self.parameters["profile"]

    @property
    def store(self) -> RunStore:
        """Runs of the workbook, and the committed records of this profile."""
        cluster = Cluster.of(os.environ)
        return RunStore(self.outputs / "runs", [RECORDS / self.profile], cluster.store if cluster else "")

    def need_positive(self, *names: str) -> None:
        """Raises InputError where one of these parameters, a number or a list of them, is below 1."""
        for name in names:
            value = self.parameters[name]
            if min(value if isinstance(value, list) else [value]) < 1:
                raise InputError(f"{name}: {value} is too small, use at least 1")

    def plan(self, configs: dict[Label, RunConfig]) -> "pd.DataFrame":
        """A table of what the runs cost, one row for each first part of their labels; nothing is trained.

        missing: runs that the store does not have; shared with: notebooks whose last plan asked for some of the same
        runs, and for how many. The configs go to outputs/plans/<profile>/<name>.json, for ``plans.read``. The time it
        would take on this device is measured by ``sweep``, which says it before it begins."""
        import pandas as pd

        missing = {cfg.key for cfg in configs.values() if self.store.find(cfg) is None}
        with self._noting() as planned:
            planned["runs"] = {cfg.key: cfg.model_dump(mode="json") for cfg in configs.values()}
        others = self._plans_of_others()
        rows = []
        for group in dict.fromkeys(label[0] for label in configs):
            runs = list({cfg.key: cfg for label, cfg in configs.items() if label[0] == group}.values())
            counts = [count(cfg.model, cfg.data.context) for cfg in runs]
            rows.append({
                "runs of": group,
                "runs": len(runs),
                "missing": sum(cfg.key in missing for cfg in runs),
                "shared with": ", ".join(
                    f"{name} ({n})" for name, keys in others.items() if (n := sum(cfg.key in keys for cfg in runs))
                ),
                "parameters": _range([c.n_params for c in counts]),
                "FLOPs per token": _range([c.flops_per_token for c in counts]),
                "tokens per run": _range([cfg.tokens for cfg in runs]),
                "FLOPs": sum(c.flops_per_token * cfg.tokens for c, cfg in zip(counts, runs, strict=True)),
            })  # fmt: skip
        return pd.DataFrame(rows, columns=PLAN).set_index("runs of")

    def _plans_of_others(self) -> dict[str, set[str]]:
        """Notebook -> keys of the runs it planned last."""
        paths = sorted(self._plan_path.parent.glob("*.json"))
        return {path.stem: set(read_plan(path).get("runs", {})) for path in paths if path.stem != self.name}

    @property
    def _plan_path(self) -> Path:
        return self.outputs / "plans" / self.profile / f"{self.name}.json"

    @contextlib.contextmanager
    def _noting(self) -> Iterator[dict[str, Any]]:
        """What is noted of the plan, to be changed by one process at a time."""
        with files.lock(self._plan_path.parent / ".lock"):
            planned = read_plan(self._plan_path)
            yield planned
            files.write_checked(self._plan_path, planned)

    def _note_measurements(self, function: measurements.Function[C], cases: Iterable[C]) -> None:
        """Adds them to those asked for before: some are known only when the runs are there."""
        with self._noting() as planned:
            asked = planned.setdefault("measurements", {}).setdefault(measurements.name(function), {})
            asked |= {measurements.key(case): case.flops for case in cases}

    def sweep(self, configs: list[RunConfig]) -> Runs:
        """Trains what is missing, with the notebook's ``jobs`` and ``max_hours``, on Ray where make said so."""
        from IPython.display import clear_output

        jobs, max_hours = self.parameters["jobs"] or None, self.parameters["max_hours"]
        runs = training.sweep(configs, self.store, jobs, max_hours, Cluster.of(os.environ))
        clear_output(wait=True)  # the bar is for watching; the executed notebook keeps one line
        diverged = sum(result.status == "diverged" for result in runs.results)
        minutes = sum(result.summary["seconds"] for result in runs.results) / 60
        print(
            f"{len(runs.results)} runs, {diverged} of them ended as diverged; {minutes:.1f} minutes of training in all"
        )
        return runs

    def save(self, figure: Figure, name: str) -> None:
        """Writes a figure as PNG and PDF with its provenance inside and a JSON beside it, and shows it."""
        from IPython.display import display

        display(self._saved(figure, name))

    def slide(self, draw: Callable[..., Figure], name: str, **sliders: tuple[Any, ...]) -> None:
        """``save`` of what ``draw`` returns with every slider where it begins; in JupyterLab, where somebody can move
        them, the figure is shown below its sliders (``playground.sliders``)."""
        from IPython.display import display

        picture = self._saved(draw(**{slider: at for slider, (at, *_) in sliders.items()}), name)
        display(widgets.sliders(draw, **sliders) if widgets.somebody_is_there() else picture)

    def _saved(self, figure: Figure, name: str) -> "Image":
        """The picture of a figure that has been written."""
        from IPython.display import Image
        from matplotlib import pyplot

        png = style.save(figure, self.outputs / "figures" / self.profile / name, self._stamp)
        pyplot.close(figure)  # or the end of the cell would show it once more
        width = round(figure.get_figwidth() * style.SCREEN_DPI)
        return Image(filename=png, width=width, alt=f"Figure {name}")

    def verdicts(self, findings: list[claims.Finding]) -> "pd.DataFrame":
        """A table of what was measured and the verdicts."""
        import pandas as pd

        columns = ["verdict", "mean", "low", "high", "unit"]
        return pd.DataFrame([dataclasses.asdict(finding) for finding in findings]).set_index("id")[columns]

    def save_table(self, table: "pd.DataFrame", name: str, digits: int = 4) -> "pd.DataFrame":
        """Writes a data frame as CSV with its provenance in a JSON beside it, for the report; returns the frame."""
        path = self.outputs / "tables" / self.profile / f"{name}.csv"
        with files.replacing_together(path, path.with_suffix(".json")) as (draft, note):
            table.to_csv(draft, float_format=f"%.{digits}g")
            note.write_text(json.dumps(self._stamp, indent=1) + "\n")
        return table

    @functools.cached_property
    def _stamp(self) -> dict[str, Any]:
        return {"notebook": self.name, "profile": self.profile, "parameters": self.parameters, **provenance()}

    def plan_measurements(self, cases: dict[Label, M], function: measurements.Function[M]) -> "pd.DataFrame":
        """``plan`` for what ``measure`` would make: a table with one row for each first part of the labels."""
        import pandas as pd

        self._note_measurements(function, cases.values())
        rows = []
        for group in dict.fromkeys(label[0] for label in cases):
            some = list({measurements.key(case): case for label, case in cases.items() if label[0] == group}.values())
            rows.append({
                "measurements of": group, "runs": len(some),
                "missing": sum(measurements.found(function, case, self.store) is None for case in some),
                "parameters": _range([count(case.model).n_params for case in some]),
                "FLOPs": sum(case.flops for case in some),
            })  # fmt: skip
        return pd.DataFrame(rows).set_index("measurements of")

    def measure(self, function: measurements.Function[C], cases: list[C]) -> list[dict[str, Any]]:
        """``measure.measure`` with the notebook's store, ``jobs`` and ``max_hours``."""
        from IPython.display import clear_output

        self._note_measurements(function, cases)
        jobs, max_hours = self.parameters["jobs"] or None, self.parameters["max_hours"]
        results = measurements.measure(function, cases, self.store, jobs, max_hours)
        clear_output(wait=True)
        print(f"{len(cases)} measurements")
        return results

    def claim(
        self, id: str, values: list[float], seeds: list[int], unit: str, note: str = "",
        bounds: tuple[float, float] | None = None, per: str = "seed",
    ) -> claims.Finding:  # fmt: skip
        """Reports a claim of the ledger with one number a seed, or for each of what ``per`` names; ``bounds`` where the
        interval comes from elsewhere."""
        entry = claims.ledger(ROOT / "params" / "claims.yaml").get(id)
        if entry is None:
            raise InputError(f"claim: {id!r} is not in params/claims.yaml, add it there or correct its spelling")
        folder = self.outputs / "claims" / self.profile
        where = (self.profile, folder)
        return claims.report(entry, self.name, values, seeds, *where, unit, note, bounds, per, self._stamp)


def read_plan(path: Path) -> dict[str, Any]:
    """What a notebook noted of its plan: ``runs``, key -> config; ``measurements``, function -> key of a case -> FLOPs.
    {} where there is none; one that is damaged is set aside, and its notebook writes it anew."""
    try:
        return files.read_checked(path) if path.exists() else {}
    except ValueError as error:
        aside = files.set_aside(path)
        print(f"the plan {path} cannot be read ({error}): set aside as {aside.name}, its notebook writes it anew")
        return {}


def _range(values: Sequence[float]) -> float | str:
    """The value, or from the least to the most where they differ."""
    low, high = min(values), max(values)
    return low if low == high else f"{style.short(low)} to {style.short(high)}"


def start(name: str, namespace: dict[str, Any]) -> Notebook:
    """Checks a notebook's parameters, whoever set them, and puts their coerced values back into ``namespace``.

    The notebook's parameters cell annotates each with its type; their names are those of params/cpu/<name>.yaml. Values
    that papermill or YAML passed as text ('[1, 2]', '3e-4') are read as what the annotation asks for. Raises
    InputError, one line, for an unknown name or a value of the wrong type.
    """
    known = list(read_parameters("cpu", name))
    for given in _assigned(namespace):
        if given not in known:
            close = difflib.get_close_matches(given, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
            raise InputError(f"{given}: is not a parameter of {name}, {hint}")
    missing = [parameter for parameter in known if parameter not in namespace]
    if missing:
        raise InputError(f"{missing[0]}: is not set, give it a value in the parameters cell")
    types = namespace["__annotations__"]
    read = {parameter: _read(namespace[parameter], types[parameter]) for parameter in known}
    for parameter, value in read.items():
        _check_kind(parameter, value, types[parameter])
    finite = pydantic.ConfigDict(allow_inf_nan=False)
    fields: dict[str, Any] = {parameter: (types[parameter], ...) for parameter in known}
    schema = pydantic.create_model(name, __config__=finite, **fields)
    try:
        parameters = schema(**read).model_dump()
    except pydantic.ValidationError as error:
        raise InputError(one_line(error)) from None
    if parameters["profile"] not in PROFILES:
        raise InputError(f"profile: {parameters['profile']!r} is not known, use one of {', '.join(PROFILES)}")
    for parameter, value in parameters.items():
        lists = [value, *value.values()] if isinstance(value, dict) else [value]
        if any(isinstance(x, list | dict) and (not x or len({*x}) < len(x)) for x in lists):
            raise InputError(f"{parameter}: {value} is empty or names something twice, list each once")
    _check_folder(parameters["outputs"])
    namespace.update(parameters)
    os.chdir(ROOT)  # so that a path means the same from make, papermill and JupyterLab
    style.use_style(parameters["profile"])
    if "In" in namespace:  # in a kernel
        from IPython.display import display

        display({PROVENANCE: provenance()}, raw=True)  # for lib/workbook/again.py
    return Notebook(name, parameters, ROOT / parameters["outputs"])


def _check_folder(outputs: str) -> None:
    """Raises InputError where results could not be written."""
    folder = ROOT / outputs
    try:
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
    except OSError as error:
        raise InputError(f"outputs: {outputs:.80} is no path ({error.strerror}), give a folder") from None
    if not outputs.strip() or not nearest.is_dir():
        raise InputError(f"outputs: {outputs!r} is no folder and in none, give one, it is made where it is missing")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"outputs: {nearest} may not be written to, give another folder")


def read_parameters(profile: str, name: str) -> dict[str, Any]:
    """params/<profile>/<name>.yaml."""
    path = ROOT / "params" / profile / f"{name}.yaml"
    if not path.exists():
        raise InputError(f"profile: {path.relative_to(ROOT)} does not exist, use one of {', '.join(PROFILES)}")
    try:
        parameters = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"profile: {path} is not YAML ({' '.join(str(error).split())}), mend it") from None
    if not isinstance(parameters, dict):
        raise InputError(f"profile: {path} is no list of names and values, write 'name: value' on each line")
    return parameters


def _read(value: Any, kind: Any) -> Any:
    """Text becomes the list, dict or number it spells, unless text is what is wanted."""
    wants_text = kind is str or (str in typing.get_args(kind) and typing.get_origin(kind) not in (list, dict))
    if not isinstance(value, str) or wants_text:
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


def _check_kind(parameter: str, value: Any, kind: Any) -> None:
    """Refuses what pydantic would take for a number, or would not explain: -p makes a number of all that looks like
    one."""
    if kind is not bool and any(isinstance(leaf, bool) for leaf in _leaves(value)):
        wanted = kind.__name__ if isinstance(kind, type) else kind
        raise InputError(f"{parameter}: takes no true or false (got {value!r}), give it as {wanted}")
    if kind is str and isinstance(value, int | float):
        raise InputError(f"{parameter}: input should be text (got {value!r}), papermill's -r leaves what looks like a "
                         "number as it is, as quotes do in a file")  # fmt: skip


def _leaves(value: Any) -> list[Any]:
    """What a value holds that is neither list nor dict, keys too."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]


_cells_seen = 0


def _assigned(namespace: dict[str, Any]) -> list[str]:
    """Names assigned since the last check by parameter cells, which begin with '# Parameters', as papermill's do."""
    global _cells_seen
    if "In" not in namespace:  # cells that run outside a kernel
        return []
    history = namespace["In"]
    cells = [cell for cell in history[_cells_seen:] if cell.lstrip().lower().startswith("# parameters")]
    _cells_seen = len(history)
    names = []
    for cell in cells:
        for node in ast.parse(cell).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names

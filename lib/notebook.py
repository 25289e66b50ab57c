"""What every notebook does: check its parameters, show the plan, run it, stamp figures and claims with provenance."""

import ast
import dataclasses
import difflib
import json
import os
import typing
from pathlib import Path

import pydantic
import yaml

import lib
from lib import claims, files, measure, plots, sweep
from lib.cluster import Cluster
from lib.config import Config, RunConfig
from lib.errors import InputError, one_line
from lib.flops import count
from lib.store import RunStore
from lib.train import provenance

#: the workbook: notebooks/, params/ and outputs/ lie here
ROOT = Path(lib.__file__).parent.parent
PROFILES = ("smoke", "cpu", "gpu", "paper")
#: columns of a plan
PLAN = ("runs of", "runs", "missing", "shared with", "parameters", "FLOPs per token", "tokens per run", "FLOPs")


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook whose parameters have been checked, and where its results go."""

    name: str
    parameters: dict
    outputs: Path

    @property
    def profile(self) -> str:
        return self.parameters["profile"]

    @property
    def store(self) -> RunStore:
        """Runs of the workbook, and the committed records of this profile."""
        cluster = Cluster.of(os.environ)
        records = [ROOT / "outputs" / "records" / self.profile]
        return RunStore(self.outputs / "runs", records, cluster.store if cluster else "")

    def need_positive(self, *names: str) -> None:
        """Raises InputError where one of these parameters, a number or a list of them, is below 1."""
        for name in names:
            value = self.parameters[name]
            if min(value if isinstance(value, list) else [value]) < 1:
                raise InputError(f"{name}: {value} is too small, use at least 1")

    def plan(self, configs: dict[tuple, RunConfig]):
        """A table of what the runs cost, one row for each first part of their labels; nothing is trained.

        missing: runs that the store does not have; shared with: notebooks whose last plan asked for some of the same
        runs, and for how many. The configs go to outputs/plans/<profile>/<name>.json, for ``plans.read``. The time it
        would take on this device is measured by ``sweep``, which says it before it begins."""
        import pandas as pd

        missing = {cfg.key for cfg in configs.values() if self.store.find(cfg) is None}
        self._note_plan(runs={cfg.key: cfg.model_dump(mode="json") for cfg in configs.values()})
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
        plans = {path.stem: json.loads(path.read_text()) for path in paths if path.stem != self.name}
        # a plan of the earlier layout is a list of keys
        return {name: set(plan if isinstance(plan, list) else plan.get("runs", {})) for name, plan in plans.items()}

    @property
    def _plan_path(self) -> Path:
        return self.outputs / "plans" / self.profile / f"{self.name}.json"

    def _planned(self) -> dict:
        """What this notebook has noted of its plan: ``runs``, key -> config; ``measurements``, function -> key of a
        case -> FLOPs."""
        found = json.loads(self._plan_path.read_text()) if self._plan_path.exists() else {}
        return found if isinstance(found, dict) else {}

    def _note_plan(self, **parts: dict) -> None:
        files.write_json(self._plan_path, {**self._planned(), **parts})

    def _note_measurements(self, function, cases) -> None:
        """Adds them to those asked for before: some are known only when the runs are there."""
        known = self._planned().get("measurements", {})
        name = measure.name(function)
        asked = known.get(name, {}) | {measure.key(case): case.flops for case in cases}
        self._note_plan(measurements={**known, name: asked})

    def sweep(self, configs: list[RunConfig]) -> sweep.Runs:
        """Trains what is missing, with the notebook's ``jobs`` and ``max_hours``, on Ray where make said so."""
        from IPython.display import clear_output

        jobs, max_hours = self.parameters["jobs"] or None, self.parameters["max_hours"]
        runs = sweep.sweep(configs, self.store, jobs, max_hours, Cluster.of(os.environ))
        clear_output(wait=True)  # the bar is for watching; the executed notebook keeps one line
        diverged = sum(result.status == "diverged" for result in runs.results)
        minutes = sum(result.summary["seconds"] for result in runs.results) / 60
        print(
            f"{len(runs.results)} runs, {diverged} of them ended as diverged; {minutes:.1f} minutes of training in all"
        )
        return runs

    def save(self, figure, name: str) -> None:
        """Writes a figure as PNG and PDF with its provenance inside and a JSON beside it, and shows it."""
        from IPython.display import Image, display
        from matplotlib import pyplot

        png = plots.save(figure, self.outputs / "figures" / self.profile / name, self._stamp())
        pyplot.close(figure)  # or the end of the cell would show it once more
        display(Image(filename=png, width=round(figure.get_figwidth() * plots.SCREEN_DPI)))

    def verdicts(self, findings: list[claims.Finding]):
        """A table of what was measured and the verdicts."""
        import pandas as pd

        columns = ["verdict", "mean", "low", "high", "unit"]
        return pd.DataFrame([dataclasses.asdict(finding) for finding in findings]).set_index("id")[columns]

    def save_table(self, table, name: str, digits: int = 4):
        """Writes a data frame as CSV with its provenance in a JSON beside it, for the report; returns the frame."""
        path = self.outputs / "tables" / self.profile / f"{name}.csv"
        files.write_json(path.with_suffix(".json"), self._stamp())
        with files.replacing(path) as draft:
            table.to_csv(draft, float_format=f"%.{digits}g")
        return table

    def _stamp(self) -> dict:
        return {"notebook": self.name, "profile": self.profile, "parameters": self.parameters, **provenance()}

    def plan_measurements(self, cases: dict[tuple, Config], function):
        """``plan`` for what ``measure`` would make: a table with one row for each first part of the labels."""
        import pandas as pd

        self._note_measurements(function, cases.values())
        rows = []
        for group in dict.fromkeys(label[0] for label in cases):
            some = list({measure.key(case): case for label, case in cases.items() if label[0] == group}.values())
            rows.append({
                "measurements of": group, "runs": len(some),
                "missing": sum(measure.found(function, case, self.store) is None for case in some),
                "parameters": _range([count(case.model).n_params for case in some]),
                "FLOPs": sum(case.flops for case in some),
            })  # fmt: skip
        return pd.DataFrame(rows).set_index("measurements of")

    def measure(self, function, cases: list) -> list[dict]:
        """``measure.measure`` with the notebook's store, ``jobs`` and ``max_hours``."""
        from IPython.display import clear_output

        self._note_measurements(function, cases)
        jobs, max_hours = self.parameters["jobs"] or None, self.parameters["max_hours"]
        results = measure.measure(function, cases, self.store, jobs, max_hours)
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
        return claims.report(entry, self.name, values, seeds, self.profile, folder, unit, note, bounds, per)


def _range(values: list[float]):
    """The value, or from the least to the most where they differ."""
    low, high = min(values), max(values)
    return low if low == high else f"{plots.short(low)} to {plots.short(high)}"


def start(name: str, namespace: dict) -> Notebook:
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
    schema = pydantic.create_model(name, **{parameter: (types[parameter], ...) for parameter in known})
    given = {parameter: _read(namespace[parameter], types[parameter]) for parameter in known}
    try:
        parameters = schema(**given).model_dump()
    except pydantic.ValidationError as error:
        raise InputError(one_line(error)) from None
    if parameters["profile"] not in PROFILES:
        raise InputError(f"profile: {parameters['profile']!r} is not known, use one of {', '.join(PROFILES)}")
    for parameter, value in parameters.items():
        if isinstance(value, list) and (not value or len(set(value)) < len(value)):
            raise InputError(f"{parameter}: {value} is empty or names something twice, list each once")
    namespace.update(parameters)
    os.chdir(ROOT)  # so that a path means the same from make, papermill and JupyterLab
    plots.use_style(parameters["profile"])
    return Notebook(name, parameters, ROOT / parameters["outputs"])


def read_parameters(profile: str, name: str) -> dict:
    """params/<profile>/<name>.yaml."""
    path = ROOT / "params" / profile / f"{name}.yaml"
    if not path.exists():
        raise InputError(f"profile: {path.relative_to(ROOT)} does not exist, use one of {', '.join(PROFILES)}")
    return yaml.safe_load(path.read_text())


def _read(value, kind):
    """Text becomes the list, dict or number it spells, unless text is what is wanted."""
    wants_text = kind is str or (str in typing.get_args(kind) and typing.get_origin(kind) not in (list, dict))
    if not isinstance(value, str) or wants_text:
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


_cells_seen = 0


def _assigned(namespace: dict) -> list[str]:
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

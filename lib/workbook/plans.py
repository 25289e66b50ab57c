"""The runs that a notebook asks for, found out by its own cells up to the one tagged ``plan``; nothing is trained. And
how much of them is there, and what of it can be drawn, for notebooks that train nothing."""

import contextlib
import dataclasses
import functools
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import nbformat

from lib.base import files
from lib.base.errors import InputError, NotThere
from lib.base.parameters import Computing
from lib.base.processes import processes
from lib.config import Label, RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.sweep.jobs import spell
from lib.sweep.measurements import Asked
from lib.sweep.training import hours
from lib.workbook import parameters, places

#: paper -> its notebooks, in the order in which papers are counted: what two ask for is counted with the first
NOTEBOOKS = {
    paper: names.split()
    for paper, names in {
        "000": "isodepth_isoflop recurrence_exponent phi_probes injection_ablation lr_transfer_hyperp extrapolation "
        "downstream_axes published_runs",
        "001": "instability stability_ablation depth_sampling backprop_depth end_to_end looping_isoflop "
        "test_time_saturation unified_law tokenizer_compression",
        "002": "residual_scaling_init loop_lr_transfer residual_scaling_trained residual_scaling_beyond",
        "003": "usage_weighted",
        "004": "mup_transfer moe_isoflop routing_divergence convergence early_exit early_exit_wallclock generate "
        "downstream_core",
        "007": "fast_generation",
        "beyond": "start_here law_form delta_phi_league depth_tasks other_groups published_models",
    }.items()
}

P = TypeVar("P", bound=Computing)


@dataclasses.dataclass
class Plan:
    """Distinct runs in the notebook's order, and what it calls them; what it measures: function -> key of a case -> its
    FLOPs, also of what was known only when it ran. ``asked``: what it plans to measure from the first, and may measure
    of runs that have finished, ready to be measured; ``opened``: keys of runs whose weights it opens; ``parts``:
    changes to its parameters with which it can be drawn in part; ``seeds``: its lists of seeds."""

    runs: list[RunConfig] = dataclasses.field(default_factory=list)
    measurements: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    asked: list[Asked] = dataclasses.field(default_factory=list, compare=False)
    opened: set[str] = dataclasses.field(default_factory=set, compare=False)
    parts: list[dict[str, Any]] = dataclasses.field(default_factory=list, compare=False)
    seeds: list[list[int]] = dataclasses.field(default_factory=list, compare=False)
    labels: dict[Label, RunConfig] = dataclasses.field(default_factory=dict, compare=False)


def names(profile: str = "") -> list[str]:
    """All notebooks, or those that have parameters at a profile: all of them but at an addendum and a second text."""
    there = {path.stem for path in (places.PARAMS / profile).glob("*.yaml")} if profile else None
    return sorted(path.stem for path in places.NOTEBOOKS.glob("*.ipynb") if there is None or path.stem in there)


def plan(name: str, profile: str, **changes: Any) -> Plan:
    """What a notebook asks for with its parameters at a profile, some of them changed: all of it, also where the
    notebook itself shall only draw what is there.

    Executes its code cells up to the one tagged ``plan``, in this process. They write their plan into the parameter
    ``outputs``, or into a folder that is removed again where ``changes`` do not name one. Texts are read only
    where the parameters do not name their content. Raises InputError for an unknown notebook, profile or parameter, and
    what the cells raise."""
    if name not in names():
        raise InputError(f"name: there is no notebook {name!r}, use one of {', '.join(names())}")
    given = parameters.of_kind(parameters.kind_of(name), profile)
    parameters.check_names(name, changes, given)
    with (
        tempfile.TemporaryDirectory() as forgotten,
        contextlib.chdir(os.getcwd()),  # where it is again after the block, with the look of figures that it had
        mpl.rc_context(),
    ):
        values = {"profile": profile, "outputs": forgotten, **changes, **({"train": True} if "train" in given else {})}
        # notebook.start resolves it from the workbook's root, wherever this process is
        written = places.ROOT / values["outputs"] / "plans" / str(values["profile"]) / f"{name}.json"
        cells = _execute(name, values).values()
        nb: Any = next(value for value in cells if isinstance(getattr(value, "planned", None), Plan))
        plan: Plan = nb.planned
        plan.measurements = read_plan(written).get("measurements", {})
        if isinstance(nb.parameters, Computing):
            plan.parts, plan.seeds = nb.parameters.parts(), [*nb.parameters.seed_lists().values()]
        return plan


@functools.cache
def planned(profile: str) -> list[tuple[str, str, Plan]]:
    """(paper, notebook, its plan) of every notebook that has parameters at a profile. Takes half a minute."""
    there = names(profile)
    return [(paper, name, plan(name, profile)) for paper, some in NOTEBOOKS.items() for name in some if name in there]


def _execute(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The namespace of the cells up to the plan, which are executed in it; what they print is dropped. ``values`` are
    injected as papermill does it."""
    namespace: dict[str, Any] = {"In": ["\n".join(["# Parameters", *(f"{name} = ..." for name in values)])]}
    for cell in nbformat.read(places.NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", [])
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(cell.source, f"{name}.ipynb", "exec"), namespace)  # noqa: S102  # the notebook's own
        if "parameters" in tags:
            namespace.update(values)
        if "plan" in tags:
            return namespace
    raise InputError(f"name: notebook {name!r} has no cell tagged plan, tag the one that calls nb.plan")


def read_plan(path: Path) -> dict[str, Any]:
    """What a notebook noted of its plan: ``runs``, key -> config; ``measurements``, function -> key of a case -> FLOPs;
    ``part``, how much of the plan is there where it drew no more. {} where there is none; one that is damaged is set
    aside, and its notebook writes it anew."""
    try:
        return files.read_checked(path) if path.exists() else {}
    except ValueError as error:
        print(
            f"the plan {path} cannot be read ({error}): set aside as {files.set_aside(path).name}, its notebook writes "
            "it anew"
        )
        return {}


# ---- how much of a plan is there -------------------------------------------------------------------------------------


def there(p: P) -> tuple[P, str]:
    """The parameters with those training seeds alone of which every planned run is there, and what figures say of it:
    nothing where all are. Where no seed is whole, the largest part (``Computing.in_part``) of which one is. Raises
    NotThere where there is none."""
    runs, store = _runs(p), RunStore(places.ROOT / p.outputs / "runs", places.records(p.profile))
    missing = sorted((cfg for cfg in runs if store.find(cfg) is None), key=run_flops, reverse=True)
    if not missing:
        return p, ""
    share = 1 - sum(map(run_flops, missing)) / sum(map(run_flops, runs))
    for part, of_part in _parts(p, runs):
        drawn = _whole(part, of_part, store)
        if drawn is not None:
            return drawn, f"{100 * share:.0f} % of its plan"
    needed = spell(hours(missing, min(processes(p.jobs), len(missing))))
    smaller = "" if p.profile == "cpu" else ", or -p profile cpu for a plan of minutes"
    raise NotThere(
        f"train: {len(missing)} of {len(runs)} runs with these parameters are not there, and no seed is whole; "
        f"-p train true makes them, which needs about {needed} here{smaller}"
    )


def _runs(p: Computing) -> list[RunConfig]:
    return plan(p.notebook, p.profile, **p.model_dump(exclude={"outputs", "profile"})).runs


def _parts(p: P, runs: list[RunConfig]) -> Iterator[tuple[P, list[RunConfig]]]:
    """The parameters and their runs, and then those of ever smaller parts."""
    yield p, runs
    for changes in reversed(p.parts()):
        with contextlib.suppress(InputError):  # there are too few values in it
            part = p.replace(**changes)
            yield part, _runs(part)


def _whole(p: P, runs: list[RunConfig], store: RunStore) -> P | None:
    """The parameters with the training seeds of which no run is missing; None where some list of seeds keeps no
    whole seed."""
    trained = {cfg.train.seed for cfg in runs}
    whole = trained - {cfg.train.seed for cfg in runs if store.find(cfg) is None}
    if whole == trained:
        return p
    changes: dict[str, Any] = {
        name: [seed for seed in seeds if seed in whole] for name, seeds in p.seed_lists().items() if {*seeds} <= trained
    }
    fewer = {at: [seed for seed in seeds if seed in whole] for at, seeds in getattr(p, "seeds_at", {}).items()}
    if not changes or not all([*changes.values(), *fewer.values()]):
        return None
    return p.replace(**changes, **({"seeds_at": fewer} if fewer else {}))

"""How much of a notebook's plan is there, and what of it can be drawn: for notebooks that train nothing."""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from lib.base.errors import InputError, NotThere
from lib.base.parameters import Computing
from lib.base.processes import processes
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.sweep import cost
from lib.sweep.jobs import spell
from lib.workbook import places, plans

P = TypeVar("P", bound=Computing)


def there(p: P) -> tuple[P, str]:
    """The parameters with those training seeds alone of which every planned run is there, and what figures say of it:
    nothing where all are. Where no seed is whole, the largest part (``Computing.in_part``) of which one is. Raises
    NotThere where there is none."""
    plan = _plan(p)
    store = RunStore(places.ROOT / p.outputs / "runs", places.records(p.profile))
    missing = {cfg.key for cfg in plan.runs if store.find(cfg) is None}
    if not missing:
        return p, ""
    share = 1 - sum(run_flops(cfg) for cfg in plan.runs if cfg.key in missing) / sum(map(run_flops, plan.runs))
    for part, runs in _parts(p, plan.runs):
        drawn = _whole(part, runs, {cfg.key for cfg in runs if store.find(cfg) is None})
        if drawn is not None:
            return drawn, f"{100 * share:.0f} % of its plan"
    raise NotThere(_ways(p, [cfg for cfg in plan.runs if cfg.key in missing], len(plan.runs)))


def _ways(p: Computing, missing: list[RunConfig], planned: int) -> str:
    """How somebody goes on from there."""
    missing = sorted(missing, key=run_flops, reverse=True)
    needed = spell(cost.hours(missing, min(processes(p.jobs or None), len(missing))))
    smaller = "" if p.profile == "cpu" else ", or -p profile cpu for a plan of minutes"
    return (
        f"train: {len(missing)} of {planned} runs with these parameters are not there, and no seed is whole; "
        f"-p train true makes them, which needs about {needed} here{smaller}"
    )


def _plan(p: Computing) -> plans.Plan:
    return plans.plan(p.notebook, p.profile, **p.model_dump(exclude={"outputs", "profile"}))


def _parts(p: P, runs: list[RunConfig]) -> Iterator[tuple[P, list[RunConfig]]]:
    """The parameters and their runs, and then those of ever smaller parts."""
    yield p, runs
    for changes in reversed(p.parts()):
        with contextlib.suppress(InputError):  # there are too few values in it
            part = p.replace(**changes)
            yield part, _plan(part).runs


def _whole(p: P, runs: list[RunConfig], missing: set[str]) -> P | None:
    """The parameters with the training seeds of which no run is missing; None where some list of seeds keeps no
    whole seed."""
    trained = {cfg.train.seed for cfg in runs}
    whole = trained - {cfg.train.seed for cfg in runs if cfg.key in missing}
    if whole == trained:
        return p
    changes: dict[str, Any] = {
        name: [seed for seed in seeds if seed in whole] for name, seeds in p.seed_lists().items() if {*seeds} <= trained
    }
    fewer = {at: [seed for seed in seeds if seed in whole] for at, seeds in getattr(p, "seeds_at", {}).items()}
    if not changes or not all([*changes.values(), *fewer.values()]):
        return None
    return p.replace(**changes, **({"seeds_at": fewer} if fewer else {}))

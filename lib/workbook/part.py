"""How much of a notebook's plan is there, and which of its seeds can be drawn: for notebooks that train nothing."""

from typing import Any, TypeVar

from lib.base.errors import NotThere
from lib.base.parameters import Computing
from lib.store.runs import RunStore
from lib.sweep.cost import run_flops
from lib.workbook import places, plans

P = TypeVar("P", bound=Computing)


def there(p: P) -> tuple[P, str]:
    """The parameters with those training seeds alone of which every planned run is there, and what figures say of it:
    nothing where all are. Raises NotThere where no seed is whole."""
    plan = plans.plan(p.notebook, p.profile, **p.model_dump(exclude={"outputs", "profile"}))
    store = RunStore(places.ROOT / p.outputs / "runs", [places.RECORDS / p.profile])
    missing = {cfg.key for cfg in plan.runs if store.find(cfg) is None}
    if not missing:
        return p, ""
    share = 1 - sum(run_flops(cfg) for cfg in plan.runs if cfg.key in missing) / sum(map(run_flops, plan.runs))
    trained = {cfg.train.seed for cfg in plan.runs}
    whole = trained - {cfg.train.seed for cfg in plan.runs if cfg.key in missing}
    kept, changes = 0, dict[str, Any]()
    for name, seeds in p.model_dump().items():
        if (name == "seeds" or name.endswith("_seeds")) and {*seeds} <= trained:
            changes[name] = [seed for seed in seeds if seed in whole]
            kept += len(changes[name])
            if not changes[name]:
                raise NotThere(
                    f"train: {100 * share:.0f} % of the plan is there, and none of {name} is whole; "
                    "set it to true to train the rest here, or draw when more is there"
                )
        elif name == "seeds_at":
            changes[name] = {at: some for at, own in seeds.items() if (some := [seed for seed in own if seed in whole])}
    if not kept:
        raise NotThere(f"train: {len(missing)} runs of the plan are missing, set it to true to train them here")
    return p.replace(**changes), f"{100 * share:.0f} % of its plan"

"""The four models are matched as they say, every one is asked what its text has and more, and contrasts are by hand."""

import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.config import RunConfig
from lib.flops import count
from lib.papers.parcae import depth_tasks
from lib.papers.parcae.depth_tasks import DEEP, LOOPED, PLAIN, SAMPLED
from lib.papers.parcae.parameters import DepthTasks
from lib.store.runs import RunStore
from lib.sweep.measurements import measure
from lib.tasks.evaluations import evaluate
from lib.train.loop import train
from tests.given import given

P = given(
    DepthTasks, families=["swaps", "hops"], seeds=[1, 2], width=32, head_dim=16, mean_loops=4, depths=[1, 4, 8],
    limit=5, batch=4, steps=6, max_bytes=100_000, val_rows=8,
)  # fmt: skip


def test_the_looped_models_have_plains_parameters_and_the_deep_ones_flops():
    models = depth_tasks.models(P)
    counts = {name: count(cfg) for name, cfg in models.items()}
    added = {name: counts[name].n_params / counts[PLAIN].n_params for name in (LOOPED, SAMPLED)}
    assert all(1 < share < 1.06 for share in added.values())  # the injection and the readout
    ours, deep = (counts[name].flops_per_token_forward for name in (LOOPED, DEEP))
    assert ours == pytest.approx(deep, rel=0.1)
    assert (models[LOOPED].depth, models[SAMPLED].depth) == ("fixed", "poisson")
    assert models[LOOPED].max_backprop_loops is None and models[SAMPLED].max_backprop_loops == 2
    assert models[DEEP].prelude == 6 and models[PLAIN].prelude == 3


def test_every_family_has_its_text_and_a_run_of_every_model_and_seed():
    configs = depth_tasks.runs(P)
    assert len(configs) == len({cfg.key for cfg in configs.values()}) == 4 * 2 * 2
    assert {(family, cfg.data.source) for (_, family, _), cfg in configs.items()} == {
        ("swaps", "generated:swaps"),
        ("hops", "generated:hops"),
    }


def test_a_trained_run_is_asked_all_its_steps_at_every_depth(tmp_path):
    store = RunStore(tmp_path / "runs")
    configs: dict[tuple[str, str, int], RunConfig] = {
        label: cfg
        for label, cfg in depth_tasks.runs(P).items()
        if label in {(PLAIN, "swaps", 1), (SAMPLED, "swaps", 1)}
    }
    found = {cfg.key: train(cfg, store) for cfg in configs.values()}
    cases = depth_tasks.questions(P, configs, store, found)
    assert {case.flops for case in cases} and cases == depth_tasks.questions(P, configs, store)
    table = depth_tasks.answers(cases, measure(evaluate, cases, store, 1), configs)
    assert table.groupby("model")["T"].unique().map(list).to_dict() == {PLAIN: [1], SAMPLED: [1, 4, 8]}
    assert table.groupby("steps")["trained"].all().to_dict() == {
        2: True,
        4: True,
        6: True,
        8: True,
        10: False,
        12: False,
    }
    assert table["accuracy"].between(0, 100).all() and table["loss"].gt(0).all()
    assert len(depth_tasks.as_trained(table, P.mean_loops)) == 2 * 6


def test_contrasts_are_of_means_over_steps_seed_by_seed():
    rows = [
        {"model": model, "family": "hops", "seed": seed, "steps": steps, "trained": True, "T": T,
         "accuracy": base + 10 * seed + steps + (T > 4) * 3}
        for model, base, depths in ((PLAIN, 0, [1]), (DEEP, 30, [1]), (LOOPED, 20, [4, 8]), (SAMPLED, 10, [4, 8]))
        for seed in (1, 2) for steps in (1, 2) for T in depths
    ]  # fmt: skip
    found = depth_tasks.contrasts(pd.DataFrame(rows), P)
    assert found.loc[(LOOPED, "hops", True), ["- plain", "- as deep", "T = 8 - 4"]].tolist() == [20, -10, 3]
    assert found.loc[(SAMPLED, "hops", True), ["- plain, low", "- plain, high"]].tolist() == [10, 10]
    without = pd.DataFrame([row for row in rows if (row["model"], row["seed"]) != (LOOPED, 2)])
    assert pd.isna(depth_tasks.contrasts(without, P).loc[(LOOPED, "hops", True), "- plain"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": "sotu"}, "source: 'sotu' has no text for each of families, use 'generated'"),
        ({"families": ["poems"]}, "families: 'poems' is not known, use hops, addition, chains, swaps"),
        ({"depths": [1, 2]}, r"depths: mean_loops 4 is not among \[1, 2\], add it"),
    ],
)
def test_what_cannot_be_asked_is_refused(changes, says):
    with pytest.raises(InputError, match=says):
        P.replace(**changes)

"""The iso-depth models and runs are 000's: its sizes, probes and injections, at the FLOPs of its budgets."""

import pytest

from lib.base.errors import InputError
from lib.flops import count
from lib.papers.isodepth import designs
from lib.papers.isodepth.parameters import Extrapolation, IsodepthIsoflop
from lib.presets import preset
from tests.given import given
from tests.lines import one_line

SMALL = dict(context=32, val_rows=16, max_bytes=300_000, batch=4)
P = given(IsodepthIsoflop, **SMALL)


# ---- the models ------------------------------------------------------------------------------------------------------


def test_every_recurrence_has_the_same_depth_and_fewer_parameters():
    models = {r: designs.model(P, r, 16) for r in (1, 2, 4, 8)}
    assert {cfg.prelude + cfg.coda + cfg.mean_loops * cfg.recur for cfg in models.values()} == {10}
    assert (models[1].injection, models[4].injection) == ("none", "concat-identity")
    sizes = [count(cfg).n_params for cfg in models.values()]
    assert sizes == sorted(sizes, reverse=True)
    flops = [count(cfg).published["000"] for cfg in models.values()]
    assert max(flops) / min(flops) < 1.15  # an injection a loop


def test_the_injections_of_the_ablation():
    models = {name: designs.model(P, 4, 16, **designs.INJECTIONS[name]) for name in [*designs.INJECTIONS][:5]}
    lanes = ["hyper-connections"] * 2
    assert [cfg.injection for cfg in models.values()] == ["concat-identity", "add", "none", *lanes]
    assert [models[name].lanes_receive for name in models if name.startswith("hyper")] == ["s - u", "s"]
    sizes = {name: designs.size(cfg)["N"] for name, cfg in models.items()}
    assert sizes["linear"] - sizes["additive"] == 2 * 16 * 16 and sizes["additive"] == sizes["passthrough"]
    assert sizes["hyper-connections"] - sizes["passthrough"] == 4 * (2 * 2 + 2 * 2)


def test_a_probe_changes_the_looped_models_alone():
    for name in ("truncated", "hyper-connections"):
        assert designs.model(P, 1, 16, **designs.intervention(name, 1)) == designs.model(P, 1, 16)
    kept = [designs.model(P, r, 16, **designs.intervention("truncated", r)).max_backprop_loops for r in (2, 4, 8)]
    assert kept == [1, 2, 4]
    lanes = designs.model(P, 4, 16, **designs.intervention("hyper-connections", 4))
    assert lanes.injection == "hyper-connections" and lanes.lanes == 2
    printed = designs.model(P, 4, 16, **designs.intervention("hyper-connections, as printed", 4))
    assert printed == lanes.replace(lanes_receive="s")
    with pytest.raises(InputError, match="probes: 'glue' is not known, use baseline"):
        designs.intervention("glue", 4)
    ((label, cfg),) = designs.grid(P, [4], {1e9: [8]}, [1], "truncated").items()
    (full,) = designs.grid(P, [4], {1e9: [8]}, [1]).values()
    assert label == ("truncated", 1e9, 4, 8, 1) and 1.2 < cfg.tokens / full.tokens < 1.35


def test_the_published_fit_counts_the_injection_once():
    own = designs.size(preset("isodepth-s10-r4"))
    fitted = designs.published_families()[4].set_index("width").loc[640]
    assert fitted["n_once"] - own["n_once"] == own["n_rec"] - fitted["n_rec"] == 2 * 640**2


# ---- the runs --------------------------------------------------------------------------------------------------------


def test_a_budget_buys_the_same_flops_at_every_width():
    for (group, budget, r, width, seed), cfg in designs.grid(P, [1, 4], {1e9: [8, 16, 24]}, [1]).items():
        assert group == f"r = {r}" and cfg.train.seed == seed and cfg.model.width == width
        spent = cfg.tokens * count(cfg.model, 32).published["000"]
        assert spent == pytest.approx(budget, rel=0.06)  # to a step
        assert cfg.optim.name == "muonh" and cfg.optim.scaling == "hyperp" and cfg.optim.final == 0.1
        assert cfg.optim.cooldown_steps == cfg.train.steps
    with pytest.raises(InputError, match=r"budgets: 1e\+09 FLOPs are \d steps at width 8"):
        designs.grid(P.replace(batch=64), [1, 4], {1e9: [8, 16, 24]}, [1])


def test_the_grid_of_a_notebook_repeats_seeds_in_one_cell():
    p = given(IsodepthIsoflop, content="text")
    plan = designs.grid_with_noise(p)
    repeated = [label for label in plan if label[-1] not in p.seeds]
    assert {label[1:4] for label in repeated} == {(4.64e10, 1, 16), (4.64e10, 8, 16)} and len(repeated) == 4
    twice = designs.grid_with_noise(p.replace(seeds=[7, 8]))
    assert len(twice) == 2 * (len(plan) - 4) + 4 and {label[-1] for label in twice} == {7, 8, *p.noise_seeds}


def test_a_pair_has_the_same_tokens():
    p = given(Extrapolation, **SMALL, beyond_recurrences=[1, 4], beyond_width=16, beyond_budget=2e9, beyond_seeds=[7])
    (_, plain), ((_, budget, r, width, seed), four) = designs.matched_tokens(p).items()
    assert (budget, r, width, seed, four.model.mean_loops) == (2e9, 4, 16, 7, 4)
    assert plain.tokens == four.tokens and plain.train.batch == p.batch
    assert plain.tokens * count(plain.model, 32).published["000"] == pytest.approx(2e9, rel=0.05)
    several = designs.matched_tokens(p.replace(beyond_seeds=[7, 8], beyond_batch=2 * p.batch))
    assert [label[2:] for label in several] == [(r, 16, seed) for r in (1, 4) for seed in (7, 8)]
    for cfg in several.values():
        assert cfg.train.batch == 2 * p.batch and cfg.tokens == pytest.approx(plain.tokens, rel=0.05)


def test_bad_parameters_are_one_line():
    with one_line("recurrences: 8 looped layers are not shared by 0 loops"):
        designs.model(P, 0, 16)
    with one_line("widths: 16 is not a multiple of head_dim 0"):
        designs.model(P.replace(head_dim=0), 2, 16)
    with one_line("once: 3 layers are no prelude and coda"):
        designs.model(P.replace(once=3), 2, 16)


# ---- the paper's own -------------------------------------------------------------------------------------------------


def test_truncation_buys_the_papers_tokens():
    assert designs.published_token_gain("truncated") == pytest.approx(1.315, abs=0.0015)
    s10 = preset("isodepth-s10-r4", **designs.intervention("truncated", 4))
    assert count(s10).published["000"] == 799_569_920


def test_a_family_reaches_beyond_the_grid():
    p = given(IsodepthIsoflop)
    grid = designs.families(p)[4]["width"].tolist()
    assert grid == [8, 16, 24, 32, 40] and designs.families(p, beyond=2)[4]["width"].tolist() == [*grid, 80]
    paper = designs.families(given(IsodepthIsoflop, "paper"), beyond=2)[1]["width"]
    assert paper.min() == 128 and paper.max() == 2 * 2176

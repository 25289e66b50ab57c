"""The runs about depths are rungs of the ladder in the one set-up, and end_to_end's in the other."""

from lib.papers.parcae import depth_designs, rdm_setup, transformer_setup
from lib.papers.parcae.parameters import BackpropDepth, DepthSampling, EndToEnd, Instability, StabilityAblation
from tests.given import given

ENDS = given(
    EndToEnd, rdm_sizes={32: 1, 64: 2}, rdm_loops_at={32: 16}, rdm_steps=400, rdm_lr=0.01, rdm_lr_at={64: 0.02}
)
SETUP = given(Instability)


def test_the_pair_are_rungs_of_the_ladder_in_the_transformers_set_up():
    runs = depth_designs.samplings(given(DepthSampling), ENDS, SETUP)
    ladder = transformer_setup.ladder(given(StabilityAblation))
    assert {label[1] for label in runs} == {given(DepthSampling).width}
    for variant, rung in depth_designs.PAIR.items():
        assert runs[variant, 64, 301] == ladder[rung, 301]
    released = runs[depth_designs.RELEASED, 64, 301].model
    assert released == runs["per batch", 64, 301].model.replace(on_top=True)
    assert len(runs) == 6 * 3


def test_in_the_rdm_set_up_the_pair_has_every_size_and_the_three_the_smallest():
    p = given(DepthSampling, rdm=True, seeds=[101], mean_loops=6)
    runs = depth_designs.samplings(p, ENDS, SETUP)
    assert [label[:2] for label in runs] == [
        *((variant, d) for d in (32, 64) for variant in (*depth_designs.PAIR, depth_designs.RELEASED)),
        *((variant, 32) for variant in depth_designs.THREE),
    ]
    against = rdm_setup.against_rdm(ENDS.replace(seeds=[101]), SETUP)
    assert runs["per sequence", 64, 101] == against["parcae", 64, 101]
    per_batch = runs["per batch", 64, 101]
    assert per_batch.model == against["parcae", 64, 101].model.replace(depth_per="batch")
    assert runs[depth_designs.RELEASED, 64, 101].model == per_batch.model.replace(on_top=True)
    full, fill, correction = (runs[name, 32, 101].model for name in depth_designs.THREE)
    assert {cfg.mean_loops for cfg in (full, fill, correction)} == {6} and full.max_backprop_loops is None
    assert fill.max_backprop_loops == correction.max_backprop_loops == 6 and fill.fill and not correction.fill


def test_truncations_have_two_tables_on_steps_of_their_own():
    p = given(BackpropDepth, seeds=[101], means=[4, 8], backprops=[4, 8], backprops_steps=100, steps=200)
    runs = depth_designs.truncations(p, ENDS, SETUP)
    assert {label: cfg.train.steps for label, cfg in runs.items()} == {
        ("mean_loops", 4, 4, 101): 200,
        ("mean_loops", 8, 4, 101): 200,
        ("backprop_loops", 16, 4, 101): 100,
        ("backprop_loops", 16, 8, 101): 100,
    }
    as_many = depth_designs.truncations(p.replace(backprops_steps=0), ENDS, SETUP)
    assert {cfg.train.steps for cfg in as_many.values()} == {200}
    assert not any(cfg.model.fill for cfg in runs.values())


def test_truncations_in_the_rdm_set_up_are_the_smallest_rdm():
    p = given(BackpropDepth, seeds=[101], means=[8], backprops=[4], rdm=True, fill=True, steps=200, batch=4)
    for (_, mean, k, _), cfg in depth_designs.truncations(p, ENDS, SETUP).items():
        assert cfg.model.injection == "concat" and cfg.model.block == "sandwich" and cfg.model.fill
        assert (cfg.model.width, cfg.model.mean_loops, cfg.model.max_backprop_loops) == (32, mean, k)
        assert (cfg.optim.lr, cfg.train.steps, cfg.train.batch) == (0.01, 200, 4)

"""Both set-ups are compared at all steps and at a share of them, seed by seed."""

import pytest

from lib.base.errors import InputError
from lib.papers.parcae import end_to_end, rdm_setup, transformer_setup
from lib.papers.parcae.parameters import EndToEnd
from tests.given import given
from tests.papers.parcae.test_rdm_setup import SETUP

P = given(
    EndToEnd,
    sizes={32: 1, 64: 1},
    steps_at={32: 40},
    steps=80,
    rdm_sizes={32: 1},
    rdm_steps_at={32: 20},
    shorter=0.25,
    seeds=[3, 4],
)


def test_the_shorter_runs_differ_in_their_length_alone():
    whole, shorter = end_to_end.lengths(P, SETUP).values()
    assert [*end_to_end.lengths(P, SETUP)] == ["", ", 0.25 of the tokens"]
    assert [*whole] == [*shorter] and {name for name, *_ in whole} == {
        "transformer", "parcae", "parcae, RDM set-up", "residual-norm, RDM set-up"
    }  # fmt: skip
    for label, cfg in whole.items():
        less = shorter[label]
        assert less.train.steps == cfg.train.steps / 4 and less.model == cfg.model and less.data == cfg.data
    assert (whole["parcae", 32, 3].train.steps, whole["parcae", 64, 3].train.steps) == (40, 80)
    assert whole["residual-norm, RDM set-up", 32, 3].train.steps == 20


def test_without_a_share_there_is_one_length_the_one_of_each_set_up():
    p = P.replace(shorter=0.0)
    (runs,) = end_to_end.lengths(p, SETUP).values()
    rdm = rdm_setup.against_rdm(p, SETUP)
    assert {cfg.key for cfg in runs.values()} == {
        cfg.key for cfg in [*transformer_setup.against_transformer(p).values(), *rdm.values()]
    }


def test_a_share_of_unknown_steps_is_refused():
    with pytest.raises(InputError, match="shorter: is a share of rdm_steps, which has to be set for that"):
        P.replace(rdm_steps_at={}, rdm_steps=0)
    with pytest.raises(InputError, match="shorter"):
        P.replace(shorter=1.0)

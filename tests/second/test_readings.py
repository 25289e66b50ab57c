"""What has enough seeds for a second opinion is read off the records once more, or it is said why not."""

import pytest

from lib.base.parameters import WHOLE
from lib.second.judge import FEWEST
from lib.second.readings import WITHOUT_RUNS
from lib.workbook import claims, places
from lib.workbook.parameters import of_profile

#: of residual_scaling_init, on its ``deep_seeds``, which are five at every profile
OF_DEEP_SEEDS = {
    "002-sqrt-explodes-early",
    "002-factored-rule-keeps-the-norm",
    "002-layers-add-a-random-walk",
    "002-change-grows-at-most-like-root-l",
}


@pytest.mark.parametrize("profile", [profile for profile in WHOLE if profile != "smoke"])
def test_every_claim_with_six_seeds_is_read_again(measured, ablation, profile):
    """Who gives a notebook six seeds writes a reading for it, or says here why there is none."""
    own = {*measured[2], *ablation[1]}
    read = own | {*WITHOUT_RUNS} | OF_DEEP_SEEDS
    for claim in claims.ledger(places.LEDGER).values():
        if claim.replicates == "seeds" and claim.notebook:
            given = of_profile(profile, claim.notebook)
            most = max((len(seeds) for name, seeds in given.items() if name.endswith("seeds")), default=0)
            assert most < FEWEST or claim.id in read, f"{claim.id} has {most} seeds at {profile}"
    assert {*WITHOUT_RUNS} <= claims.ledger(places.LEDGER).keys() and not own & {*WITHOUT_RUNS}
    deep = of_profile(profile, "residual_scaling_init")["deep_seeds"]
    assert len(deep) < FEWEST

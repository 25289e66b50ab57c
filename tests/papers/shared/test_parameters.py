"""The rates that notebooks give are those of the optimiser's fields of other names."""

from lib.config import OptimConfig
from lib.papers.isodepth.parameters import IsodepthIsoflop
from lib.papers.nanochat.parameters import UsageWeighted
from tests.given import given


def test_rates_are_fields_of_the_optimiser():
    rates = dict(muon_lr=0.1, table_lr=0.2, head_lr=0.3, norm_lr=0.4)
    for kind in (IsodepthIsoflop, UsageWeighted):
        found = given(kind, **rates).rates
        assert found == dict(muon_lr=0.1, embedding_lr=0.2, head_lr=0.3, norm_lr=0.4)
        assert found.keys() <= OptimConfig.model_fields.keys()

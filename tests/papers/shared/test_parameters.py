"""The rates that notebooks give are those of the optimiser's fields of other names."""

from lib.config import DataConfig, OptimConfig, TrainConfig
from lib.papers.isodepth.parameters import IsodepthIsoflop
from lib.papers.nanochat.parameters import UsageWeighted
from lib.papers.shared.parameters import text_of, training_of
from tests.given import given


def test_rates_are_fields_of_the_optimiser():
    rates = dict(muon_lr=0.1, table_lr=0.2, head_lr=0.3, norm_lr=0.4)
    for kind in (IsodepthIsoflop, UsageWeighted):
        found = given(kind, **rates).rates
        assert found == dict(muon_lr=0.1, embedding_lr=0.2, head_lr=0.3, norm_lr=0.4)
        assert found.keys() <= OptimConfig.model_fields.keys()


def test_the_text_of_a_notebooks_parameters():
    p = given(IsodepthIsoflop, context=32, val_rows=16, batch=6)
    assert text_of(p) == DataConfig(context=32, val_rows=16)
    assert text_of(p.replace(max_bytes=1000)).max_bytes == 1000
    assert training_of(p, seed=3) == TrainConfig(batch=6, precision="fp32", seed=3)
    assert training_of(p.replace(micro_batch=2)).micro_batch == 2

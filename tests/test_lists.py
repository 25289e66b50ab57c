"""With lists cut to one value, to two, or reversed, a notebook ends with figures, or with a line before it trains."""

import pytest
from matplotlib import pyplot

from lib.base.distributed import here
from lib.base.errors import InputError
from lib.sweep import training
from lib.sweep.finished import Runs
from lib.train import loop
from lib.workbook import places
from lib.workbook.notebook import Notebook
from tests.cells import whole
from tests.given import of_profile
from tests.made import NAMES
from tests.workbooks import ROOT

CUTS = (slice(1), slice(2), slice(None, None, -1))


def cut(value, how):
    return dict([*value.items()][how]) if isinstance(value, dict) else value[how]


def made_up(cfg, store):
    """In the place of training: the model as it begins, and a loss that falls with its size and its tokens."""
    run = loop._Training(cfg.planned, store, here())
    loss = 2 + sum(p.numel() for p in run.model.parameters()) ** -0.3 + cfg.tokens**-0.4
    names = ["state_rms", "state_norm", "residual", "grad_norm", "router_loss", "tokens_per_s"]
    values = {"loss": loss, **dict.fromkeys(names, 1.0)}
    for run.step in range(1, cfg.train.steps + 1):
        run.followed.log(run.model, run.step, values, last=run.step == cfg.train.steps)
    run.followed.columns["val_loss"][-1] = loss
    return run._kept("finished")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_lists_may_be_cut(name, tmp_path, monkeypatch):
    begun, given = [], of_profile("smoke", name) | {"outputs": str(tmp_path)}

    def sweep(configs, store, *limits):
        begun.append(name)
        return Runs([store.find(cfg) or made_up(cfg, store) for cfg in configs])

    monkeypatch.setattr(training, "sweep", sweep)
    monkeypatch.setattr(Notebook, "_saved", lambda self, figure, *_: figure.canvas.draw() or pyplot.close(figure))
    if name == "start_here":  # which draws desk's records at every profile
        monkeypatch.setattr(places, "RECORDS", ROOT / "outputs" / "records")
    lists = {key: value for key, value in given.items() if isinstance(value, list | dict) and value}
    for each in ({key: cut(value, how) for key, value in lists.items()} for how in CUTS):
        for changes in (each, *({key: value} for key, value in each.items())):
            begun.clear()
            try:
                whole(name, given | changes)
            except InputError as error:
                assert not begun, f"{changes}: {error}"

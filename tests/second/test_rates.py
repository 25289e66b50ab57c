"""The second opinion on muP reads off the runs what the notebook computes, by other code."""

import numpy as np
import pandas as pd

from lib.papers.shared.transfer import regrets
from lib.second import rates


def test_the_room_is_the_notebooks(mup):
    labels, p, second = mup
    frame = pd.DataFrame(labels)
    assert [*second] == ["004-mup-transfers"] and second["004-mup-transfers"].shape == (3, 4 * 2)
    names = {"base": "dense", "looped": "looped, dense", "moe": "moe", "looped-moe": "looped, moe"}
    for architecture, own in frame.groupby("architecture"):
        for width, lost in regrets(own, "width", min(p.widths)).iterrows():
            read = second["004-mup-transfers"][f"{names[architecture]}, d = {width}"]
            np.testing.assert_allclose(read[p.seeds], 0.008 - lost[p.seeds], rtol=1e-9)


def test_a_single_seed_judges_its_own_choice(mup_records):
    records, p = mup_records
    one = {"runs": [record for record in records["runs"] if record["config"]["train"]["seed"] == p.seeds[0]]}
    room = rates.numbers(one, p.model_dump())["004-mup-transfers"]
    assert room.shape == (1, 8) and (room <= 0.008 + 1e-12).to_numpy().all()

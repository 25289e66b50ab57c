"""What is counted of a text is in closed form what it says, and is kept, so that the text may go."""

import math

import pytest

from lib.config import DataConfig
from lib.data.rows import token_store, validation_batch
from lib.store.runs import RunStore
from lib.sweep.measurements import measure
from lib.sweep.text_counts import OfText, counted, held_out, ngram_limit


def test_counts_of_a_text_are_there_when_it_is_gone(tmp_path):
    """Documents of 30 bytes in which a and b take turns: a byte is one of two, and after its neighbour no surprise."""
    path, store = tmp_path / "a.txt", RunStore(tmp_path / "runs")
    path.write_text("\n".join(["ab" * 15] * 20))
    data = DataConfig(source=str(path), val_fraction=0.1, context=8, val_rows=3).known()
    asked = {
        "counted": (counted, OfText.of(data, store)),
        "rows": (held_out, OfText.of(data, store)),
        "unigram": (ngram_limit, OfText.of(data, store, 1)),
        "bigram": (ngram_limit, OfText.of(data, store, 2)),
    }
    first = {name: measure(function, [case], store)[0] for name, (function, case) in asked.items()}
    assert first["counted"] == {"training": 18 * 30, "held out": 2 * 30}
    assert first["unigram"]["nats"] == pytest.approx(math.log(2))
    assert first["bigram"]["nats"] == pytest.approx(0, abs=1e-12)
    assert first["rows"] == {"rows": validation_batch(data, token_store(data, store.tokens)).tolist()}
    path.unlink()
    assert first == {name: measure(function, [case], store)[0] for name, (function, case) in asked.items()}

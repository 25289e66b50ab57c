"""The texts of many runs are tokenised once each, and what does not fit is said before any run is trained."""

from lib.sweep import texts
from tests.lines import one_line
from tests.runs import several, small_run


def test_a_text_is_prepared_once_for_all_of_its_runs(store, monkeypatch):
    prepared = []
    monkeypatch.setattr(texts, "load_data", lambda cfg, store, show: prepared.append(cfg.data))
    longer = small_run(data={"max_bytes": 400_000})
    texts.prepare_texts([*several(3), longer], store)
    assert prepared == [several(1)[0].planned.data, longer.planned.data]


def test_a_text_that_has_changed_since_its_runs_were_planned_is_not_tokenised(store, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("one text\n\n" * 60)
    data = {"source": str(path), "max_bytes": None, "val_rows": 4}
    cfg = small_run(data=data)
    before = cfg.key
    path.write_text("another text\n\n" * 60)
    later = small_run(data=data)
    assert later.key != before and len(texts.one_of_each_text([cfg, later, cfg])) == 2
    with one_line(starts="data.content:"):
        texts.prepare_texts([cfg], store)
    texts.prepare_texts([later], store)

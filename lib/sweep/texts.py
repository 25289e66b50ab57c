"""The texts of many runs: each is tokenised once, before any run is trained."""

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.train.loop import load_data


def one_of_each_text(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """One run for each text and vocabulary size."""
    planned = [cfg.planned for cfg in configs]
    return list({(cfg.data, cfg.model.vocab_size): cfg for cfg in planned}.values())


def prepare_texts(configs: Sequence[RunConfig], store: RunStore) -> None:
    """Tokenises each text, with a bar, and checks that it fits its runs."""
    for cfg in one_of_each_text(configs):
        with tqdm(unit="B", unit_scale=True, leave=False, desc="reading tokens") as bar:

            def show(what: str, count: int, bar: Any = bar) -> None:
                bar.set_description(what, refresh=False)  # with the next line, once a minute in a log
                bar.update(count)

            load_data(cfg, store, show)

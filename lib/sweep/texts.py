"""The texts of many runs: each is tokenised once, before any run is trained."""

import math
import time
from collections.abc import Sequence

from lib.base.progress import Bar
from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.train.loop import load_data


class TimeIsUp(Exception):
    """The limit of time is reached; what was begun goes on another time."""


def one_of_each_text(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """One run for each text and vocabulary size."""
    planned = [cfg.planned for cfg in configs]
    return list({(cfg.data, cfg.model.vocab_size): cfg for cfg in planned}.values())


def prepare_texts(configs: Sequence[RunConfig], store: RunStore, until: float = math.inf) -> None:
    """Tokenises each text, with a bar, and checks that it fits its runs. Raises TimeIsUp when the clock
    (``time.monotonic``) reaches ``until``; what is tokenised by then is kept."""
    for cfg in one_of_each_text(configs):
        with Bar(unit="B", unit_scale=True, leave=False, desc="reading tokens") as bar:

            def show(what: str, count: int, bar: Bar = bar) -> None:
                bar.set_description(what, refresh=False)  # with the next line, once a minute in a log
                bar.update(count)
                if time.monotonic() >= until:
                    raise TimeIsUp

            load_data(cfg, store, show)

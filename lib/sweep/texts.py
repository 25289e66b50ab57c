"""The texts of many runs, tokenised once each before any run is trained."""

import math
import time
from collections.abc import Sequence

from lib.base.progress import Bar
from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.train.loop import load_data


def one_of_each_text(configs: Sequence[RunConfig]) -> list[RunConfig]:
    return list({(cfg.data, cfg.model.vocab_size): cfg for cfg in configs}.values())


def prepare_texts(configs: Sequence[RunConfig], store: RunStore, until: float = math.inf) -> None:
    """Tokenise every text once, with a bar, and see that it fits, before anything is trained. Raises TimeIsUp at
    ``until``; what is tokenised then is not tokenised again."""
    for cfg in one_of_each_text(configs):
        with Bar(unit="B", unit_scale=True, leave=False, desc="reading tokens") as bar:

            def show(what: str, count: int, bar: Bar = bar) -> None:
                bar.set_description(what)
                bar.update(count)
                if time.monotonic() >= until:
                    raise TimeIsUp

            load_data(cfg, store, show)


class TimeIsUp(Exception):
    """A limit stops what can be gone on with."""

"""Bars whose time runs forwards, whatever is done to the clock of the machine."""

import time
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

SOON = 5.0  # seconds; what is done sooner needs no bar


class Bar(tqdm):  # type: ignore[type-arg]  # which has arguments for the stubs alone
    """tqdm, but with a clock that is never set back, as the time of day may be."""

    _time = property(lambda self: time.monotonic, lambda self, clock: None)


def passing(what: Iterable[Any], name: str) -> Bar:
    """``what``, one by one, with a bar if that takes longer than SOON; the bar goes when all are done."""
    return Bar(what, name, leave=False, delay=SOON)

"""Bars whose time runs forwards, whatever is done to the clock of the machine."""

import time
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

SOON = 5.0  # seconds; what is done sooner needs no bar


class Bar(tqdm):  # type: ignore[type-arg]  # which has arguments for the stubs alone
    """tqdm reads the time of day, which may be set back: its rate and what is left of it would be nonsense."""

    _time = property(lambda self: time.monotonic, lambda self, clock: None)


def passing(what: Iterable[Any], name: str) -> Bar:
    """``what``, with a bar where that takes more than a moment, which goes when it is done."""
    return Bar(what, name, leave=False, delay=SOON)

"""How the tests of decoding compute."""

import pytest

from lib.base.processes import one_thread_on_cpu
from lib.kernels import door


@pytest.fixture(autouse=True)
def one_thread():
    """Where kernels serve; ``plain`` keeps them off."""
    with one_thread_on_cpu():
        yield


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setattr(door, "serve", lambda *x, **few: False)

"""Kernels are tested by one thread, as training has, and at any number of rows."""

import pytest
import torch

from lib.base.processes import one_thread_on_cpu
from lib.kernels import door


@pytest.fixture(autouse=True)
def one_thread_and_any_rows(monkeypatch):
    """What training has; and sizes too small to gain are tried too."""
    torch.manual_seed(0)
    monkeypatch.setattr(door, "FEW", 0)
    with one_thread_on_cpu():
        yield

"""A kernel for the tests of a file: it takes seconds to start."""

import pytest
from jupyter_client.manager import start_new_kernel

from tests.workbooks import ROOT


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(cwd=ROOT)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)

"""A finished run is known by its config."""

from lib.store.result import RunResult
from tests.runs import small_run


def test_a_result_is_known_by_its_config():
    assert RunResult(small_run(), "finished", {}, {}, {}).key == small_run().key

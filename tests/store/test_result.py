"""A finished run is known by its config, and says where it is kept, if anywhere."""

import dataclasses
from pathlib import Path

import pytest

from lib.store.result import RunResult
from tests.runs import small_run


def test_a_result_is_known_by_its_config_and_says_where_it_is_kept():
    result = RunResult(small_run(), "finished", {}, {}, {})
    assert result.key == small_run().key
    with pytest.raises(ValueError, match=f"run {result.key} has no folder"):
        _ = result.folder
    assert dataclasses.replace(result, path=Path("a")).folder == Path("a")

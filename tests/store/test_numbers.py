"""lib/store/numbers.py: what is measured as rows of a table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.errors import InputError
from lib.store.numbers import flat, nested
from tests.runs import same

values = st.one_of(st.floats(), st.integers(-(2**53), 2**53), st.booleans(), st.none(), st.text(max_size=5))
names = st.text(max_size=5).filter(lambda name: "/" not in name)
tables = st.lists(st.lists(values, min_size=1, max_size=3), max_size=3)
measurements = st.dictionaries(
    names,
    st.recursive(
        st.one_of(values, st.lists(values, max_size=3), tables), lambda x: st.dictionaries(names, x, max_size=3)
    ),
    max_size=4,
)


@given(measurements)
def test_what_was_measured_comes_back_as_it_was(measured):
    assert same(nested(list(flat(measured))), measured)


@pytest.mark.parametrize("measured", [{"a/b": 1.0}, {"a": [[[1.0]]]}, {"a": [{"b": 1.0}]}, {"a": np.int64(1)}])
def test_what_no_table_holds_is_refused(measured):
    with pytest.raises(InputError, match=r"^measured: '/?a"):
        list(flat(measured))

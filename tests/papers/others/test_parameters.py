"""The notebook of published models saves shares of the depth."""

import pytest

from lib.base.errors import InputError
from lib.papers.others.parameters import PublishedModels
from tests.given import given


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"saved": [0.0, 1.0]}, "saved: .* numbers from 0 to below 1"), ({"saved": [-0.1]}, "saved: ")],
)
def test_what_does_not_fit_together_is_refused(changes, says):
    with pytest.raises(InputError, match=says):
        given(PublishedModels).replace(**changes)

"""A notebook's typed parameters, as a profile has them or with some changed."""

from typing import TypeVar

from lib.base.parameters import Parameters
from lib.workbook.parameters import at_profile

P = TypeVar("P", bound=Parameters)


def given(kind: type[P], profile: str = "cpu", **changes) -> P:
    return at_profile(kind, profile, **changes)

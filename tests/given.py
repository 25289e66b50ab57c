"""A notebook's typed parameters, as a profile has them or with some changed."""

from typing import TypeVar

from lib.base.parameters import Parameters
from lib.workbook.parameters import of_profile

P = TypeVar("P", bound=Parameters)


def given(kind: type[P], profile: str = "cpu", **changes) -> P:
    return kind(**{**of_profile(profile, kind.notebook), **changes})

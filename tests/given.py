"""A notebook's typed parameters, as a profile has them or with some changed."""

from typing import Any, TypeVar

from lib.base.parameters import Parameters
from lib.workbook.parameters import at_profile, kind_of, of_kind

P = TypeVar("P", bound=Parameters)


def given(kind: type[P], profile: str = "cpu", **changes) -> P:
    return at_profile(kind, profile, **changes)


def of_profile(profile: str, name: str) -> dict[str, Any]:
    """All parameters of the notebook ``name`` at a profile."""
    return of_kind(kind_of(name), profile)

"""What somebody fills in: frozen, of known names, and with errors of one line."""

from typing import Any, Self

import pydantic

from lib.base.errors import InputError, one_line


class Checked(pydantic.BaseModel):
    """Frozen; an error is one line that names the field."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            raise InputError(one_line(error)) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new one."""
        return type(self)(**{**self.fields(), **changes})

    def fields(self) -> dict[str, Any]:
        """Name -> value, parts as they are: they have been checked."""
        return {name: getattr(self, name) for name in type(self).model_fields}

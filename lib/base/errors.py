"""Bad input: one line that names the field and the remedy; and what somebody fills in, which is checked so."""

import re
import sys
from collections.abc import Callable
from typing import Any, Self, TypeVar

import pydantic

T = TypeVar("T")


class OneLine(Exception):
    """Its message says all that there is to say, in notebooks as in the shell: one line, as a rule."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints instead of a stack of frames (papermill shows the same)."""
        return [f"{type(self).__name__}: {self}"]


class InputError(OneLine, ValueError):
    """A value the user can mend."""


class NotThere(InputError):
    """What is asked for has not been trained, and nothing is to be trained."""


class DiskFull(OneLine, OSError):
    """The disk filled up while something was being written; nothing half-written was kept."""


def first_line(error: Exception) -> str:
    """The beginning of what an error of a library says, without the credentials of an address."""
    return re.sub(r"//[^/\s@]*@", "//", (str(error).strip() or repr(error)).splitlines()[0])[:160]


def one_line(error: pydantic.ValidationError) -> str:
    """All complaints of a pydantic error, each with its field, on one line.

    >>> import pydantic
    >>> class P(pydantic.BaseModel, extra="forbid"):
    ...     lr: float
    >>> try: P(lr="fast", speed=1)
    ... except pydantic.ValidationError as e: print(one_line(e))
    lr: input should be a valid number, unable to parse string as a number (got 'fast'); \
speed: unknown name, remove it or correct its spelling
    """
    complaints = []
    for item in error.errors():
        field = ".".join(map(str, item["loc"]))
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown name, remove it or correct its spelling"
        elif item["type"] == "missing":
            message = "is required, add it"
        elif item["type"] != "value_error":
            message = f"{message[:1].lower()}{message[1:]} (got {item['input']!r:.80})"
        complaints.append(f"{field}: {message}" if field else message)
    return "; ".join(complaints)


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


def in_one_line(function: Callable[..., T], *arguments: Any, stopped: str = "stopped") -> T:
    """What a command's function returns. An error that says all in its message, or a package that is missing, becomes
    that and exit status 1; Ctrl-C prints ``stopped`` and exits with status 130."""
    try:
        return function(*arguments)
    except (OneLine, OSError) as error:
        raise SystemExit(str(error)) from None
    except ImportError as error:
        raise SystemExit(f"{first_line(error)}: run make env, which installs what is pinned") from None
    except KeyboardInterrupt:
        sys.stderr.write(f"{stopped}\n")  # in one piece: others stop at the same time
        raise SystemExit(130) from None

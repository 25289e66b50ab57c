"""Reads a notebook's parameters from its own cell, params/, papermill or a kernel, and types them."""

import ast
import difflib
import functools
import json
import re
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from lib.base.errors import InputError
from lib.base.files import need_file
from lib.base.parameters import PROFILES, Parameters
from lib.workbook import places

#: YAML 1.1 reads 010 as 8 and 1:30 as 90
OTHER_NUMBER = re.compile(r"[-+]?(0[\d_]+|\d[\d_]*(:[\d_]+)+(\.\d*)?)")

P = TypeVar("P", bound=Parameters)


# ---- as files have them ----------------------------------------------------------------------------------------------


def of_profile(profile: str, name: str) -> dict[str, Any]:
    """A notebook's parameters at a profile: its own cell's values, and over them params/<profile>/<name>.yaml, which
    has those that differ. Where an addendum has none, those of the profile that it adds to."""
    path = places.PARAMS / profile / f"{name}.yaml"
    if not path.exists() and profile in places.ADDS_TO:
        return {**of_profile(places.ADDS_TO[profile], name), "profile": profile}
    if not path.exists():
        raise InputError(f"profile: {path.relative_to(places.ROOT)} does not exist, use one of {', '.join(PROFILES)}")
    given = of_file(path, name)
    return of_cell(name) | given


def of_file(path: Path | str, name: str) -> dict[str, Any]:
    """A notebook's parameters in a file. Of somebody else's, ask this before papermill has it: papermill writes the
    names in it into the notebook as they are, so that a name may be code, which runs before the notebook can look.
    Nor can the notebook see what YAML makes another number of, or which of two values a name had."""
    need_file("profile", Path(path))
    try:
        text = Path(path).read_text(encoding="utf-8")
        parameters = _parsed(text)
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"profile: {path} cannot be read as YAML ({' '.join(str(error).split())}), mend it") from None
    if not isinstance(parameters, dict):
        raise InputError(f"profile: {path} is no list of names and values, write 'name: value' on each line")
    check_names(name, map(str, parameters), of_cell(name))
    if twice := [name for name in parameters if len(re.findall(rf"^{name}\s*:", text, re.MULTILINE)) > 1]:
        raise InputError(f"{twice[0]}: stands twice in {path}, remove one")
    return parameters


@functools.lru_cache(maxsize=1024)  # the report asks for a notebook's with each of its claims
def _parsed(text: str) -> Any:
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        said = event.value if isinstance(event, yaml.ScalarEvent) and not event.style else ""
        if isinstance(event, yaml.AliasEvent) or OTHER_NUMBER.fullmatch(said):
            raise yaml.YAMLError(f"{said or 'a reference'} means something else there, write it out")
    return yaml.safe_load(text)


def at_profile(kind: type[P], profile: str, **changes: Any) -> P:
    """The typed parameters of ``kind``'s notebook at a profile, with some changed."""
    return kind(**{**of_profile(profile, kind.notebook), **changes})


def of_cell(name: str) -> dict[str, Any]:
    """The values in a notebook's parameters cell."""
    cells = json.loads((places.NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    (source,) = ("".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", []))
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): ast.literal_eval(node.value) for node in assigned if node.value}


def check_names(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises InputError for the first name that is no parameter of the notebook ``name``."""
    for parameter in given:
        if parameter not in known:
            close = difflib.get_close_matches(parameter, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
            raise InputError(f"{parameter}: is not a parameter of {name}, {hint}")


# ---- as a kernel has them --------------------------------------------------------------------------------------------


def checked(kind: type[P], namespace: dict[str, Any], fresh: bool, by_hand: bool = False) -> P:
    """The parameters that stand in a kernel's namespace, read as what ``kind`` says: papermill and YAML may pass text
    ('[1, 2]', '3e-4').

    fresh: the notebook has not been started in it; by_hand: somebody runs its cells. Raises InputError for a parameter
    that is not set, for a value of the wrong type, and for a name that is none: what has a type, as all in the
    parameters cell have, and in a fresh namespace what has none, as what papermill injects; by hand, where there may be
    other values, only what is close to a parameter. What is refused is forgotten, or a corrected cell would be too."""
    types = {parameter: field.annotation for parameter, field in kind.model_fields.items()}
    annotations = namespace.get("__annotations__", {})
    untyped = _values(namespace) if fresh else []
    meant = [name for name in untyped if not by_hand or difflib.get_close_matches(name, types)]
    unknown = [name for name in (*annotations, *meant) if name not in types]
    for name in unknown:
        namespace.pop(name, None)
        annotations.pop(name, None)
    check_names(kind.notebook, unknown, types)
    for parameter in types:
        if parameter not in namespace:
            raise InputError(f"{parameter}: is not set, give it a value in the parameters cell")
    return kind(**{parameter: _read(parameter, namespace[parameter], types[parameter]) for parameter in types})


def _values(namespace: dict[str, Any]) -> list[str]:
    """What may have been meant as a parameter: values, but constants and those of the kernel itself, as IPython's."""
    kinds = (bool, int, float, str, list, dict, type(None))
    return [
        name
        for name, value in namespace.items()
        if isinstance(value, kinds) and not name.startswith("_") and not name.isupper() and name not in ("In", "Out")
    ]


def _read(parameter: str, value: Any, kind: Any) -> Any:
    """Text becomes the list, dict or number that it spells, unless text is wanted. Refuses what pydantic would take for
    a number, or would not explain: papermill's -p makes a number of all that looks like one."""
    wants_text = kind is str or (str in typing.get_args(kind) and typing.get_origin(kind) not in (list, dict))
    if isinstance(value, str) and not wants_text:
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            return value
    if kind is not bool and any(isinstance(leaf, bool) for leaf in _leaves(value)):
        wanted = kind.__name__ if isinstance(kind, type) else kind
        raise InputError(f"{parameter}: takes no true or false (got {value!r}), give it as {wanted}")
    if kind is str and isinstance(value, int | float):
        raise InputError(
            f"{parameter}: input should be text (got {value!r}), papermill's -r leaves what looks like a number as it "
            "is, as quotes do in a file"
        )
    return value


def _leaves(value: Any) -> list[Any]:
    """What a value holds that is neither list nor dict, keys too."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]

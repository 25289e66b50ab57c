"""A notebook's parameters: what its class, its cell and params/ say, and what somebody gives beside them."""

import ast
import contextlib
import copy
import dataclasses
import difflib
import functools
import importlib
import json
import re
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from lib.base.errors import InputError
from lib.base.files import need_file
from lib.base.parameters import PROFILES, Computing, Parameters, Training
from lib.workbook import places

#: YAML 1.1 reads 010 as 8 and 1:30 as 90
OTHER_NUMBER = re.compile(r"[-+]?(0[\d_]+|\d[\d_]*(:[\d_]+)+(\.\d*)?)")

P = TypeVar("P", bound=Parameters)


# ---- as the workbook has them ----------------------------------------------------------------------------------------


def of_kind(kind: type[Parameters], profile: str) -> dict[str, Any]:
    """All parameters of a notebook at a profile: the defaults of its class, over them what its cell shows, which are
    desk's, then params/<profile>/shared.yaml and params/<profile>/<name>.yaml. An addendum's lie over those of the
    profile that it adds to. A notebook that has no file for desk has what its cell says at every profile."""
    fields, paths = kind.model_fields, files(profile, kind.notebook)
    values = {field: about.default for field, about in fields.items() if not about.is_required()}
    if not paths[0].exists():
        values |= of_cell(kind.notebook)
    elif not paths[-1].exists() and profile not in places.ADDS_TO:
        missing = paths[-1].relative_to(places.ROOT)
        raise InputError(f"profile: {profile!r} has no {missing}, use one of {', '.join(PROFILES)}")
    for path in (path for path in paths if path.exists()):
        found = of_file(path, path.name, Training if path.stem == "shared" else kind)
        values |= {field: value for field, value in found.items() if field in fields}
    return {field: values[field] for field in fields if field in values} | {"profile": profile}


def files(profile: str, name: str) -> list[Path]:
    """Where a notebook's parameters at a profile stand beside its class, desk's first, which its cell shows, each over
    those before it; some may not be there."""
    layers = [("desk", name)]
    for one in filter(None, (places.ADDS_TO.get(profile), profile)):
        layers += [(one, "shared"), (one, name)]
    return [places.PARAMS / folder / f"{stem}.yaml" for folder, stem in layers]


def shown(kind: type[Parameters]) -> dict[str, Any]:
    """What a notebook's cell shows before somebody edits it; nothing where it has no file for desk."""
    path = places.PARAMS / "desk" / f"{kind.notebook}.yaml"
    return of_file(path, kind.notebook, kind) if path.exists() else {}


def of_file(path: Path | str, name: str, kind: type[Parameters] | None = None) -> dict[str, Any]:
    """A notebook's parameters in a file. Of somebody else's, ask this before papermill has it: papermill writes the
    names in it into the notebook as they are, so that a name may be code, which runs before the notebook can look.
    Nor can the notebook see what YAML makes another number of, or which of two values a name had."""
    path, kind = Path(path), kind or kind_of(name)
    need_file("profile", path)
    try:
        text = path.read_text(encoding="utf-8")
        parameters = _parsed(text)
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"profile: {path} cannot be read as YAML ({' '.join(str(error).split())}), mend it") from None
    if not isinstance(parameters, dict):
        raise InputError(f"profile: {path} is no list of names and values, write 'name: value' on each line")
    check_names(name, map(str, parameters), kind.model_fields)
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
    return kind(**{**of_kind(kind, profile), **changes})


def kind_of(name: str) -> type[Parameters]:
    """The class that a notebook gives to ``notebook.start``; of one that does not start, what all have that compute."""
    tree = ast.parse("\n".join(_sources(name, "check")))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "notebook.start"]
    if not calls:
        return Computing
    wanted = ast.unparse(calls[0].args[0])
    (module,) = (
        str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and wanted in [alias.name for alias in node.names]
    )
    return getattr(importlib.import_module(module), wanted)


def of_cell(name: str) -> dict[str, Any]:
    """The values in a notebook's parameters cell; none where there is no such notebook."""
    if not (places.NOTEBOOKS / f"{name}.ipynb").exists():
        return {}
    (source,) = _sources(name, "parameters")
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): ast.literal_eval(node.value) for node in assigned if node.value}


def _sources(name: str, tag: str) -> list[str]:
    """The cells of a notebook that have a tag."""
    cells = json.loads((places.NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if tag in cell["metadata"].get("tags", [])]


def check_names(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises InputError for the first name that is no parameter of the notebook ``name``."""
    for parameter in given:
        if parameter not in known:
            close = difflib.get_close_matches(parameter, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
            raise InputError(f"{parameter}: is not a parameter of {name}, {hint}")


# ---- as somebody gives them ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Filled:
    """What a start put into a kernel's namespace, ``over`` what had stood there, after so many ``cells`` had run."""

    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    over: dict[str, Any] = dataclasses.field(default_factory=dict)
    cells: int = 0

    @classmethod
    def into(cls, namespace: dict[str, Any], values: dict[str, Any]) -> "Filled":
        """Puts them there."""
        over = {name: namespace[name] for name in values if name in namespace}
        namespace.update(values)
        return cls(copy.deepcopy(values), over, len(namespace.get("In", [])))

    def take_out(self, namespace: dict[str, Any]) -> None:
        """Puts back what had stood there, where nobody has set it since. Where the parameters cell has run again, what
        it does not set any more goes."""
        since = _assigned(namespace.get("In", [])[self.cells :])
        over = {} if "profile" in since else self.over
        for name, value in self.values.items():
            now = namespace.get(name)
            if name not in since and type(now) is type(value) and now == value:  # no array, say, of a loop by hand
                del namespace[name]
                namespace.update({name: over[name]} if name in over else {})


def given(kind: type[Parameters], namespace: dict[str, Any], fresh: bool, by_hand: bool = False) -> dict[str, Any]:
    """What somebody gives of ``kind``'s parameters in a kernel's namespace: what papermill injected, and what differs
    from what the cell shows before it is edited. Text is read as what ``kind`` says: papermill and YAML may pass
    '[1, 2]' or '3e-4'.

    fresh: the notebook has not been started in it; by_hand: somebody runs its cells. Raises InputError for a value of
    the wrong type, and for a name that is no parameter: what has a type, as all in the parameters cell have, and in a
    fresh namespace what has none, as what papermill injects; by hand, where there may be other values, only what is
    close to a parameter. What is refused is forgotten, or a corrected cell would be too."""
    types = {parameter: field.annotation for parameter, field in kind.model_fields.items()}
    annotations = namespace.get("__annotations__", {})
    untyped = _values(namespace) if fresh else []
    meant = [name for name in untyped if not by_hand or difflib.get_close_matches(name, types, cutoff=0.75)]
    unknown = [name for name in (*annotations, *meant) if name not in types]
    for name in unknown:
        namespace.pop(name, None)
        annotations.pop(name, None)
    check_names(kind.notebook, unknown, types)
    before, injected = shown(kind), _injected(namespace.get("In", []))
    found = {name: _read(name, namespace[name], types[name]) for name in types if name in namespace}
    return {
        name: value for name, value in found.items() if name in injected or name not in before or value != before[name]
    }


def changed(own: Mapping[str, Any], of_profile: Mapping[str, Any], passing: Collection[str] = ()) -> dict[str, Any]:
    """What is other than at the profile, but for what passes: processes, say, change no number."""
    return {
        name: value
        for name, value in own.items()
        if name in of_profile and of_profile[name] != value and name not in passing
    }


def told(p: Parameters, of_profile: Parameters) -> str:
    """A line that says which parameters hold, in the order of the cell; at desk, which it shows, the changed ones.
    Processes change no number."""
    own, cell = p.model_dump(), shown(type(p))
    other = changed(own, of_profile.model_dump(), ["jobs"])
    named = [name for name in {**cell, **own} if name in other or (name in cell and p.profile != "desk")]
    values = [f"{name} {own[name]}{' (changed)' * (name in other)}" for name in named if name != "profile"]
    return f"{p.profile}: {', '.join(values) or 'all parameters as above'}"


def _injected(cells: list[str]) -> set[str]:
    """The names that the cell assigns which papermill puts behind the parameters cell. It begins like that one, and its
    names have no types."""
    begin = max((i for i, cell in enumerate(cells) if re.search(r"^profile\s*:", cell, re.MULTILINE)), default=-1)
    return _assigned([cell for cell in cells[begin + 1 :] if cell.startswith("# Parameters")][-1:])


def _assigned(cells: Iterable[str]) -> set[str]:
    """The names that these cells set, loops and the like aside."""
    found = set()
    for cell in cells:
        with contextlib.suppress(SyntaxError):  # a magic
            for node in ast.parse(cell).body:
                if isinstance(node, ast.Assign):
                    found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
                elif isinstance(node, ast.AnnAssign):
                    found.add(ast.unparse(node.target))
    return found


def _values(namespace: dict[str, Any]) -> list[str]:
    """What may have been meant as a parameter: values, but constants and those of the kernel itself, as IPython's."""
    return [
        name
        for name, value in namespace.items()
        if isinstance(value, bool | int | float | str | list | dict | None)
        and not name.startswith("_")
        and not name.isupper()
        and name not in ("In", "Out")
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

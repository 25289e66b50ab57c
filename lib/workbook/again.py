"""A notebook run again with the parameters of one of its executed copies: those it was given, and its defaults then."""

import ast
from pathlib import Path
from typing import Any

import nbformat

from lib.base.errors import InputError, in_one_line
from lib.base.provenance import provenance
from lib.workbook.execute import Failed, run
from lib.workbook.notebook import PROVENANCE, ROOT, read_parameters


def again(copy: Path) -> Path:
    """Runs it, prints what differs from the first time, and returns the path of the new copy, NAME.again.ipynb beside
    ``copy``, which stays as it is.

    Figures, tables and claims go where they went then; trained runs are read. Raises InputError, before anything is
    run, for what is no notebook that papermill has executed, and where the workbook no longer has the notebook or one
    of its parameters. Raises Failed where a cell fails."""
    executed = _read(copy)
    commit = next(iter(_noted(executed)), {}).get("commit", "an unknown commit")
    source, parameters = _source(executed, copy, commit), _parameters(executed)
    known = read_parameters("cpu", source.stem)
    for parameter in parameters:
        if parameter not in known:
            raise InputError(f"{parameter}: is no longer a parameter of {source.stem}, check out {commit}")
    now = provenance()["commit"]
    if commit != now or now.endswith("-dirty"):
        print(f"{copy.name} is of {commit}, the workbook is at {now}: numbers may differ where the code does")
    if new := [parameter for parameter in known if parameter not in parameters]:
        print(f"{', '.join(new)}: not a parameter of {source.stem} then, taken as the notebook has it")
    place = copy.absolute().with_name(f"{copy.stem}.again.ipynb")
    print(f"notebook   {place}", flush=True)
    run(source, place, parameters)
    return place


def _read(copy: Path) -> nbformat.NotebookNode:
    try:
        executed = nbformat.read(copy, as_version=4)
    except OSError as error:
        raise InputError(f"COPY: {copy} cannot be read ({error.strerror}), name an executed notebook") from None
    except Exception:  # nbformat has many names for it
        raise InputError(f"COPY: {copy} is not a notebook, name an executed one") from None
    if "input_path" not in executed.metadata.get("papermill", {}):
        raise InputError(f"COPY: {copy} was not executed by papermill, name one of those under outputs/notebooks")
    return executed


def _source(executed: nbformat.NotebookNode, copy: Path, commit: str) -> Path:
    """The notebook of the workbook that it is a copy of."""
    path = ROOT / "notebooks" / Path(executed.metadata.papermill.input_path).name
    if not path.exists():
        was = f"COPY: {copy} was made from notebooks/{path.name}"
        raise InputError(f"{was}, which is no longer there, check out {commit}")
    return path


def _parameters(executed: nbformat.NotebookNode) -> dict[str, Any]:
    """The values in its parameters cell, and over them those that papermill was given."""
    defaults: dict[str, Any] = {}
    for cell in executed.cells:
        if "parameters" in cell.metadata.get("tags", []):
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                    defaults[node.target.id] = ast.literal_eval(node.value)
    return {**defaults, **executed.metadata.papermill.parameters}


def _noted(executed: nbformat.NotebookNode) -> list[dict[str, Any]]:
    """The provenance that ``notebook.start`` left in it."""
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    return [output.data[PROVENANCE] for output in outputs if PROVENANCE in output.get("data", {})]


def main(copy: str) -> None:
    """``again`` for the Makefile."""
    stopped = "stopped, what was begun goes on from its checkpoints with the same command"
    in_one_line(again, Path(copy), stopped=stopped, complaints=(Failed,))

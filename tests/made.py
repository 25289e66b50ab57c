"""What a notebook that was run must have left: its figures, tables and claims, each stamped, and its plan."""

import ast
import json
from fnmatch import fnmatch
from pathlib import Path

import nbformat
import PIL.Image

from lib.sweep import measurements
from lib.workbook import claims, parameters, plans
from lib.workbook.plans import read_plan
from tests.workbooks import ROOT

NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
#: of nb.save and the like: folder -> the kinds of files that it writes beside the JSON with their provenance
KINDS = {"figures": (".png", ".pdf"), "tables": (".csv",)}
LEDGER = claims.ledger(ROOT / "params" / "claims.yaml")


def read(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def cells(name, tag=None):
    """The code cells of a committed notebook, those with a tag where one is given."""
    code = [cell for cell in read(name).cells if cell.cell_type == "code"]
    return [cell for cell in code if tag in cell.metadata.get("tags", [])] if tag else code


def named(name: str) -> dict[str, list[str]]:
    """Folder -> the names of figures and tables that a notebook's cells say they write, with * for what they fill in;
    those under an ``if`` are left out, as they depend on a parameter."""
    found: dict[str, list[str]] = {"figures": [], "tables": []}
    for cell in cells(name):
        tree = ast.parse(cell.source)
        optional = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name("nb"), attr="save" | "slide" | "save_table" as how)):
                    folder = "tables" if how == "save_table" else "figures"
                    match node.args[1]:
                        case ast.Constant(value=text):
                            pattern = text
                        case ast.JoinedStr(values=parts):
                            pattern = "".join(part.value if isinstance(part, ast.Constant) else "*" for part in parts)
                    found[folder] += [pattern] if id(node) not in optional else []
    return found


def check(outputs: Path, name: str) -> None:
    """Of a notebook that make ran at smoke: all its parameters are those of the profile, but for the processes."""
    copy = nbformat.read(outputs / "notebooks" / "smoke" / f"{name}.ipynb", 4)
    shown = [output for cell in copy.cells for output in cell.get("outputs", [])]
    assert not [output for output in shown if output.output_type == "error"]
    smoke = parameters.at_profile(parameters.kind_of(name), "smoke").model_dump()
    expected = {**json.loads(json.dumps(smoke)), "jobs": None}
    ours: dict[str, list[str]] = {}
    for folder, kinds in KINDS.items():
        stamps = {path: json.loads(path.read_text()) for path in (outputs / folder / "smoke").glob("*.json")}
        stamps = {path: stamp for path, stamp in stamps.items() if stamp["notebook"] == name}
        ours[folder] = [path.stem for path in stamps]
        for pattern in named(name)[folder]:
            assert [stem for stem in ours[folder] if fnmatch(stem, pattern)], f"{folder}: {pattern} was not made"
        for path, stamp in stamps.items():
            assert {**stamp["parameters"], "jobs": None} == expected and {"commit", "torch", "device"} <= stamp.keys()
            assert all(path.with_suffix(kind).stat().st_size > 0 for kind in kinds), path.stem
            if folder == "figures":
                assert json.loads(PIL.Image.open(path.with_suffix(".png")).text["Description"]) == stamp
                assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert ours["figures"], "a notebook without a figure"
    pictures = sum("image/png" in output.get("data", {}) for output in shown)
    assert pictures == len(ours["figures"]), f"{pictures} figures are shown, {len(ours['figures'])} written"
    for claim in LEDGER.values():
        folders = {"smoke": claim.notebook == name, "smoke/published": claim.published == name}
        for folder in [folder for folder, asked in folders.items() if asked]:
            finding = claims.read(outputs / "claims" / folder / f"{claim.id}.json")
            assert finding.verdict == claims.UNJUDGED and finding.provenance["notebook"] == name
            assert {**finding.provenance["parameters"], "jobs": None} == expected
            shows = claim.figure if folder == "smoke" else claim.published_figure
            assert not shows or shows in ours["figures"], f"{claim.id}: {shows} is no figure of {name}"
    streams = "".join(output.text for output in shown if output.output_type == "stream")
    trains = any("nb.sweep(" in cell.source for cell in cells(name))
    assert ("ended as diverged" in streams) == trains and "FLOP/s" not in streams  # one line, not the bar's many


def check_plan(outputs: Path, name: str, plan: plans.Plan) -> None:
    """What it ran is what its plan says without running it, and every run and measurement of that is kept."""
    executed = read_plan(outputs / "plans" / "smoke" / f"{name}.json")
    measured = executed.get("measurements", {})
    assert [cfg.key for cfg in plan.runs] == [*executed.get("runs", {})]
    assert all((outputs / "runs" / cfg.key / "result.json").exists() for cfg in plan.runs)
    for function, cases in plan.measurements.items():  # others are known only when the runs are there
        assert cases.items() <= measured[function].items()
        kept = {path.stem for path in (outputs / "measured" / function).glob("*.json")}
        assert measured[function].keys() <= kept
    # what is not asked for before anything is trained is in no record, and cannot be drawn from one
    asked = {(measurements.name(one.function), one.key) for one in plan.asked}
    assert {(function, key) for function, cases in measured.items() for key in cases} <= asked

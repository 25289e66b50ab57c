"""Executed notebooks as HTML pages that open from disk: no script, no network, formulas as MathML."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from latex2mathml.converter import convert as mathml
from markupsafe import Markup, escape

import lib
from lib.base import files
from lib.base.errors import InputError
from lib.workbook.execute import without_grammar

if TYPE_CHECKING:
    from nbconvert import HTMLExporter
    from nbformat import NotebookNode

ROOT = Path(lib.__file__).parent.parent
TEMPLATES = Path(__file__).parent / "templates"
#: what of an output is shown, the best first; scripts and widgets would need a network
SHOWN = ["text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain"]


def template(name: str) -> jinja2.Template:
    """A template of lib/templates; what it is given is escaped, and a name it is not given is an error."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(name)


def formula(tex: str, display: str = "inline") -> Markup:
    """A formula as MathML, or its source where it is beyond the converter."""
    try:
        plain = re.sub(r"\\[bB]ig[lr]?(?![a-z])", "", tex)  # without a font for mathematics large brackets stand askew
        return Markup(mathml(plain, display=display))
    except Exception:  # it raises whatever it stumbles over
        return Markup("<code>{}</code>").format(tex)


def title(notebook: Path) -> Markup:
    """The heading a notebook begins with, its formulas as MathML."""
    source = "".join(json.loads(notebook.read_text())["cells"][0]["source"])
    parts = re.split(r"\$(.+?)\$", source.partition("\n")[0].lstrip("# "))
    return Markup("").join(formula(part) if at % 2 else escape(part) for at, part in enumerate(parts))


def failure(executed: Path) -> str:
    """Why an executed copy did not run to its end, in a line; empty where the mark beside it says that it did.

    ``page`` comes first: it says what is no notebook."""
    if executed.with_name(f".{executed.stem}.done").exists():
        return ""
    outputs = [output for cell in json.loads(executed.read_text())["cells"] for output in cell.get("outputs", [])]
    errors = [output for output in outputs if output["output_type"] == "error"]
    if not errors:
        return "it was stopped before its end, or is still running"
    text = " ".join(f"{errors[-1]['ename']}: {errors[-1]['evalue']}".split())
    return _without_root(text if len(text) <= 300 else f"{text[:300]} ...")


def page(executed: Path, path: Path) -> None:
    """Writes an executed copy as HTML, unless the page there is of this copy and this code.

    Raises InputError where the copy cannot be read."""
    made = max(p.stat().st_mtime_ns for p in (executed, Path(__file__), *TEMPLATES.iterdir()))
    if path.exists() and path.stat().st_mtime_ns == made:
        return
    content = _read(executed)
    heading = re.sub(r"[#$*]", "", content.cells[0].source.partition("\n")[0]).strip() if content.cells else ""
    body = _without_root(_exporter().from_notebook_node(content)[0])
    text = template("notebook.html.j2").render(
        title=heading or executed.stem, name=executed.stem, profile=executed.parent.name, body=Markup(body)
    )
    with files.replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
        os.utime(draft, ns=(made, made))  # so that a copy that was changed meanwhile is converted next time


def _read(executed: Path) -> "NotebookNode":
    without_grammar()
    import nbformat  # takes seconds, and is needed for new pages alone

    try:
        notebook = nbformat.read(executed, 4)
    except Exception as error:  # among them those of nbformat for what is JSON, but no notebook
        reason = str(error).partition("\n")[0][:100] or type(error).__name__
        raise InputError(f"{executed}: cannot be read ({reason})") from None
    for cell in notebook.cells:
        if "outputs" in cell:  # the provenance is for machines, and nbconvert would warn of it once a notebook
            cell.outputs = [output for output in cell.outputs if "data" not in output or {*SHOWN} & output.data.keys()]
    return notebook


def _exporter() -> "HTMLExporter":
    from nbconvert import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
    from traitlets.config import Config

    class Renderer(IPythonRenderer):
        def inline_math(self, body: str) -> str:
            return formula(body)

        def block_math(self, body: str) -> str:
            return formula(body, "block")

    def markdown(source: str) -> str:
        return MarkdownWithMath(Renderer(escape=False, exclude_anchor_links=True)).render(source)

    shown = {"display_data_priority": SHOWN}
    config = Config({"NbConvertBase": shown, "CoalesceStreamsPreprocessor": {"enabled": True}})  # one bar, not hundreds
    return HTMLExporter(config=config, template_name="basic", filters={"markdown2html": markdown})


def _without_root(text: str) -> str:
    """Tracebacks and warnings say where on this machine the workbook lies, which is nobody's business."""
    return text.replace(f"{ROOT}{os.sep}", "")

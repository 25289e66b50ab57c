"""Executed notebooks as HTML pages that open from disk: without scripts and network, with formulas as MathML."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jinja2
from latex2mathml.converter import convert as mathml
from markupsafe import Markup, escape

from lib.base import files
from lib.workbook import places, stale
from lib.workbook.make_notebooks import without_grammar

FOLDER = Path(__file__).parent / "templates"
#: kinds of output that a page can show, the best first; scripts and widgets would need a network
SHOWN = ["text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain"]

#: escape what they are given; a name that they are not given is an error
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FOLDER),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


def formula(tex: str, display: str = "inline") -> Markup:
    """A formula as MathML, or its source where it is beyond the converter."""
    try:
        # large brackets stand askew without a font for mathematics
        return Markup(mathml(re.sub(r"\\[bB]ig[lr]?(?![a-z])", "", tex), display=display))
    except Exception:  # it raises whatever it stumbles over
        return Markup("<code>{}</code>").format(tex)


def title(notebook: Path) -> Markup:
    """The heading a notebook begins with, its formulas as MathML."""
    source = "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"])
    parts = re.split(r"\$(.+?)\$", source.partition("\n")[0].lstrip("# "))
    return Markup("").join(formula(part) if at % 2 else escape(part) for at, part in enumerate(parts))


def failure(executed: Path) -> str:
    """Why an executed copy did not run to its end, in one line; empty where the mark beside it says that it did.

    The copy must be a notebook, which ``page`` makes sure of."""
    if executed.with_name(f".{executed.stem}.done").exists():
        return ""
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
    errors = [one for cell in cells for one in cell.get("outputs", []) if one["output_type"] == "error"]
    if not errors:
        return "it was stopped before its end, or is still running"
    text = " ".join(f"{errors[-1]['ename']}: {errors[-1]['evalue']}".split())
    return _without_root(text if len(text) <= 300 else f"{text[:300]} ...")


def page(executed: Path, path: Path) -> None:
    """Writes an executed copy as an HTML page to ``path``.

    Where it is there, and nothing that it is made from has changed, nothing is done. Raises ValueError where the copy
    is no notebook."""
    mark, own = path.with_name(f".{path.name}{stale.MARK}"), [FOLDER / "notebook.html.j2", FOLDER / "style.css"]
    sources = stale.checksum([executed, Path(__file__), places.PYPROJECT, *own], stale.packages())
    if stale.unchanged(mark, sources, [path]):
        return
    heading, body = _in_html(executed)
    text = TEMPLATES.get_template("notebook.html.j2").render(
        title=heading or executed.stem,
        name=executed.stem,
        profile=executed.parent.name,
        binder=places.binder(executed.stem),
        # notebooks that it links to have pages beside it
        body=Markup(re.sub(r'href="(\w+)\.ipynb"', r'href="\1.html"', _without_root(body))),
    )
    files.write(path, text.encode())
    stale.note(mark, sources, [path])


def _in_html(executed: Path) -> tuple[str, str]:
    """(the heading of an executed copy, its cells in HTML). Raises ValueError where it is no notebook."""
    without_grammar()  # what follows takes seconds to import, and only new pages need it
    import nbformat
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    try:
        notebook = nbformat.read(executed, 4)
    except Exception as error:  # nbformat has many, for what is JSON and no notebook
        raise ValueError(str(error).partition("\n")[0][:100] or type(error).__name__) from None
    for cell in notebook.cells:
        if "outputs" in cell:  # nbconvert would warn of an output of which nothing can be shown
            cell.outputs = [output for output in cell.outputs if "data" not in output or {*SHOWN} & output.data.keys()]
    config = Config(
        NbConvertBase={"display_data_priority": SHOWN},
        CoalesceStreamsPreprocessor={"enabled": True},  # one bar, not hundreds
    )
    exporter = HTMLExporter(config=config, template_name="basic", filters={"markdown2html": markdown()})
    heading = notebook.cells[0].source.partition("\n")[0] if notebook.cells else ""
    return re.sub(r"[#$*]", "", heading).strip(), exporter.from_notebook_node(notebook)[0]


def markdown(address: Callable[[str], str] = str) -> Callable[[str], str]:
    """What makes HTML of Markdown, with formulas as MathML. ``address``: where what a link names lies, "" where it
    is nowhere, and its words stand alone."""
    without_grammar()
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def inline_math(self, body: str) -> str:
            return formula(body)

        def block_math(self, body: str) -> str:
            return formula(body, "block")

        def link(self, text: str, url: str, title: str | None = None) -> str:
            return super().link(text, address(url), title) if address(url) else text

    return lambda source: MarkdownWithMath(Renderer(escape=False, exclude_anchor_links=True)).render(source)


def _without_root(text: str) -> str:
    """The text without the path of the workbook on this machine, which tracebacks and warnings tell."""
    return text.replace(f"{places.ROOT}/", "")

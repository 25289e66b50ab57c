"""The README's table of notebooks, read from the notebooks themselves.

``python -c 'from lib.overview import write; write()'`` fills it, and a test sees that it is what they say.
"""

import re
from pathlib import Path

import nbformat

from lib import claims, scale
from lib.notebook import ROOT

README = ROOT / "README.md"
PLACE = re.compile(r"(Sec\.|App\.|Figs?\.|Tables?|the figure|the table|Alg\.|Eq\.).*")  # in a paper


def heading(name: str) -> tuple[str, str]:
    """(a notebook's title, where in its paper the claim stands, empty where none does), from its first cell."""
    text = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells[0].source
    title = text.partition("\n")[0].removeprefix("# ")
    claim = re.search(r"\*\*Claim\*\* \((.*?)\)[.:]\s", text)
    where = PLACE.search(claim.group(1)) if claim else None
    return title, where.group() if where else ""


def notebooks() -> str:
    """One row a notebook: its file, its paper and where the claim stands there, and what it asks, in Markdown."""
    rows = []
    ledger = claims.ledger(ROOT / "params" / "claims.yaml").values()
    for paper, names in scale.NOTEBOOKS.items():
        for name in names:
            title, where = heading(name)
            papers = sorted({claim.paper for claim in ledger if claim.notebook == name}) or [paper]
            place = ", ".join(filter(None, [*papers, where]))
            rows.append([f"[{name}](notebooks/{name}.ipynb)", place, title])
    return scale.table(["notebook", "document, where", "what it asks"], rows)


def write(path: Path = README) -> None:
    path.write_text(scale.filled(path.read_text(), {"notebooks": notebooks()}))

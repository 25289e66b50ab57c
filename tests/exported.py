"""Writes each notebook's cells as a module that mypy reads with lib's types: ``python -m tests.exported FOLDER``."""

import sys
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"

#: what IPython puts beside a notebook's own names
GIVEN = "from IPython.display import display\n"


def export(folder: Path) -> None:
    """A module for each notebook, all its code cells in a row."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        sources = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
        (folder / path.with_suffix(".py").name).write_text("\n\n".join([GIVEN, *sources]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    export(Path(sys.argv[1]))

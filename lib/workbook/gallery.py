"""What can be looked at before anything is installed: desk's executed notebooks in docs/notebooks/, and a figure of
each paper in docs/gallery/. ``make gallery`` writes them from outputs of desk, at releases.

A copy of a notebook has what its cells printed and drew, without times and paths of a machine. Its figures are smaller
than those of outputs/ (``DPI``) and have palettes (``COLOURS``), so that all copies together stay a few megabytes.
"""

import base64
import io
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from lib.base import files
from lib.base.errors import InputError, in_one_line
from lib.figures import style
from lib.workbook import places, plans

NOTEBOOKS, PICTURES = places.ROOT / "docs" / "notebooks", places.ROOT / "docs" / "gallery"
DPI, COLOURS = 120, 256


def write(outputs: Path) -> None:
    """Writes both folders. Raises InputError, before anything is written, for a notebook that has not run to its end,
    and for a picture that is not there."""
    executed, figures = outputs / "notebooks" / "desk", outputs / "figures" / "desk"
    for name in plans.names("desk"):
        if not (executed / f".{name}.done").exists():
            raise InputError(f"{name}: has not run at desk, run make reproduce-figures first")
    pictures = {path: figures / path.name for path in PICTURES.glob("*.png")}
    for figure in pictures.values():
        if not figure.exists():
            raise InputError(f"{figure}: is not there, draw it or remove its copy from docs/gallery/")
    for name in plans.names("desk"):
        text = nbformat.writes(shown(nbformat.read(executed / f"{name}.ipynb", as_version=4)))
        # tracebacks would tell where the workbook is
        files.write(NOTEBOOKS / f"{name}.ipynb", text.replace(f"{places.ROOT}/", "").encode())
    for path, figure in pictures.items():
        with Image.open(figure) as image:
            stamp = PngInfo()
            stamp.add_text("Description", image.info["Description"])
            files.write(path, _with_palette(image.convert("RGB"), pnginfo=stamp))


def shown(notebook: Any) -> Any:
    """An executed notebook as it is committed: its own cells, what they printed and drew."""
    notebook.metadata.pop("papermill", None)
    notebook.cells = [cell for cell in notebook.cells if "injected-parameters" not in cell.metadata.get("tags", [])]
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                width = output.metadata["image/png"]["width"]
                data["image/png"] = smaller(data["image/png"], round(width * DPI / style.SCREEN_DPI))
    return notebook


def smaller(picture: str, width: int) -> str:
    """A PNG in base64, so many pixels wide, with a palette."""
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        height = round(image.height * width / image.width)
        small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    return base64.b64encode(_with_palette(small)).decode()


def _with_palette(image: Image.Image, **stamp: PngInfo) -> bytes:
    """As a PNG of ``COLOURS`` colours."""
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(content := io.BytesIO(), "PNG", optimize=True, **stamp)
    return content.getvalue()


def main() -> None:
    """For the Makefile."""
    in_one_line(lambda: write(places.ROOT / "outputs"))
    print("notebooks  docs/notebooks/\npictures   docs/gallery/")

"""The pictures of README.md: one figure a paper, made small, with its provenance.

``.venv/bin/python -c 'from lib.workbook.gallery import write; write()'`` takes them from outputs/figures, where their
notebooks have put them, and says which it did not find there.
"""

from pathlib import Path
from typing import NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from lib.workbook import places

GALLERY = places.ROOT / "docs" / "gallery"
WIDTH, COLOURS = 1000, 128  # pixels across, and of a palette that keeps an architecture's colour


class Picture(NamedTuple):
    """Where a picture comes from."""

    notebook: str
    profile: str
    figure: str


#: paper -> its picture
PICTURES = {
    "000": Picture("published_runs", "desk", "published_phi"),
    "001": Picture("instability", "desk", "instability_rates"),
    "002": Picture("residual_scaling_init", "desk", "residual_init_growth"),
    "003": Picture("usage_weighted", "desk", "usage_weighted_ratio"),
    "004": Picture("moe_isoflop", "desk", "moe_isoflop_combined"),
    "005": Picture("published_runs", "desk", "published_others_savings"),
}


def write(outputs: Path = places.ROOT / "outputs", gallery: Path = GALLERY) -> None:
    """Renews the pictures whose figures are there."""
    for paper, picture in PICTURES.items():
        figure = outputs / "figures" / picture.profile / f"{picture.figure}.png"
        if figure.exists():
            shrink(figure, gallery / f"{paper}.png")
        else:
            print(f"{paper}: run make reproduce-figures PROFILE={picture.profile} ONLY={picture.notebook} first")


def shrink(figure: Path, small: Path) -> None:
    """A figure, at most ``WIDTH`` wide, in ``COLOURS`` colours, with what its notebook wrote into it."""
    with Image.open(figure) as image:
        note = PngInfo()
        note.add_text("Description", str(image.info["Description"]))
        width = min(WIDTH, image.width)
        size = width, round(image.height * width / image.width)
        flat = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        flat = flat.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        flat.save(small, optimize=True, pnginfo=note)

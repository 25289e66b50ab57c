"""README's pictures are small, say where they come from, and are made anew from the figures that are there."""

import json

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from lib.figures import style
from lib.workbook import claims, gallery, places
from lib.workbook.findings import cited


def test_every_paper_has_a_picture_of_a_notebook_that_asks_its_claims():
    assert gallery.PICTURES.keys() == cited().keys()
    for paper, picture in gallery.PICTURES.items():
        every = claims.ledger(places.LEDGER).values()
        of_published = [one for one in every if one.published and picture.notebook == claims.OF_PUBLISHED]
        assert paper in {one.paper for one in [*claims.of_notebook(picture.notebook), *of_published]}


def test_a_picture_says_which_notebook_drew_it_at_which_profile():
    assert {path.stem for path in gallery.GALLERY.iterdir()} == gallery.PICTURES.keys()
    for paper, picture in gallery.PICTURES.items():
        with Image.open(gallery.GALLERY / f"{paper}.png") as image:
            stamp = json.loads(image.info["Description"])
        assert (stamp["notebook"], stamp["profile"]) == (picture.notebook, picture.profile), paper


def test_a_picture_shows_what_its_figure_shows(tmp_path, capsys):
    """Every colour within a twelfth of its range, smaller, with the stamp; a figure that is not there is named."""
    figure = Figure(figsize=(7, 3), dpi=200)
    figure.subplots().plot([1, 2, 4], label="loss")
    outputs, small = tmp_path / "outputs", tmp_path / "000.png"
    folder = outputs / "figures" / gallery.PICTURES["000"].profile
    folder.mkdir(parents=True)
    drawn = style.save(figure, folder / gallery.PICTURES["000"].figure, {"notebook": "a"})
    gallery.write(outputs, tmp_path)
    assert [path.name for path in tmp_path.glob("*.png")] == ["000.png"]
    assert "001: run make reproduce-figures PROFILE=" in capsys.readouterr().out
    with Image.open(small) as now, Image.open(drawn) as before:
        assert (
            now.info["Description"] == before.info["Description"]
            and json.loads(now.info["Description"])["notebook"] == "a"
        )
        assert now.width == gallery.WIDTH
        wide = np.asarray(before.convert("RGB").resize(now.size, Image.Resampling.LANCZOS), float)
        assert np.abs(wide - np.asarray(now.convert("RGB"), float)).max() < 256 / 12
    assert small.stat().st_size < drawn.stat().st_size

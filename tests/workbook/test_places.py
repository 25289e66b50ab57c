"""The library finds its workbook from wherever it is imported."""

from lib.workbook import places
from tests.processes import python
from tests.workbooks import ROOT


def test_the_places_are_those_of_this_workbook():
    assert places.ROOT == ROOT and (places.ROOT / "Makefile").is_file()
    assert (places.NOTEBOOKS / "instability.ipynb").is_file() and (places.PARAMS / "smoke").is_dir()
    assert places.LEDGER.is_file()


def test_they_are_the_same_in_another_folder(tmp_path):
    begin = f"import os, sys; sys.path[0] = {str(ROOT)!r}; os.chdir({str(tmp_path)!r})"
    code = f"{begin}; from lib.workbook import places; print(places.ROOT)"
    assert python(code).communicate(timeout=240)[0].strip() == str(ROOT)

"""The library finds its workbook from wherever it is imported, and says where it is published."""

import pytest

from lib.base.errors import InputError
from lib.workbook import places
from lib.workbook.plans import names
from tests.processes import python
from tests.workbooks import ROOT, published_at


def test_the_places_are_those_of_this_workbook_in_another_folder_too(tmp_path):
    assert places.ROOT == ROOT and (places.ROOT / "Makefile").is_file() and places.LEDGER.is_file()
    assert (places.NOTEBOOKS / "instability.ipynb").is_file() and (places.PARAMS / "smoke").is_dir()
    begin = f"import os, sys; sys.path[0] = {str(ROOT)!r}; os.chdir({str(tmp_path)!r})"
    code = f"{begin}; from lib.workbook import places; print(places.ROOT)"
    assert python(code).communicate(timeout=240)[0].strip() == str(ROOT)


def test_binder_opens_desks_notebooks_where_they_are_published_and_nothing_elsewhere(monkeypatch, tmp_path):
    published_at("https://github.com/some-one/looped.lm", monkeypatch, tmp_path)
    assert places.published() == "https://github.com/some-one/looped.lm"
    here = "https://mybinder.org/v2/gh/some-one/looped.lm/HEAD?labpath=notebooks%2Finstability.ipynb"
    assert places.binder("instability") == here and places.binder("of_nobody") == ""
    assert all(map(places.binder, names()))
    published_at("", monkeypatch, tmp_path)
    assert places.published() == "" and not any(map(places.binder, names()))


@pytest.mark.parametrize(
    "place",
    ["github.com/a/b", "http://github.com/a/b", "https://github.com/a", "https://github.com/a/b/", "https://x.org/a/b"]
    + [f"https://github.com/a/b{end}" for end in (".", "/tree/main", "?x", " ")],
)
def test_another_form_is_refused_in_one_line(place, monkeypatch, tmp_path):
    published_at(place, monkeypatch, tmp_path)
    with pytest.raises(InputError, match=r"^repository: .*, mend it in pyproject.toml or empty it$"):
        places.published()

"""A mark tells whether what was made, or what it was made from, has changed; by content, whatever the dates."""

import os

import pytest

from lib.workbook import made_from


@pytest.fixture
def folder(tmp_path):
    for name in ("a.json", "b.json", "made.html"):
        (tmp_path / name).write_text(name)
    made_from.note(tmp_path / ".made.from", sources(tmp_path), [tmp_path / "made.html"])
    return tmp_path


def sources(folder, beside="cpu") -> str:
    return made_from.checksum([folder / "a.json", folder / "b.json"], beside)


def unchanged(folder, beside="cpu") -> bool:
    return made_from.unchanged(folder / ".made.from", sources(folder, beside), [folder / "made.html"])


CHANGES = {
    "another content": lambda at: (at / "a.json").write_text("b"),
    "both contents in one": lambda at: ((at / "a.json").write_text("a.jsonb.json"), (at / "b.json").write_text("")),
    "another name": lambda at: (at / "b.json").rename(at / "c.json"),
    "one less": lambda at: (at / "b.json").unlink(),
    "what was made is another": lambda at: (at / "made.html").write_text("other"),
    "what was made is gone": lambda at: (at / "made.html").unlink(),
    "no mark": lambda at: (at / ".made.from").unlink(),
    "a damaged mark": lambda at: (at / ".made.from").write_text(""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(folder, change):
    assert unchanged(folder)
    CHANGES[change](folder)
    assert not unchanged(folder)


def test_a_change_of_what_else_decides_is_seen(folder):
    assert not unchanged(folder, "gpu")


def test_dates_are_no_change(folder):
    for when in (1, 2**32):
        os.utime(folder / "a.json", (when, when))
        assert unchanged(folder)


def test_the_packages_have_their_versions():
    import numpy

    assert f"numpy-{numpy.__version__}" in made_from.packages().split()

"""A mark tells whether what was made, or what it was made from, has changed; by content, whatever the dates."""

import os

import pytest

from lib.workbook import made_from


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "deep" / "a.json").write_text("a")
    (tmp_path / "from" / ".a.done").touch()
    (tmp_path / "made.html").write_text("page")
    made_from.note(tmp_path / ".made.from", made_from.checksum([tmp_path / "from"], "cpu"), [tmp_path / "made.html"])
    return tmp_path


def unchanged(folder, beside="cpu") -> bool:
    sources = made_from.checksum([folder / "from"], beside)
    return made_from.unchanged(folder / ".made.from", sources, [folder / "made.html"])


CHANGES = {
    "another content": lambda at: (at / "from" / "deep" / "a.json").write_text("b"),
    "another name": lambda at: (at / "from" / "deep" / "a.json").rename(at / "from" / "deep" / "b.json"),
    "another place": lambda at: (at / "from" / "deep" / "a.json").rename(at / "from" / "a.json"),
    "one more": lambda at: (at / "from" / "deep" / "b.json").touch(),
    "one less": lambda at: (at / "from" / ".a.done").unlink(),
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


def test_dates_locks_and_half_written_files_are_no_change(folder):
    path = folder / "from" / "deep" / "a.json"
    for when in (1, 2**32):
        os.utime(path, (when, when))
        assert unchanged(folder)
    (folder / "from" / "__pycache__").mkdir()
    for name in (".lock", ".a.lock", ".a.json.host-1.tmp", "__pycache__/a.pyc.1234", ".a.from"):
        (folder / "from" / name).touch()
    assert unchanged(folder)


def test_two_files_are_not_one_of_both_contents(tmp_path):
    for name, text in {"a": "xy", "b": ""}.items():
        (tmp_path / name).write_text(text)
    before = made_from.checksum([tmp_path])
    for name, text in {"a": "x", "b": "y"}.items():
        (tmp_path / name).write_text(text)
    assert made_from.checksum([tmp_path]) != before


def test_the_packages_have_their_versions():
    import numpy

    assert f"numpy-{numpy.__version__}" in made_from.packages().split()

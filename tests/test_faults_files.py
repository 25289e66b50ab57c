"""A file that is cut, emptied or has a flipped bit is named, and made again or refused.

That each module finds its own damaged files is for that module's tests; these go through files of every kind.
"""

import shutil

import pytest

from lib.base.errors import InputError
from lib.store import records
from tests.kinds import KINDS


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


DAMAGE = {
    "cut": lambda raw: raw[: len(raw) // 2],
    "emptied": lambda raw: b"",
    "a bit of its header": lambda raw: flipped(raw, 8),
    **{f"a bit at {at}/16": lambda raw, at=at: flipped(raw, len(raw) * at // 16) for at in range(1, 16)},
    "a bit at its end": lambda raw: flipped(raw, len(raw) - 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_and_made_again_or_refused(tmp_path, capfd, kind):
    folder, whole = tmp_path / "used", tmp_path / "whole"
    path, use = KINDS[kind](folder)
    shutil.copytree(folder, whole)
    expected = use()
    for name, damage in DAMAGE.items():
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        records._records.cache_clear()  # parts are read once by a process
        path.write_bytes(damage(path.read_bytes()))
        capfd.readouterr()
        complaint = ""
        try:
            found = use()
        except (InputError, OSError) as error:
            complaint = str(error)
            assert "\n" not in complaint
        else:
            assert found == expected
        said = capfd.readouterr().out + complaint
        assert path.name.lstrip(".") in said, f"{name}: {said}"

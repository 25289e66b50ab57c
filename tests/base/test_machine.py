"""A machine is known by what decides the last digits of a number, wherever that can be found out."""

import pytest

from lib.base import machine


@pytest.fixture(autouse=True)
def asked_anew():
    """It is found out once a process."""
    for once in (machine.machine, machine.compiler):
        once.cache_clear()
    yield
    for once in (machine.machine, machine.compiler):
        once.cache_clear()


def test_linux_is_read_processor_by_processor(tmp_path, monkeypatch):
    said = "processor : 0\nmodel name : A Chip: fast\ncpu family : 25\nmodel : 17\nflags : fpu avx2 fma avx512_bf16\n"
    (tmp_path / "cpuinfo").write_text(f"{said}\n{said.replace('Chip', 'Other')}")
    read = machine._of_processor(tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "_of_processor", lambda: read)
    found = machine.machine()
    assert found["cpu"] == "A Chip: fast, cpu family 25, model 17" and found["instructions"] == "avx2 avx512_bf16 fma"


def test_what_cannot_be_found_out_is_empty(tmp_path, monkeypatch):
    assert machine._of_processor(tmp_path / "nothing") == {}
    monkeypatch.setattr(machine, "_of_processor", dict)
    monkeypatch.setattr(machine.platform, "processor", lambda: "arm")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.machine() == {"cpu": "arm", "instructions": "", "compiler": ""} and machine.compiler() == ""

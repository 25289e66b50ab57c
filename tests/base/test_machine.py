"""A machine is known by what decides the last digits of a number, wherever that can be found out."""

from lib.base import machine


def test_linux_is_read_and_what_cannot_be_found_out_is_empty(tmp_path, monkeypatch):
    said = "processor : 0\nmodel name : A Chip: fast\ncpu family : 25\nmodel : 17\nflags : fpu avx2 fma avx512_bf16\n"
    (tmp_path / "cpuinfo").write_text(f"{said}\n{said.replace('Chip', 'Other')}")
    read, nothing = (machine._of_processor(tmp_path / name) for name in ("cpuinfo", "nothing"))
    monkeypatch.setattr(machine, "_of_processor", lambda: read)
    found = machine.machine.__wrapped__()
    assert found["cpu"] == "A Chip: fast, cpu family 25, model 17" and found["instructions"] == "avx2 avx512_bf16 fma"
    monkeypatch.setattr(machine, "_of_processor", lambda: nothing)
    monkeypatch.setattr(machine.platform, "processor", lambda: "arm")
    monkeypatch.setattr(machine, "compiler", lambda: "")
    assert machine.machine.__wrapped__() == {"cpu": "arm", "instructions": "", "compiler": ""}

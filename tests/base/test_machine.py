"""A number's provenance is the commit that was run, the versions, and of the machine what decides its last digits."""

import subprocess

import numpy as np
import torch

import lib
from lib.base import machine
from tests.workbooks import ROOT


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


def test_it_names_the_commit_the_versions_and_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = machine.provenance()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert head.startswith(found["commit"].removesuffix("-dirty"))
    assert (found["torch"], found["numpy"]) == (torch.__version__, np.__version__)
    assert found["device"] == machine.device_name() and found["device"].startswith("cpu ")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    assert machine.provenance()["device"] == "a card"


def test_what_was_sent_to_a_cluster_brings_its_commit(tmp_path, monkeypatch):
    """A worker has no git; and another repository around the library, or named by a hook, is not its own."""
    (tmp_path / "unpacked" / "lib").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", tmp_path, *who, "commit", "-q", "--allow-empty", "-m", "other"], check=True)
    monkeypatch.setattr(lib, "__file__", str(tmp_path / "unpacked" / "lib" / "__init__.py"))
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    assert machine._commit.__wrapped__() == "no git"
    monkeypatch.setenv(machine.COMMIT, "abc1234")
    monkeypatch.setenv("PATH", "")
    assert machine._commit.__wrapped__() == "abc1234"

"""Where a number comes from: the commit, the versions, and what this machine is that decides its last digits."""

import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lib

#: what a machine's class is made of: two of one class compute the same to the last digit
CLASS = ("cpu", "instructions", "compiler", "torch", "numpy", "device")
#: beginnings of the names of instruction sets that compute
SETS = ("sse", "ssse", "avx", "amx", "fma", "f16c", "asimd", "sve", "sme", "bf16", "i8mm")
COMMIT = "LOOPED_LM_COMMIT"  # in the environment of a node of a cluster, to which the library is sent without git


def device_type() -> str:
    """Where models are trained and measured: "cuda" where there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name() -> str:
    """The accelerator's name, or the processor's architecture with the number formats that matter here."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"cpu {platform.machine()} ({'avx512_bf16' if torch.cpu._is_avx512_bf16_supported() else 'no bf16'})"


@functools.cache
def compiler() -> str:
    """The C compiler, the first that is found; empty where there is none."""
    return next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "")


@functools.cache
def machine() -> dict[str, Any]:
    """Processor, its instruction sets, and the C compiler; empty strings for what cannot be found out."""
    said = _of_processor()
    family = "".join(f", {name} {said[name]}" for name in ("cpu family", "model") if name in said)
    flags = said.get("flags", said.get("Features", "")).split()
    version = subprocess.run([compiler(), "--version"], capture_output=True).stdout if compiler() else b""
    return {
        "cpu": said.get("model name", platform.processor()) + family,
        "instructions": " ".join(sorted(flag for flag in flags if flag.startswith(SETS))),
        "compiler": version.decode(errors="replace").partition("\n")[0],
    }


def _of_processor(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """What Linux says of the first processor."""
    first = (path.read_text(encoding="utf-8") if path.exists() else "").strip().split("\n\n")[0]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def provenance() -> dict[str, Any]:
    """Commit, versions and machine: what one needs to know to make a number again."""
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device_name(),
        **machine(),
    }


@functools.cache  # a later commit does not change what this process runs
def _commit() -> str:
    """Of the repository that the library is in; of one around that, or that a variable names, it is none."""
    root = Path(lib.__file__).resolve().parent.parent
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "GIT_CEILING_DIRECTORIES": str(root.parent)
    }
    try:
        commit = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, encoding="utf-8", env=own
        ).stdout.strip()
    except OSError:
        commit = ""
    return commit or os.environ.get(COMMIT, "no git")

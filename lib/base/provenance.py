"""Where a number comes from: the commit, the versions and the device."""

import functools
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lib


def device_name() -> str:
    """The accelerator's name, or the processor's architecture with the number formats that matter here."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    formats = "avx512_bf16" if torch.cpu._is_avx512_bf16_supported() else "no bf16"
    return f"cpu {platform.machine()} ({formats})"


def provenance() -> dict[str, Any]:
    """Commit, versions and device: what one needs to know to make a number again."""
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device_name(),
    }


@functools.cache  # a later commit does not change what this process runs
def _commit() -> str:
    root = Path(lib.__file__).parent.parent
    try:
        describe = ["git", "-C", str(root), "describe", "--always", "--dirty"]
        commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    except OSError:
        commit = ""
    taken = Path(lib.__file__).with_name("commit.txt")  # of a copy that was sent to a cluster
    return commit or (taken.read_text() if taken.exists() else "no git")

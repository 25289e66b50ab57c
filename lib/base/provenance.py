"""Where a number comes from: the commit, the versions and the machine."""

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lib
from lib.base.machine import device_name, machine

COMMIT = "LOOPED_LM_COMMIT"  # in the environment of a node of a cluster, to which the library is sent without git


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
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        describe = ["git", "-C", str(root), "describe", "--always", "--dirty"]
        own["GIT_CEILING_DIRECTORIES"] = str(root.parent)
        commit = subprocess.run(describe, capture_output=True, encoding="utf-8", env=own).stdout.strip()
    except OSError:
        commit = ""
    return commit or os.environ.get(COMMIT, "no git")

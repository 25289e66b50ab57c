"""``kernels.c``, compiled for this machine where that has not been done yet, and called with tensors."""

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lib.base import files
from lib.base.errors import InputError
from lib.base.machine import compiler

SOURCE = Path(__file__).with_name("kernels.c")
#: nothing here lets the compiler assume that there is no nan, or reorder sums that are not marked
FLAGS = [
    *("-O3", "-std=gnu11", "-shared", "-fPIC", "-w", "-fopenmp-simd"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
]
#: the machine's own instructions, or what every machine of its kind has
NATIVE: tuple[list[str], ...] = (["-march=native", "-mprefer-vector-width=512"], ["-mcpu=native"], [])
FORMATS = {torch.float32: [], torch.bfloat16: ["-DBF16"]}

_P, _N, _F, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int  # pointers, sizes, numbers, whether
ARGUMENTS = {
    "matmul": (_P, _N, _N, _P, _N, _N, _P, _N, _N, _N, _N, _I),
    "norm": (_P, _P, _P, _P, _N, _N, _F),
    "norm_backward": (_P, _P, _P, _P, _P, _P, _N, _N),
    "relu2": (_P, _P, _N),
    "relu2_backward": (_P, _P, _P, _N),
    "swiglu": (_P, _P, _P, _N),
    "swiglu_backward": (_P, _P, _P, _P, _P, _N),
    "cross_entropy": (_P, _P, _P, _N, _N, _F, _F, _I),
    "attention": (_P, _P, _P, _P, _P, _P),
    "attention_to_choices": (_P, _P, _P, _P, _P, _P, _P, _P),
    "attention_backward": (_P, _P, _P, _P, _P, _P, _P, _P),
}
#: and of those in fp32 alone
ARGUMENTS_FP32 = {
    "orthogonalize": (_P, _N, _N, _N, _P, _N, _F),
    "muon": (*(_P,) * 6, _N, _N, _N, _P),
    "total_norm": (_P, _P, _N, _P),
    "attention_branch": (*(_P,) * 12, _F, _F, _P),
    "attention_branch_backward": (*(_P,) * 18, _F, _P),
    "mlp_branch": (*(_P,) * 9, _N, _N, _N, _F, _F),
    "mlp_branch_backward": (*(_P,) * 14, _N, _N, _N, _F),
}


@functools.cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The functions for activations of ``dtype``, compiled where this machine has not done so yet; None, and a warning,
    where it cannot."""
    if dtype not in FORMATS:
        return None
    problem = "there is none"
    for native in NATIVE if compiler() else ():
        try:
            found = _loaded([compiler(), *FLAGS, *native, *FORMATS[dtype]])
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error).encode()
            problem = said.decode(errors="replace").strip().rpartition("\n")[2]
            continue
        for name, types in (ARGUMENTS | (ARGUMENTS_FP32 if dtype == torch.float32 else {})).items():
            function = getattr(found, name)
            function.argtypes, function.restype = types, None
        return found
    warnings.warn(
        f"no C compiler works here ({problem}): small models train at half the speed, install gcc", stacklevel=2
    )
    return None


def _loaded(command: list[str]) -> ctypes.CDLL:
    """What ``command`` makes of the source, kept in the user's cache under a name that says all that decides it; used
    and forgotten where that cannot be written."""
    # what the compiler says of itself and of the processor
    given = subprocess.run([*command, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, check=True).stdout
    decides = [SOURCE.read_bytes(), given, *(word.encode() for word in command)]
    name = "kernels-" + hashlib.sha256(b"\0".join(decides)).hexdigest()[:16] + ".so"
    try:
        return ctypes.CDLL(str(_kept(Path.home() / ".cache" / "looped-lm" / name, command)))
    except (OSError, InputError, RuntimeError, subprocess.SubprocessError):  # no home, or one that is full or another's
        with tempfile.TemporaryDirectory(prefix="looped-lm-") as folder:
            return ctypes.CDLL(str(_kept(Path(folder) / name, command)))


def _kept(path: Path, command: list[str]) -> Path:
    """``path``, made by one process at a time where it is not there."""
    if not path.exists():
        files.need_folder(path.parent)
        with files.lock(path.with_suffix(".lock")):
            if not path.exists():
                with files.replacing(path) as draft:
                    subprocess.run([*command, str(SOURCE), "-o", str(draft), "-lm"], capture_output=True, check=True)
    return path


def call(dtype: torch.dtype, name: str, *arguments: Any) -> None:
    """A function of the library; tensors go as pointers, and must be contiguous."""
    getattr(library(dtype), name)(*(x.data_ptr() if isinstance(x, Tensor) else x for x in arguments))

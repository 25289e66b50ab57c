"""make truth: whether keys, verdicts, tables and figures are what they were before the library was made smaller.

``tests/truth.json.xz`` has the keys that every notebook plans at every profile, and of desk, of published runs and of
smoke what ``make reproduce-figures`` made of them: each finding and table, and each figure by what its PDF draws. The
command compares with it, says every difference in a line, and fails where there is one:

    make reproduce-figures && make reproduce-figures PROFILE=smoke && make truth

What is drawn from records is the same on every machine. What smoke trains is so on a machine of one class alone, and is
left out on others. ``python -m tests.truth write`` makes the file anew, of the outputs that are there.
"""

import hashlib
import json
import lzma
import math
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from lib.config import native_precision
from lib.workbook import plans
from lib.workbook.parameters import PROFILES
from tests.test_desk import keys
from tests.workbooks import ROOT

FILE = ROOT / "tests" / "truth.json.xz"
MADE = ("desk", "published", "smoke")  # folders of outputs
TRAINED = "smoke"  # what the machine's own arithmetic decides
#: claims, tables and figures of seconds, which no two runs share
TIMED = ("001-per-sequence-overhead", "depth_sampling_cost", "early_exit_wallclock", "published_models_speed")
TIMED += ("fast_generation", "fast_generation_seconds", "fast_generation_trade", "007-parallel-is-faster")
TIMED += ("007-parallel-speed-up", "007-parallel-beats-leaving-early", "007-parallel-beats-speculation")
TIMED += ("007-speculation-is-faster", "006-exact-text-three-times-faster")
#: of a finding; the rest of its file says who made it, and when
JUDGED = ("verdict", "first", "second", "mean", "low", "high", "measured", "bounds", "again", "seeds", "unit")
RELATIVE = 1e-9  # by which numbers may differ, where sums are taken in another order
POINTS = 1e-5  # of 1/72 inch, by which what is drawn may be moved; a file has six digits of it
STREAM = re.compile(rb"obj\n(<<(?:(?!endobj).)*?>>)\nstream\n(.*?)\nendstream", re.DOTALL)
NUMBER = re.compile(rb"(?<![\w.])-?\d+\.?\d*(?![\w.])")

Truth = dict[str, Any]


def machine() -> str:
    """What decides the last digits of a training."""
    return f"{torch.backends.cpu.get_cpu_capability()}, {native_precision()}, torch {torch.__version__}"


def planned() -> Truth:
    """Profile -> notebook -> how many runs and measurements it plans, with a hash of their keys; on a machine without
    bf16, which some profiles ask for where it is there."""
    with patch("lib.config.native_precision", lambda: "fp32"), patch("torch.cuda.is_available", lambda: False):
        return {profile: {name: keys(name, profile) for name in plans.names(profile)} for profile in PROFILES}


def finding(path: Path) -> Truth:
    said = json.loads(path.read_text())
    return {name: said[name] for name in JUDGED}


def drawn(pdf: bytes) -> list[list[Any]]:
    """Of each stream of a PDF: a hash of its words, how many numbers it has, and two sums of them, by weights of which
    each number has its own. Of an image, which has no numbers, a hash."""
    found: list[list[Any]] = []
    for head, body in STREAM.findall(pdf):
        text = zlib.decompress(body) if b"FlateDecode" in head else body
        if b"/Subtype /Image" in head:
            found.append([hashlib.sha256(text).hexdigest(), 0, 0.0, 0.0])
            continue
        numbers = np.array([float(x) for x in NUMBER.findall(text)])
        at = np.arange(len(numbers))
        words = hashlib.sha256(NUMBER.sub(b"#", text)).hexdigest()
        found.append([words, len(numbers), float(numbers @ np.cos(at)), float(numbers @ np.sin(at))])
    return found


def made(outputs: Path, profile: str) -> Truth:
    kinds = {
        "findings": ("claims", "json", finding),
        "tables": ("tables", "csv", Path.read_text),
        "figures": ("figures", "pdf", lambda path: drawn(path.read_bytes())),
    }
    return {
        kind: {one.stem: of(one) for one in sorted(outputs.glob(f"{place}/{profile}/*.{end}")) if one.stem not in TIMED}
        for kind, (place, end, of) in kinds.items()
    }


def truth(outputs: Path) -> Truth:
    return {"machine": machine(), "keys": planned()} | {profile: made(outputs, profile) for profile in MADE}


def differences(was: Any, now: Any, where: str = "") -> Iterator[str]:
    """A line for each place in which two truths differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted(was.keys() | now.keys()):
            here = f"{where}/{name}"
            if name not in now or name not in was:
                yield f"{here}: is {'gone' if name in was else 'new'}"
            elif where.endswith("/figures"):
                yield from [f"{here}: is drawn otherwise"] * (not same_drawing(was[name], now[name]))
            else:
                yield from differences(was[name], now[name], here)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for i, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{where}[{i}]")
    elif isinstance(was, str) and isinstance(now, str) and was.count("\n") > 1:
        yield from differences(was.splitlines(), now.splitlines(), where)
    elif not same(was, now):
        yield f"{where}: was {was!r:.90}, is {now!r:.90}"


def same(was: Any, now: Any) -> bool:
    if isinstance(was, float) and isinstance(now, float):
        return was == now or math.isclose(was, now, rel_tol=RELATIVE) or (math.isnan(was) and math.isnan(now))
    return bool(was == now)


def same_drawing(was: list[list[Any]], now: list[list[Any]]) -> bool:
    return len(was) == len(now) and all(
        one[:2] == other[:2] and math.dist(one[2:], other[2:]) <= POINTS * math.sqrt(1 + one[1])
        for one, other in zip(was, now, strict=True)
    )


def main() -> None:
    now = truth(ROOT / "outputs")
    if sys.argv[1:] == ["write"]:
        FILE.write_bytes(lzma.compress(json.dumps(now, sort_keys=True).encode(), preset=9))
        return
    was = json.loads(lzma.decompress(FILE.read_bytes()))
    there = [name for name in MADE if any(now[name].values()) and (name != TRAINED or was["machine"] == now["machine"])]
    for name in [name for name in MADE if name not in there]:
        print(f"{name}: not compared: outputs/ has none, or another class of machine made it ({was['machine']})")
    found = [line for name in ("keys", *there) for line in differences(was[name], now[name], name)]
    print("\n".join(found) or f"keys, {', '.join(there)}: as they were")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()

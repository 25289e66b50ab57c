"""docs/testing.md, as make mutants fills it: the score, what only a stage noticed, and what nothing did."""

import collections
import hashlib
import re
from pathlib import Path

from tests.mutants.faults import ROOT, SEED, Mutant, modules, named, source_of
from tests.mutants.notes import STAGES, noticed

DOCUMENT = ROOT / "docs" / "testing.md"
UNREAD = "not looked at yet"


def fingerprint(root: Path) -> str:
    """The start of a SHA-256 over the modules that are measured."""
    texts = [module.encode() + source_of(root, module).read_bytes() for module in modules(root)]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def blocks(text: str) -> dict[str, str]:
    """What stands between the marks of the document, an entry a line."""
    found = re.findall(r"<!-- (\w+) -->\n(.*?)\n?<!-- /\1 -->", text, re.DOTALL)
    return {mark: block.replace("\n  ", " ") for mark, block in found}


def spread(entry: str) -> str:
    """A fault over lines: where it is, what stood there, what stands there instead, and who noticed or why nobody."""
    return re.sub(r"^(- `.+?`,) (`.+?`) (becomes `.*?`:) (.*)$", r"\1\n  \2\n  \3\n  \4", entry)


def reasons(text: str) -> dict[str, str]:
    """Of each fault that the document names as unnoticed: why no test notices it."""
    return dict(re.findall(r"^- (`.+?`, `.+?` becomes `.*?`): (.*)$", blocks(text)["survivors"], re.M))


def results(faults: int, sample: list[Mutant], known: dict, root: Path) -> dict[str, str | int]:
    """The lines of the score."""
    notes = [noticed(fault, known) for fault in sample]
    by = collections.Counter(note["stage"] for note in notes if note)
    tried = [fault for fault in sample if any((fault.key, name) in known for name in STAGES)]
    return {
        f"faults in {len(modules(root))} modules": faults,
        f"drawn with seed {SEED}": len(sample),
        "noticed by the twin": by["twin"],
        "tried on the stages": len(tried),
        **{f"noticed by `make {name}`": by[name] for name in STAGES},
        "noticed in all": by.total(),
        "of these by a time limit": sum(note["end"] == "killed by the limit" for note in notes if note),
        "score": f"{by.total() / len(sample):.1%}",
        "measured at": fingerprint(root),
    }


def filled(text: str, score: dict[str, str | int], stages: list[str], survivors: list[str]) -> str:
    """The document with other results; the reason that it gives for a survivor is kept."""
    known = reasons(text)
    lines = {
        "score": ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in score.items())],
        "stages": stages,
        "survivors": [f"- {name}: {known.get(name, UNREAD)}" for name in survivors],
    }
    for mark, block in lines.items():
        block = "\n".join([f"<!-- {mark} -->", *map(spread, block), f"<!-- /{mark} -->"])
        text = re.sub(rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _, b=block: b, text, flags=re.DOTALL)
    return text


def write(place: Path, faults: int, sample: list[Mutant], known: dict) -> None:
    root, stages, survivors = place / "snapshot", [], []
    for fault in sample:
        note = noticed(fault, known)
        if note is None:
            survivors.append(named(root, fault))
        elif note["stage"] != "twin":
            by = f", `{note['by']}`" if note["by"] else ""
            stages.append(f"- {named(root, fault)}: `make {note['stage']}`{by}")
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), results(faults, sample, known, root), stages, survivors))

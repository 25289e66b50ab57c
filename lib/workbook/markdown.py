"""Tables in Markdown, and documents whose generated parts stand between marks."""

import re
from collections.abc import Mapping, Sequence


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of heading -> cell, all with the same headings."""
    headings = [*rows[0]]
    lines = [headings, ["---"] * len(headings), *(row.values() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escaped(text: str) -> str:
    """Plain text for a cell or a link, whose asterisks, bars and angles are no marks."""
    return re.sub(r"([*|<>])", r"\\\1", text)


def filled(text: str, parts: Mapping[str, str]) -> str:
    """The text with each part put between ``<!-- NAME -->`` and ``<!-- /NAME -->``, in place of what stands there.

    Raises ValueError where the marks of a part are missing."""
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{name}: the document has no marks of this name")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{part}\n{end}{rest.partition(end)[2]}"
    return text

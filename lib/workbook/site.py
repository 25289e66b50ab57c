"""``make site``: the report and all that it leads to, as a folder that any server of files shows, GitHub Pages too.

What nothing leads to stays behind, and a link that leads nowhere is an error: the folder is whole, or is not made.
"""

import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lib.base import files
from lib.base.errors import InputError, in_one_line
from lib.workbook import places
from lib.workbook.renew import renew

ADDRESSES = ("href", "src")


class Page(HTMLParser):
    """What a page leads to, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ADDRESSES and value and not urlsplit(value).scheme:
                self.links.append(value)
            if name == "id" and value:
                self.places.add(value)


def reached(folder: Path) -> list[Path]:
    """The files, relative to the folder, that its index.html leads to, itself first. Raises InputError for a link to
    what is not there, or that leaves the folder."""
    found: dict[Path, Page | None] = {}
    asked: list[tuple[Path, str, Path]] = []  # where a link stands, its place in the file, the file
    todo = [Path("index.html")]
    while todo:
        path = todo.pop(0)
        if path in found:
            continue
        found[path] = Page((folder / path).read_text(encoding="utf-8")) if path.suffix == ".html" else None
        page = found[path]
        for link in page.links if page else ():
            parts = urlsplit(link)
            target = (folder / path.parent / unquote(parts.path)).resolve() if parts.path else (folder / path).resolve()
            if not target.is_relative_to(folder.resolve()) or not target.is_file():
                raise InputError(f"site: {path} leads to {link}, which is not there, run make report again")
            relative = target.relative_to(folder.resolve())
            asked.append((path, unquote(parts.fragment), relative))
            todo.append(relative)
    for path, place, target in asked:
        there = found[target]
        if place and not (there and place in there.places):
            raise InputError(f"site: {path} leads to {target}#{place}, and there is no such place in it")
    return list(found)


def build(outputs: Path, profile: str) -> list[str]:
    """Writes the report, then outputs/site/ with all that it leads to. Returns the lines of ``renew``."""
    problems = renew(outputs, profile)
    paths = reached(outputs / "report")
    files.remove(outputs / "site")
    with files.replacing(outputs / "site") as draft:
        for path in paths:
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outputs / "report" / path, draft / path)
        (draft / ".nojekyll").touch()  # GitHub would leave out names that begin with an underscore
    size = sum((outputs / "site" / path).stat().st_size for path in paths) / 1e6
    print(f"site       outputs/site/: {len(paths)} files, {size:.1f} MB")
    return problems


def main(profile: str) -> None:
    """``build`` for the Makefile. It fails, with a line for each, where files could not be read."""
    in_one_line(_build_or_complain, profile)


def _build_or_complain(profile: str) -> None:
    if problems := build(places.ROOT / "outputs", profile):
        raise SystemExit("\n".join(problems))

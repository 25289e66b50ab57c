"""Finds every address that an HTML page refers to, so that a test can see what the page would load."""

import re
from html.parser import HTMLParser

ADDRESSES = ("src", "href", "srcset", "poster", "data", "action", "background", "xlink:href")
BINDER = "https://mybinder.org/"  # where it is published, a page links there, and loads nothing of it


def loaded(page: str) -> set[str]:
    """All addresses in a page but pictures inside it, places in it and Binder's: of links, pictures, styles and
    scripts."""
    found = re.findall(r"url\(([^)]*)\)", page) + re.findall(r"@import[^;]*", page)

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            for name, value in attributes:
                if name in ADDRESSES and not (tag == "a" and value.startswith(BINDER)):
                    found.append(value)

    Parser().feed(page)
    return {address for address in found if not address.startswith(("data:image/", "#"))}

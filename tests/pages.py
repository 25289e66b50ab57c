"""Finds every address that an HTML page refers to, so that a test can see what the page would load."""

import re
from html.parser import HTMLParser

ADDRESSES = ("src", "href", "srcset", "poster", "data", "action", "background", "xlink:href")


def loaded(page: str) -> set[str]:
    """All addresses in a page but pictures inside it and places in it: of links, pictures, styles and scripts."""
    found = re.findall(r"url\(([^)]*)\)", page) + re.findall(r"@import[^;]*", page)

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.extend(value for name, value in attributes if name in ADDRESSES)

    Parser().feed(page)
    return {address for address in found if not address.startswith(("data:image/", "#"))}

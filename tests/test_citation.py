"""One may use and cite the workbook: CITATION.cff has this version and place, and the keys of CFF 1.2.0."""

import datetime
import re
import tomllib

import yaml

from lib.workbook import places
from tests.workbooks import ROOT

CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: of the schema's keys, those that this file has use for
REQUIRED = {"authors", "cff-version", "message", "title"}
TOP = REQUIRED | {"abstract", "date-released", "doi", "keywords", "license", "references", "repository-code"}
REFERENCE = {"authors", "doi", "notes", "title", "type", "url"}
PERSON, ENTITY = {"family-names", "given-names", "orcid"}, {"name"}


def test_it_has_the_keys_that_the_format_asks_for_and_no_other():
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert REQUIRED <= {*CITATION} <= TOP | {"type", "version"}
    for reference in CITATION["references"]:
        assert {"authors", "title", "type"} <= {*reference} <= REFERENCE and reference["type"] in ("article", "generic")
    for author in [*CITATION["authors"], *(author for each in CITATION["references"] for author in each["authors"])]:
        assert {*author} <= (ENTITY if "name" in author else PERSON) and all(author.values())


def test_its_version_place_and_licence_are_the_workbooks():
    assert CITATION["version"] == PROJECT["version"] and re.fullmatch(r"\d+\.\d+\.\d+", PROJECT["version"])
    assert CITATION.get("repository-code", "") == places.published()
    assert CITATION["license"] == "MIT" and (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_a_release_has_a_date_and_a_doi_or_neither():
    assert ("doi" in CITATION) == ("date-released" in CITATION)
    if "doi" in CITATION:
        assert re.fullmatch(r"10\.\d{4,9}/\S+", CITATION["doi"])
        assert CITATION["date-released"] <= datetime.date.today()


def test_it_cites_the_document_behind_every_paper():
    assert [entry["notes"][:3] for entry in CITATION["references"]] == ["000", "001", "002", "003", "004", "005", "005"]
    assert all(entry["title"] and entry["authors"] for entry in CITATION["references"])

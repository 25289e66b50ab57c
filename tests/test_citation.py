"""One may use and cite the workbook: CITATION.cff has this version and place, and a release a date and a DOI."""

import re
import tomllib

import yaml

from lib.workbook import places
from tests.workbooks import ROOT

CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_its_version_place_and_licence_are_the_workbooks():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert CITATION["version"] == project["version"] and re.fullmatch(r"\d+\.\d+\.\d+", project["version"])
    assert CITATION.get("repository-code", "") == places.published()
    assert CITATION["license"] == "MIT" and (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert ("doi" in CITATION) == ("date-released" in CITATION)

"""What make reproduce-figures PROFILE=smoke made is all that the notebooks promise, and the report shows every part.

``make test-smoke`` runs that command and then these, with --made for the outputs to look at.
"""

import re
from pathlib import Path

import pytest

from lib.base.parameters import PROFILES
from lib.workbook import claims
from tests import made
from tests.made import LEDGER, NAMES

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="session")
def outputs(request) -> Path:
    return Path(request.config.getoption("made"))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_left_all_it_promises(outputs, name, plans_once):
    made.check(outputs, name)
    made.check_plan(outputs, name, made.plans.plan(name, "smoke"))


def test_nothing_else_lies_there(outputs):
    """Each figure, table and claim is of one of these notebooks, and each of these ended well."""
    done = {path.name for path in (outputs / "notebooks" / "smoke").glob(".*.done")}
    assert done == {f".{name}.done" for name in NAMES}
    asked = {claim.id for claim in LEDGER.values() if claim.notebook}
    assert {path.stem for path in (outputs / "claims" / "smoke").glob("*.json")} == asked
    assert {finding.notebook for finding in LEDGER.values() if finding.notebook} <= {*NAMES}
    assert not [path for path in outputs.rglob("*") if "corrupt" in path.name or path.suffix == ".tmp"]
    assert {path.name for path in (outputs / "figures").iterdir()} <= {*PROFILES}  # others may have been drawn before


def test_the_report_shows_every_claim_figure_table_and_notebook(outputs):
    page = (outputs / "report" / "index.html").read_text()
    assert 'class="problems"' not in page and "Traceback" not in page
    assert not [name for name in LEDGER if name not in page]
    figures = {path.stem for path in (outputs / "figures" / "smoke").glob("*.png")}
    assert {*re.findall(r'<figure id="(.*?)">', page)} == figures
    tables = {path.stem for path in (outputs / "tables" / "smoke").glob("*.csv")}
    assert not [name for name in tables if name not in page]
    for name in NAMES:
        assert f"notebooks/smoke/{name}.html" in page and f'id="notebook-{name}"' in page
        copy = (outputs / "report" / "notebooks" / "smoke" / f"{name}.html").read_text()
        assert "<html" in copy and "data:image/png;base64," in copy
    assert page.count(claims.UNJUDGED) >= len([claim for claim in LEDGER.values() if claim.notebook])

"""What docs say was fixed, and when, is in the history; what they explain is in the ledger."""

import re
import subprocess

import pytest

from lib.workbook import claims, places
from tests.workbooks import ROOT


def test_commits_that_fixed_rules_are_in_the_history():
    shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True)
    if shallow.stdout.strip() != "false":
        pytest.skip("a shallow clone, or no clone: the history that it looks into is not there")
    named = {*re.findall(r"`([0-9a-f]{7,})` \(\d{4}-\d\d-\d\d\)", (ROOT / "docs/rules.md").read_text())}
    known = subprocess.run(["git", "log", "--format=%H"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert len(named) > 20 and not [one for one in named if not any(full.startswith(one) for full in known)]


def test_explanations_are_of_claims():
    text = (ROOT / "docs/explanations.md").read_text()
    named = re.findall(r"\b00\d-[a-z0-9-]+", "\n".join(re.findall(r"^(?:## |With it: )(.*)", text, re.M)))
    assert len(named) == len({*named}) and {*named} <= claims.ledger(places.LEDGER).keys()

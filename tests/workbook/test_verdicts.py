"""Verdicts as data say what the findings say, in JSON that any reader opens, and nothing of what is not judged."""

import json
import math

import pytest
import scipy.stats

import lib
from lib.workbook import claims, places, verdicts
from lib.workbook.report import Outputs
from tests.workbooks import a_notebook, a_row


def write(outputs, profile):
    """What was found, as data; None where nothing is written."""
    rows = Outputs(outputs).rows(claims.ledger(places.LEDGER), profile)
    told = [row for row in rows if row.finding and row.profile in (profile, "published")]
    found = [verdicts.row_of(row.claim, row.finding) for row in told]
    path = outputs / "report" / "verdicts.json"
    assert verdicts.write(outputs, profile, found, {"compared": 2}) == path.exists()
    return json.loads(path.read_text(), parse_constant=pytest.fail) if path.exists() else None


def test_a_row_is_what_the_finding_and_its_claim_say_and_make_ends_with_a_line_of_it(tmp_path, capsys, monkeypatch):
    """Of findings at cpu of three notebooks, one at smoke, and one on a paper's own runs; where they are many, sums."""
    a_notebook("instability", tmp_path).claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades")
    a_notebook("instability", tmp_path, "smoke").claim("001-base-state-explodes", [7.0], [1], "decades")
    a_notebook("moe_isoflop", tmp_path).claim("004-base-exponent", [math.nan], [1], "")
    a_notebook("usage_weighted", tmp_path).claim("003-excluded-flops", [20.9], [], "%")
    a_notebook("published_runs", tmp_path).claim_of_published("000-phi", [0.459], (0.43, 0.49), "phi")
    said = write(tmp_path, "cpu")
    assert [*said["columns"]] == [*said["verdicts"][0]] == [one.name for one in verdicts.COLUMNS]
    assert said["version"].endswith(f"recipe {lib.RECIPE}")
    assert said["profile"] == "cpu" and said["audit"] == {"compared": 2}
    published, row, _, nothing = said["verdicts"]
    assert (published["claim"], published["profile"]) == ("000-phi", "published")
    assert published["value"] == claims.ledger(places.LEDGER)["000-phi"].value
    finding = claims.read(tmp_path / "claims" / "cpu" / "001-base-state-explodes.json")
    for name in ("profile", "verdict", "mean", "low", "high", "again", "seeds", "measured"):
        assert row[name] == getattr(finding, name)
    assert row["verdict"] == claims.REPRODUCED and row["kind"] == "ordering" and row["value"] is None
    assert row["notebook"] == "instability" and row["commit"] == finding.provenance["commit"]
    assert nothing["mean"] is nothing["low"] is nothing["high"] is nothing["again"] is None
    assert nothing["measured"] == {"": [None]}

    def printed(profile, *notebooks):
        verdicts.main(profile, notebooks, tmp_path)
        return capsys.readouterr().out.splitlines()

    every = ("instability", "published_runs", "moe_isoflop", "usage_weighted")
    lines = printed("cpu", *every)
    assert lines[:2] == [
        "reproduced     000-phi: 0.459 [0.43, 0.49] phi, fragile (on published runs)",
        "reproduced     001-base-state-explodes: 1.1 [0.852, 1.35] decades",
    ]
    assert lines[2:] == [
        "contradicted   003-excluded-flops: 20.9 % (at cpu, counted)",
        "not measured   004-base-exponent",
    ]
    assert printed("cpu", "instability") == lines[1:2]
    monkeypatch.setattr(verdicts, "MANY", 3)
    assert printed("cpu", *every)[2:6] == [
        "verdicts   003 at cpu, counted: 1 contradicted",
        "verdicts   004 at cpu: 1 not measured",
        "expected   false on each side, at most: 0.025 at cpu, 0.025 on published runs",
        f"expected   expected to change in fresh draws: {1 - row['again']:.2g} at cpu, "
        f"{1 - published['again']:.2g} on published runs",
    ]
    assert [write(tmp_path, profile) for profile in claims.NOT_JUDGED] == [None] * len(claims.NOT_JUDGED)
    assert printed("smoke", *every) == ["verdicts   none: smoke judges nothing"]
    (tmp_path / "claims" / "cpu" / "001-base-state-explodes.json").write_text("{}")  # damaged
    assert len(write(tmp_path, "cpu")["verdicts"]) == 3


def test_two_texts_differ_by_what_welch_says():
    """In closed form where both spread alike, t with 2n - 2 degrees of freedom; of the comparison that decides the
    first, by seeds where resamples judge."""
    numbers = {"a": [5.0, 6.0, 7.0], "b": [1.0, 2.0, 3.0]}
    half = scipy.stats.t.ppf(0.975, 4) * math.sqrt(2 / 3)
    for seeds, by, told in ((numbers, {}, "b"), ({"a": [6.0], "b": [2.0]}, numbers, "b, by seeds")):
        one = a_row("a", "reproduced", mean=2.0, measured=seeds, by_seed=by)
        other = {"measured": {"a": [0.0] * 3, "b": [4.0, 5.0, 6.0]}, "by_seed": {}}
        assert verdicts.difference(one, other) == f"3 [{3 - half:.3g}, {3 + half:.3g}], {told}"
        other["measured"]["b"][0] = None
        assert verdicts.difference(one, other).startswith("no interval")


def pairs(*verdicts_of):
    """Of claims with these verdicts of ours and of published runs."""
    rows = [(a_row(f"{at}", own), a_row(f"{at}", other, "published")) for at, (own, other) in enumerate(verdicts_of)]
    return verdicts.both([row for pair in rows for row in pair])


def test_a_rate_of_agreement_has_its_exact_interval():
    """In closed form: the lower end is .025^(1/n) with n of n alike, 1 - .975^(1/2) with 1 of 2, and the upper ends are
    symmetric. What either scale leaves open decides nothing."""
    right, wrong, absent, unclear, disputed, beyond, *_ = verdicts.OUTCOMES
    alike, apart = [(right, right), (wrong, wrong), (absent, absent)], [(right, wrong), (absent, right)]
    left_open = [(unclear, right), (right, unclear), (beyond, wrong), (right, disputed)]
    cases = [(3, 0, 0.025 ** (1 / 3), 1), (0, 2, 0, 1 - 0.025**0.5), (1, 1, 1 - 0.975**0.5, 0.975**0.5)]
    for same, other, low, high in cases:
        found = pairs(*alike[:same], *apart[:other], *left_open)
        judged, decided, alike_, rate, *_ = verdicts.agreement(found).values()
        assert (judged, decided, alike_) == (f"{len(found)}", f"{same + other}", f"{same}")
        assert rate == f"{100 * same / (same + other):.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
        assert len(verdicts.differing(found)) == other
    assert verdicts.agreement(pairs(*left_open))["rate"] == ""
    assert verdicts.agreement(pairs(*apart, (wrong, right)))["by one guess for all"] == "2 (reproduced)"
    assert verdicts.agreement(pairs(*alike, *apart))["where ours is reproduced"] == "1 of 2"
    across = {own: " ".join(of.values()) for own, of in verdicts.across(pairs(*alike, *apart)).items()}
    assert across == {right: "1 1 0", wrong: "0 1 0", absent: "1 0 1"}
    assert pairs() == verdicts.both([a_row("a", right), a_row("b", right, "published")]) == []


def test_sums_say_how_many_verdicts_may_be_wrong():
    """Of those by an interval 2.5 % a side, 1 - ``again`` of each that is decided, and what the second opinion says."""
    rows = [
        a_row("a", "reproduced", second="reproduced", again=0.5),
        a_row("b", "opinions differ", first="contradicted", second="not resolved", again=0.75),
        a_row("c", "absent here", again=None),
        a_row("d", "contradicted", replicates="resamples"),
        a_row("e", "not resolved", again=0.5),
        a_row("f", "reproduced", replicates="exact"),
        a_row("g", "not comparable at this scale"),
        a_row("h", "not resolved", mean=None),
        a_row("a", "reproduced", "published", replicates="resamples"),
    ]
    at = {"at desk": "5 0.12 4 0.75 0 1 1 1 1", "on published runs": "1 0.025 1 0 0 0 0 0 1"}
    assert {where: " ".join(of[where] for of in verdicts.expected(rows).values()) for where in at} == at


def test_claims_of_a_notebook_share_a_number_where_it_is_the_same_or_what_is_left_of_one():
    def of(mean, *numbers, **changes):
        return a_row("a", "reproduced", **{"notebook": "a", "mean": mean, "measured": {"": [*numbers]}} | changes)

    phi, above, below = of(0.3), of(0.3, 0.9), of(0.7, 0.7)
    same = of(2.0, 2.0, 3.0), of(3.0, 2.0, 3.0)  # where another comparison decides
    alone = of(0.3, notebook="b"), of(0.3, profile="published"), of(0.31, 0.31), of(math.nan), of(math.nan)
    rows = [phi, *same, above, *alone, below]
    assert verdicts.shared(rows) == [[phi, above, below], [*same]]
    assert verdicts.expected(rows)["by another's number"]["at desk"] == "3"

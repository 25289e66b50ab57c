"""README's findings and docs/claims.md say what the ledger and the reference say, contradictions first."""

import dataclasses
import re

import mistune
import pytest

from lib.workbook import claims, findings, places
from lib.workbook.findings import Judged
from lib.workbook.reference import Entry, Reference

LEDGER = claims.ledger(places.LEDGER)
SHORT = [claim for claim in LEDGER.values() if claim.short]
ANY = next(iter(LEDGER.values()))


def of(id, cpu="", published="", **changes):
    return Judged(dataclasses.replace(ANY, id=id, **changes), "cpu", cpu, published, f"{id} 1", f"{id} 2")


def test_verdicts_are_those_of_the_reference_where_it_is_of_today():
    """One that is of other runs or rules is being made anew; a claim that nobody asked has none."""
    ours, theirs = "001-base-state-explodes", "000-phi"
    entries = {
        "instability": Entry(seconds=1, verdicts={ours: "reproduced"}, made_from=1, numbers={ours: "2 [1, 3] nats"}),
        "recurrence_exponent": Entry(seconds=1, verdicts={theirs: "reproduced"}, made_from=2, numbers={theirs: "1"}),
        "published_runs": Entry(
            seconds=1,
            verdicts={},
            made_from=1,
            published={theirs: "contradicted"},
            published_numbers={theirs: ".5 [.4, .6]"},
        ),
    }
    known = Reference(flops_per_second=1, cores=2, whole={}, entries={"cpu": entries})
    found = findings.judged(known, {("cpu", "recurrence_exponent"), ("desk", "instability")})
    at = {one.claim.id: (one.ours, one.published) for one in found}
    assert at.keys() == LEDGER.keys()
    assert [one.claim.paper for one in found] == sorted(claim.paper for claim in LEDGER.values())
    assert (at[ours], at[theirs]) == (("reproduced", ""), (findings.STALE, "contradicted"))
    numbers = {one.claim.id: (one.our_number, one.published_number) for one in found}
    assert (numbers[ours], numbers[theirs]) == (("2 [1, 3] nats", ""), ("", ".5 [.4, .6]"))
    assert set(at.values()) == {("reproduced", ""), (findings.STALE, "contradicted"), (findings.STALE, ""), ("", "")}


def test_desk_is_told_once_it_is_judged():
    id = "001-base-state-explodes"
    entries = {
        profile: {"instability": Entry(seconds=1, verdicts={id: verdict}, made_from=1)}
        for profile, verdict in {"cpu": "reproduced", "desk": "contradicted"}.items()
    }
    found = findings.judged(Reference(flops_per_second=1, cores=2, whole={}, entries=entries), set())
    (one,) = [one for one in found if one.ours]
    assert (one.claim.id, one.profile, findings.verdict(one)) == (id, "desk", "contradicted at desk")


def test_contradictions_come_first_those_of_the_papers_own_runs_before_ours():
    lines = findings.found(
        [
            of("a", cpu="reproduced", short="A"),
            of("b", published="reproduced", short="B"),
            of("c", cpu="contradicted", short="C"),
            of("d", published="contradicted", statement="D at length."),  # all of these are told
            of("e", cpu="contradicted"),
            of("f", cpu="not resolved", published="not resolved", short="F"),
            of("g", cpu="reproduced", published="contradicted", short="G"),  # told once, by the larger runs
            of("h", cpu="contradicted", short="H", replicates="exact"),
        ]
    ).splitlines()[2:]
    told = [re.fullmatch(r"\| \[(.*?)\].*? \| [^|]* \| (.*?) \| (.*?)<br>.*; .* \|", line).groups() for line in lines]
    assert told == [
        ("D at length", "contradicted, on published runs", "d 2"),
        ("G", "contradicted, on published runs", "g 2"),
        ("C", "contradicted, at cpu", "c 1"),
        ("H", "contradicted, counted", "h 1"),
        ("B", "reproduced, on published runs", "b 2"),
        ("A", "reproduced, at cpu", "a 1"),
    ]


def test_a_finding_says_what_the_paper_says():
    assert findings.says(of("a", kind="bound").claim) == "above 0 where the paper is right"
    assert findings.says(of("a", kind="tie", effect=0.1).claim) == "the paper: 0 ± 0.1"
    assert findings.says(of("a", kind="value", value=0.47, uncertainty=0.06).claim).startswith("the paper: 0.47 ± ")
    assert findings.says(of("a", kind="value", value=1.0, replicates="exact").claim) == "the paper: 1"


def test_claims_are_counted_by_what_judged_them():
    """A verdict that nobody gave has no column."""
    every = [of("a", "reproduced", "contradicted"), of("b", "reproduced"), of("c", "", "reproduced"), of("d")]
    assert findings.in_numbers(every).splitlines() == [
        "| claims judged | reproduced | contradicted | all |",
        "| --- | --- | --- | --- |",
        "| at cpu | 2 | 0 | 2 |",
        "| on published runs | 1 | 1 | 2 |",
        "",
        "There are 4 claims: 1 are judged by both, 1 by neither yet.",
    ]


def test_there_are_a_dozen_findings_at_most():
    many = [of(f"a{i}", cpu="contradicted", short="A") for i in range(20)]
    assert len(findings.found(many).splitlines()) == 2 + findings.LINES


def test_short_statements_are_short_and_of_every_paper():
    assert all(len(claim.short) <= 110 < 3 * len(claim.short) for claim in SHORT)
    assert {claim.paper for claim in SHORT} == findings.cited().keys()


@pytest.fixture(scope="module")
def page():
    """docs/claims.md as a reader sees it: heading -> the texts of its table's cells."""
    html = mistune.html((places.ROOT / "docs" / "claims.md").read_text())
    sections = re.findall(r"<h3>(.*?)</h3>\s*<table>(.*?)</table>", html, re.S)
    return {id: re.findall(r"<t[hd]>(.*?)</t[hd]>", table, re.S) for id, table in sections}


def seen(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def test_every_claim_has_an_entry_that_a_reader_sees_as_it_stands_in_the_ledger(page):
    assert [*page] == [claim.id for claim in sorted(LEDGER.values(), key=lambda claim: claim.paper)]
    for id, claim in LEDGER.items():
        head, statement, *rows = page[id]
        assert (head, statement) == ("claim", seen(claim.statement)), id
        heads = [head for head in rows[::2] if head != "number"]
        assert heads == ["where", "measured", "rule", "verdict", "again"], id
        assert seen(claim.where) in rows[1] and rows[3] == seen(claim.estimand), id


def test_links_lead_to_the_headings_of_claims():
    """GitHub's anchor of a heading: small letters, digits and hyphens stay."""
    readme = (places.ROOT / "README.md").read_text()
    linked = re.findall(r"\(docs/claims\.md#(.*?)\)", readme)
    assert len(linked) >= 10 and {*linked} <= {re.sub(r"[^a-z0-9-]", "", id) for id in LEDGER}
    assert findings.link("001-770m-matches-1.3b") == "docs/claims.md#001-770m-matches-13b"


def test_a_rule_says_its_kind_its_margin_and_what_it_counts():
    value = dataclasses.replace(ANY, kind="value", value=0.46, effect=0.02, effect_from="Table 2")
    value = dataclasses.replace(value, replicates="resamples")
    assert findings.rule(value) == (
        "the value 0.46, within 0.046, over resamples of one grid of runs; "
        "the smallest effect that matters is 0.02 (Table 2)"
    )
    exact = dataclasses.replace(ANY, kind="tie", effect=0.0, replicates="exact")
    assert findings.rule(exact) == "a tie, counted"


def test_verdicts_and_commands_say_by_which_runs():
    assert findings.verdict(of("a")) == "open"
    assert findings.verdict(of("a", "absent here", "reproduced")) == (
        "absent here at cpu; reproduced on published runs"
    )
    assert findings.number(of("a")) == "a 1 at cpu; a 2 on published runs"
    assert findings.commands(LEDGER["000-phi"]) == (
        "`make reproduce-figures ONLY=recurrence_exponent`, `make reproduce-figures ONLY=published_runs`"
    )
    assert findings.commands(dataclasses.replace(ANY, notebook=None)) == "no notebook asks it yet"


def test_papers_are_named_by_their_authors():
    assert [findings.authors(number) for number in ("000", "003", "005", "beyond")] == [
        "Schwethelm et al.",
        "Looped Transformer: Experiment Log",
        "Chen et al., Capps",
        "",
    ]
    first, log = (findings.source(findings.cited()[number][0]) for number in ("000", "003"))
    assert first.startswith("Schwethelm et al., How Much Is One") and first.endswith(", arXiv 2604.21106")
    assert log == "Looped Transformer: Experiment Log"
    wide = LEDGER["005-cart-wants-six-loops-when-wide"]
    assert findings.place(wide).startswith("Capps, arXiv 2606.01495")
    rows = findings.papers()
    assert "| 000 | Schwethelm, Rückert and Kaissis: *How Much" in rows
    assert rows.count("[arXiv 2") == 6 and rows.count("not on arXiv") == 1

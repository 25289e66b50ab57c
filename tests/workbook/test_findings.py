"""README's findings and docs/claims.md say what the ledger and the committed verdicts say, contradictions first."""

import dataclasses
import json
import re

from lib.workbook import claims, findings, places
from lib.workbook.findings import Judged

LEDGER = claims.ledger(places.LEDGER)
SHORT = [claim for claim in LEDGER.values() if claim.short]
ANY = next(iter(LEDGER.values()))


def of(id, cpu="", published="", **changes):
    return Judged(dataclasses.replace(ANY, id=id, **changes), "cpu", cpu, published, f"{id} 1", f"{id} 2")


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


def test_verdicts_are_those_beside_the_records():
    every = {one.claim.id: one for one in findings.judged()}
    assert [*every] == [claim.id for claim in sorted(LEDGER.values(), key=lambda claim: claim.paper)]
    rows = json.loads((places.ROOT / "outputs/records/desk/verdicts.json").read_text())["verdicts"]
    for row in rows:
        one = every[row["claim"]]
        verdict, number = (
            (one.published, one.published_number) if row["profile"] == "published" else (one.ours, one.our_number)
        )
        assert verdict == row["verdict"] and number.startswith("" if row["mean"] is None else f"{row['mean']:.3g}")
        assert number.endswith(", fragile") == (row["mean"] is not None and (row["again"] or 1) < claims.FRAGILE)
    assert sum(bool(one.ours) + bool(one.published) for one in every.values()) == len(rows)
    assert findings.verdict(every["000-phi"]).count(";") == 1 and findings.verdict(of("a")) == "open"


def test_every_claim_has_a_line_with_an_anchor():
    page = (places.ROOT / "docs" / "claims.md").read_text()
    lines = re.findall(r'^\| <a id="(.*?)"></a>(\S+) \| (.*?) \| (.*) \|$', page, re.M)
    assert [id for _, id, *_ in lines] == [claim.id for claim in sorted(LEDGER.values(), key=lambda claim: claim.paper)]
    assert all(place == findings.anchor(id) for place, id, *_ in lines)
    linked = re.findall(r"\(docs/claims\.md#(.*?)\)", (places.ROOT / "README.md").read_text())
    assert len(linked) >= 10 and {*linked} <= {place for place, *_ in lines}

"""A verdict follows from the interval over seeds, and the notebook that the ledger names reports each claim."""

import ast
import dataclasses
import json
import math
import re

import nbformat
import numpy as np
import pytest
import yaml

from lib.base.errors import InputError
from lib.base.statistics import all_of, mean_and_interval
from lib.workbook import claims, places
from lib.workbook.claims import ABSENT, CONTRADICTED, INCOMPARABLE, REPRODUCED, UNJUDGED, UNRESOLVED, verdict
from tests.cases import claim
from tests.given import of_profile
from tests.workbooks import ROOT

RESAMPLED = claim(replicates="resamples")
EXACT = claim(replicates="exact", effect=0.0)


def judged(kind, values, profile="cpu", **fields):
    return verdict(claim(kind, **fields), all_of(claims.as_comparisons(values)), profile)


@pytest.mark.parametrize(
    ("values", "profile", "expected"),
    [
        ([1.0, 1.1, 0.9], "cpu", REPRODUCED),
        ([-1.0, -1.1, -0.9], "gpu", CONTRADICTED),
        ([1.0, -1.0, 0.5], "cpu", UNRESOLVED),
        ([5.0], "paper", UNRESOLVED),  # one seed decides nothing
        ([1.0, math.nan, 1.0], "cpu", UNRESOLVED),
        ([1.0, 1.1, 0.9], "smoke", UNJUDGED),
        ([0.001, -0.001, 0.0], "cpu", ABSENT),  # within .01 of 0, the smallest effect that matters
        ([0.005, 0.0051, 0.0049], "cpu", ABSENT),  # also where it lies above 0: it is there, and does not matter
        ([-0.005, -0.0051, -0.0049], "cpu", ABSENT),
        ([0.02, 0.0201, 0.0199], "cpu", REPRODUCED),
    ],
)
def test_orderings_are_judged_by_their_interval(values, profile, expected):
    assert judged("ordering", values, profile) == expected


def test_a_bound_is_met_or_not_and_never_absent():
    assert judged("bound", [0.005, 0.0051, 0.0049]) == REPRODUCED
    assert judged("bound", [-0.005, -0.0051, -0.0049]) == CONTRADICTED
    assert judged("bound", [0.001, -0.001, 0.0]) == UNRESOLVED


def test_all_of_them_is_one_verdict():
    up, down, wide, nothing = [1.0, 1.1, 0.9], [-1.0, -1.1, -0.9], [1.0, -1.0, 0.5], [0.001, -0.001, 0.0]
    assert judged("ordering", {"a": up, "b": up}) == REPRODUCED
    assert judged("ordering", {"a": up, "b": wide}) == UNRESOLVED
    assert judged("ordering", {"a": up, "b": down, "c": wide}) == CONTRADICTED
    assert judged("ordering", {"a": up, "b": nothing}) == ABSENT
    assert judged("ordering", {"a": down, "b": nothing}) == CONTRADICTED
    just = [-1.0, -1.3, -0.7]  # its own interval lies below 0, that among ten does not
    assert judged("ordering", just) == CONTRADICTED
    assert judged("ordering", {"a": just} | {str(i): up for i in range(9)}) == UNRESOLVED
    assert judged("tie", {"a": nothing, "b": nothing}) == REPRODUCED
    assert judged("tie", {"a": nothing, "b": up}) == CONTRADICTED
    assert judged("tie", {"a": nothing, "b": wide}) == UNRESOLVED
    assert judged("ordering", {}) == UNRESOLVED


@pytest.mark.parametrize(
    ("values", "profile", "scale_free", "expected"),
    [
        ([0.40, 0.41, 0.39], "cpu", True, REPRODUCED),  # all of the interval within 10 %
        ([0.44, 0.45, 0.43], "cpu", True, UNRESOLVED),  # it meets the value's surroundings and leaves them
        ([0.60, 0.61, 0.59], "cpu", True, CONTRADICTED),
        ([0.1, 0.9, 0.4], "cpu", True, UNRESOLVED),  # however near its middle is
        ([0.40, 0.41, 0.39], "cpu", False, INCOMPARABLE),
        ([0.40, 0.41, 0.39], "paper", False, REPRODUCED),
        ([0.40, 0.41, 0.39], "published", False, REPRODUCED),
    ],
)
def test_values_are_judged_where_the_scale_allows(values, profile, scale_free, expected):
    assert judged("value", values, profile, value=0.40, scale_free=scale_free) == expected


def test_the_widest_margin_counts():
    assert claim("value", value=2.0, uncertainty=0.01).margin == 0.2
    assert claim("value", value=2.0, uncertainty=0.5).margin == 0.5
    assert claim("value", value=2.0, effect=0.7).margin == 0.7
    assert claim("tie").margin == 0.01
    assert claim("value", value=2.0, uncertainty=0.01, replicates="exact", effect=0.0).margin == 0.01


OF_SEEDS = [0.03, 0.05, 0.04, 0.04]  # 0.04, 95 % [.027, .053]


@pytest.mark.parametrize(
    ("half", "form", "verdicts", "reason"),  # of the resamples' interval about .04, by the coupled law
    [
        (0.02, 0.05, (REPRODUCED, REPRODUCED), ""),
        (0.02, 0.01, (REPRODUCED, UNRESOLVED), claims.FORM),  # .03 off
        (0.06, 0.05, (REPRODUCED, REPRODUCED), claims.LESS),
        (0.06, 0.01, (REPRODUCED, UNRESOLVED), claims.LESS),
    ],
)
def test_a_claim_judged_by_resamples_is_judged_by_seeds_and_form_beside_it(half, form, verdicts, reason, reported):
    """By Student's t, and by that widened on both sides; and what the ledger says stays as it is."""
    draws = np.linspace(0.04 - half, 0.04 + half, 201).tolist()
    plain = reported([0.04], RESAMPLED, draws=draws)
    found = reported([0.04], RESAMPLED, draws=draws, by_seed=OF_SEEDS, by_form={"": form})
    assert (
        dataclasses.replace(found, by_seed={}, by_form={}) == plain and claims.by_seeds(RESAMPLED, vars(plain)) is None
    )
    both = claims.by_seeds(RESAMPLED, vars(found))
    mean, low, high = mean_and_interval(OF_SEEDS)
    assert both.seeds == (verdicts[0], (mean, low, high)) and both.reason == reason
    off = abs(form - 0.04)
    assert both.form[0] == verdicts[1] and both.form[1] == pytest.approx((mean, low - off, high + off))
    assert both == claims.by_seeds(RESAMPLED, json.loads(json.dumps(vars(found))))  # as data


def test_seeds_may_scatter_more_and_one_without_a_number_judges_nothing(reported):
    draws = np.linspace(0.03, 0.05, 201).tolist()
    assert reported([0.04], RESAMPLED, draws=draws).first == REPRODUCED
    for numbers, expected in (([-0.02, 0.1, 0.04, 0.04], claims.MORE), ([0.04, math.nan, 0.04], None), ([0.04], None)):
        both = claims.by_seeds(RESAMPLED, vars(reported([0.04], RESAMPLED, draws=draws, by_seed=numbers)))
        assert (both and both.reason) == expected
    with pytest.raises(InputError, match="by_seed: give it for each of the values"):
        reported([0.04], RESAMPLED, draws=draws, by_seed={"b": [0.04, 0.05]})
    with pytest.raises(InputError, match="the replicates are resamples"):
        reported([0.04, 0.05], by_seed=[0.04, 0.05])


@pytest.fixture
def reported(tmp_path):
    """A finding, with as many seeds as there are numbers."""

    def report(values, entry=None, profile="cpu", **given):
        seeds = [*range(len(next(iter(claims.as_comparisons(values).values()))))]
        return claims.report(entry or claim(), "n", values, seeds, profile, tmp_path, "nats", "a note", **given)

    return report


def test_a_report_is_written_once_by_its_notebook(tmp_path, reported):
    finding = reported([1.0, 1.1, 0.9])
    assert finding.verdict == REPRODUCED and claims.read(tmp_path / "x.json") == finding
    assert finding.measured == {"": [1.0, 1.1, 0.9]} and finding.bounds == {"": (finding.low, finding.high)}
    with pytest.raises(InputError, match="gives it to 'm', not to 'n'"):
        reported([1.0], claim(notebook="m"))
    with pytest.raises(InputError, match=r"b: 2 numbers .* seeds \(1\)"):
        reported({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(InputError, match="draws: its replicates are seeds"):
        reported([1.0], draws=[1.0, 2.0])
    assert reported([1.0, 1.1, 0.9], part="20 % of its plan").verdict == UNJUDGED
    assert claims.read(tmp_path / "x.json").verdict == UNJUDGED
    cut = reported([1.0, 1.1, 0.9], incomparable="prompts are cut")
    assert (cut.verdict, cut.second, cut.again, cut.note) == (INCOMPARABLE, "", None, "a note, prompts are cut")
    assert reported([1.0, 1.1, 0.9], profile="smoke", incomparable="prompts are cut").verdict == UNJUDGED
    assert reported([1.0, 1.1, 0.9], profile="addendum").verdict == REPRODUCED
    entries = claims.ledger(places.LEDGER)
    for name, only in [pair for of in claims.NAMED.values() for pair in of.items()]:
        assert name in {one.notebook for one in entries.values()} and {entries[id].notebook for id in only} <= {name}
    assert verdict(claim(notebook="test_time_saturation"), claims.all_of({"": [1.0, 1.1]}), "addendum") == UNJUDGED


def test_a_firm_verdict_would_come_again(reported):
    def again(*given, **more):
        return reported(*given, **more).again

    assert again([1.0, 1.001, 0.999]) > 0.99
    assert 0.3 < again([1.0, 1.35, 0.65]) < claims.FRAGILE  # an interval that just lies above 0
    assert again({"a": [1.0, 1.35, 0.65], "b": [1.0, 1.35, 0.65]}) < again([1.0, 1.35, 0.65])
    assert again([1.0]) is None and again([1.0, math.nan]) is None
    assert again([1.0], RESAMPLED, draws=np.linspace(0.9, 1.1, 101)) == 1.0
    assert 0.5 < again([1.0], RESAMPLED, draws=np.linspace(0.1, 1.9, 101)) < 0.95
    assert again([1.0], EXACT) == 1.0


def test_a_second_opinion_stands_beside_the_first_and_both_in_place_of_a_verdict(tmp_path, reported):
    def opinions(*given, **more):
        found = reported(*given, **more)
        assert claims.read(tmp_path / "x.json") == found and found.verdict in claims.VERDICTS
        return found.verdict, found.first, found.second

    clear, wild = [1.0, 1.1, 0.9, 1.2, 0.8, 1.0], [0.1, 0.1, 0.1, 0.1, 0.1, 40.0]
    assert opinions(clear) == ("reproduced",) * 3
    # one outlier widens Student's interval over 0, while no other signs have as high a mean
    assert opinions(wild) == (claims.DISPUTED, "not resolved", "reproduced")
    few = ("reproduced", "reproduced", claims.TOO_FEW)
    assert opinions(clear[:5]) == few
    assert opinions([1.0], RESAMPLED, draws=np.linspace(0.9, 1.1, 101)) == few
    assert opinions([1.0], EXACT) == ("reproduced", "reproduced", "")
    assert opinions(clear, profile="smoke") == (UNJUDGED, UNJUDGED, "")


def test_the_comparison_that_decides_is_shown(reported):
    def found(*given):
        finding = reported(*given)
        return finding.verdict, (finding.mean, finding.low, finding.high)

    near, wide, none, below = [1.0, 1.1, 0.9], [3.0, 1.0, 2.0], [0.0, 0.001, -0.001], [-1.0, -1.1, -0.9]
    # not resolved and reproduced: what lies lowest, by itself
    assert found({"near": near, "wide": wide}) == ("not resolved", mean_and_interval(wide))
    assert found({"near": near, "far": [5.0, 5.1, 4.9]}) == ("reproduced", mean_and_interval(near))
    # absent here and contradicted: the one that is, at an error that the two share
    assert found({"wide": wide, "none": none}) == ("absent here", mean_and_interval(none, 0.975))
    assert found({"wide": wide, "below": below}) == ("contradicted", mean_and_interval(below, 0.975))
    # of a tie, what is farthest from it
    far = [-1.0, 1.0, 0.6]
    assert found({"near": none, "wide": far}, claim("tie")) == ("not resolved", mean_and_interval(far))


def test_a_resampled_number_has_the_percentiles_of_its_draws(reported):
    draws = np.linspace(0.0, 1.0, 1001)
    finding = reported([0.4], RESAMPLED, draws=draws)
    assert (finding.mean, finding.low, finding.high) == pytest.approx((0.4, 0.025, 0.975))
    for given in ((), {"other": draws}):
        with pytest.raises(InputError, match="draws: its replicates are resamples"):
            reported([0.4], RESAMPLED, draws=given)


def test_what_is_counted_has_no_interval(reported):
    entry = claim("value", value=183.5, uncertainty=0.05, scale_free=True, replicates="exact", effect=0.0)
    finding = reported([183.52], entry)
    assert finding.verdict == REPRODUCED and finding.low == finding.high == 183.52
    assert reported([183.56], entry).verdict == CONTRADICTED


def test_the_ledger_is_complete_and_well_formed():
    ledger = claims.ledger(ROOT / "params" / "claims.yaml")
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    for entry in ledger.values():
        assert entry.id.startswith(entry.paper + "-") and entry.statement.endswith(".") and entry.where
        assert {*filter(None, [entry.notebook, entry.published])} <= notebooks
        assert (entry.notebook or not entry.figure) and (entry.published or not entry.published_figure)
        assert entry.estimand and entry.effect_from
    assert sum(entry.paper == "001" for entry in ledger.values()) >= 50


def reporting(path):
    """The code of a notebook, and of the functions of its rooms that hand it claims."""
    code = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    parts = [code]
    called = re.findall(r"\bclaims\.(of_\w+)\(", code)
    for room in re.findall(r"^from lib\.papers\.(\w+) import .*\bclaims\b", code, re.M):
        source = (ROOT / "lib" / "papers" / room / "claims.py").read_text()
        for node in ast.parse(source).body if called else []:
            if not isinstance(node, ast.FunctionDef) or node.name in called:
                parts.append(ast.get_source_segment(source, node))
    return "\n".join(parts)


def test_each_claim_of_a_notebook_is_reported_by_it():
    """And each that published runs decide by the notebook that has these, too."""
    codes = {path.stem: reporting(path) for path in (ROOT / "notebooks").glob("*.ipynb")}
    for entry in claims.ledger(ROOT / "params" / "claims.yaml").values():
        mentions = {name for name, code in codes.items() if f'"{entry.id}"' in code}
        expected = [entry.notebook, entry.published or None]
        assert mentions == {*filter(None, expected)}, entry.id


@pytest.mark.parametrize("profile", ["cpu", "gpu", "paper"])
def test_no_claim_is_beyond_deciding_by_construction(profile):
    """Runs that say what the paper says, clearly, reproduce a claim at every profile where it is judged, and runs that
    say the opposite contradict it, with the seeds that its notebook has there."""
    undecided = []
    for entry in claims.ledger(ROOT / "params" / "claims.yaml").values():
        if entry.notebook is None or (entry.kind == "value" and not entry.scale_free and profile != "paper"):
            continue
        step = entry.effect or entry.margin or 1.0
        away = 4 * max(step, entry.margin)
        right, wrong = (0.0, away) if entry.kind == "tie" else (entry.value, entry.value + away)
        if entry.kind in ("ordering", "bound"):
            right, wrong = 4 * step, -4 * step
        seeds = "rate_seeds" if entry.id == "001-ablation-rdm-diverges" else "seeds"
        n = len(of_profile(profile, entry.notebook)[seeds]) if entry.replicates == "seeds" else 400
        noise = 0.1 * step * np.linspace(-1, 1, n)
        for mean, expected in ((right, REPRODUCED), (wrong, CONTRADICTED)):
            numbers = [mean] if entry.replicates != "seeds" else mean + noise
            found = claims.intervals(entry, {"": list(numbers)}, {"": mean + noise})
            if verdict(entry, found, profile) != expected:
                undecided.append((entry.id, expected, n))
    assert not undecided


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([{"id": "a"}], "paper"),
        ([{**claim().__dict__}, {**claim().__dict__}], "stands there twice"),
        ([{**claim("value").__dict__}], "a claim of kind value, and no other, has a value"),
        ([{**claim("tie", value=1.0).__dict__}], "a claim of kind value, and no other, has a value"),
        ([{**claim(effect=0.0).__dict__}], "the smallest effect that matters"),
        ([{**claim(replicates="exact").__dict__}], "the smallest effect that matters"),
        ([{**claim().__dict__, "colour": "red"}], "colour"),
    ],
)
def test_a_bad_ledger_is_one_line(tmp_path, entries, says):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(entries))
    with pytest.raises(InputError, match=says):
        claims.ledger(path)


# ---- what would settle a claim


@pytest.fixture
def settles(reported):
    def said(values, entry=None, hours=1.0, **given):
        entry = entry or claim()
        line = claims.to_settle(entry, reported(values, entry, **given), hours)
        return line, int((re.match(r"\d+", line) or ["0"])[0])

    return said


def test_so_many_seeds_settle_it_four_times_in_five(settles):
    values = np.random.default_rng(0).normal(0.0, 0.02, 5).tolist()
    said, wanted = settles(values, hours=2.0)
    random, spread = np.random.default_rng(1), np.std(values, ddof=1)
    draws = [random.normal(claim().effect, spread, wanted) for _ in range(2000)]
    assert np.mean([mean_and_interval(x)[1] > 0 for x in draws]) == pytest.approx(0.8, abs=0.06)
    assert said == f"{wanted} seeds in place of 5, {2.0 * (wanted - 5):.2g} core-hours more"


def test_several_comparisons_and_two_ends_need_more(settles):
    one = [0.02, -0.02, 0.0]
    (_, few), (_, both), (_, tie) = settles(one), settles({"a": one, "b": one}), settles(one, claim("tie"))
    assert both == tie > few > 3


def test_a_grid_is_made_again_as_often_as_its_interval_has_to_shrink(settles):
    draws = np.random.default_rng(0).normal(0.0, 0.1, 4000)  # ((1.96 + 0.84) x 0.1 / 0.1)^2 = 7.8
    said, wanted = settles([0.0], claim(replicates="resamples", effect=0.1), 3.0, draws=draws)
    assert wanted == 8 and said.endswith("times the grid in place of 1, 21 core-hours more")


def test_what_nothing_settles_says_why(settles):
    for why, values in {
        "no number": [math.nan, 1.0],
        "one replicate shows no spread": [1.0],
        "too wide for an effect of 0.01": [1.0, -1.0, 0.5],
        "5 show the smallest effect in 80 % of all cases": [0.001, -0.001, 0.0, 0.002, 0.0005],
    }.items():
        said, _ = settles(values)
        assert said.startswith("no number of replicates: ") and why in said

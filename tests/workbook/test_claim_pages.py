"""A claim's page says what is stated, what was measured and how to do it again, and loads what lies beside it."""

import html
import io
import json
import re

import PIL.Image
import pytest

from lib.base.parameters import WHOLE
from lib.workbook import claim_pages, claims, parameters, report
from tests.pages import loaded
from tests.workbooks import ROOT, a_notebook

LEDGER = claims.ledger(ROOT / "params" / "claims.yaml")
ORDER = sorted(LEDGER, key=lambda id: LEDGER[id].paper)
JUDGED = "001-base-state-explodes"
#: notebook -> the figures of it that claims name
NAMED: dict[str, set[str]] = {}
for claim in LEDGER.values():
    if claim.figure:
        NAMED.setdefault(claim.notebook, set()).add(claim.figure)
    if claim.published_figure:
        NAMED.setdefault("published_runs", set()).add(claim.published_figure)
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))


def draw(outputs, notebook: str, name: str) -> None:
    """A figure of a notebook at cpu, with its provenance beside it."""
    content, path = io.BytesIO(), outputs / "figures" / "cpu" / f"{name}.png"
    PIL.Image.new("RGB", (1, 1)).save(content, "PNG")
    stamp = {"notebook": notebook, "parameters": {}, "commit": "", "device": "", "alt": f"what {name} shows"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.getvalue())
    path.with_suffix(".json").write_text(json.dumps(stamp))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A report on one claim at cpu and gpu, all that published runs decide, and figures of every notebook: those that
    claims name, and one more."""
    outputs = tmp_path_factory.mktemp("made") / "outputs"
    given = parameters.of_profile("cpu", "instability")
    nb = a_notebook("instability", outputs, lrs=given["lrs"])
    nb.claim(JUDGED, [1.0, 1.1, 1.2], [1, 2, 3], "decades", "a <note>")
    a_notebook("instability", outputs, "gpu", lrs=[0.25]).claim(JUDGED, [0.1, -0.1], [1, 2], "decades")
    of_published = a_notebook("published_runs", outputs)
    for one in LEDGER.values():
        if one.published:
            of_published.claim_of_published(one.id, [0.459], (0.43, 0.49), "phi")
    for notebook in NOTEBOOKS:
        for name in (f"a_{notebook}", *NAMED.get(notebook, ())):
            draw(outputs, notebook, name)
    report.build(outputs, "cpu")
    return outputs / "report"


def page(folder, id: str) -> str:
    return (folder / "claims" / f"{id}.html").read_text()


def text(page: str) -> str:
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", page.partition("<body>")[2]).split()))


def test_every_claim_has_a_page_between_those_beside_it(folder):
    assert {path.stem for path in (folder / "claims").iterdir()} == {*LEDGER}
    for at, id in enumerate(ORDER):
        links = dict(re.findall(r'<a rel="(prev|next)" href="(.*?)\.html"', page(folder, id)))
        beside = {"prev": ORDER[at - 1] if at else None, "next": ORDER[at + 1] if at + 1 < len(ORDER) else None}
        assert links == {name: other for name, other in beside.items() if other}


def test_a_page_says_what_was_stated_measured_and_judged(folder):
    said, claim = text(page(folder, JUDGED)), LEDGER[JUDGED]
    finding = claims.read(folder.parent / "claims" / "cpu" / f"{JUDGED}.json")
    for part in (claim.where, claim.effect_from.split(":")[0], "a <note>", "seeds 1, 2, 3", "1, 1.1, 1.2"):
        assert part in said
    assert f"{finding.mean:.3g} decades, 95 % interval {finding.low:.3g} to {finding.high:.3g}" in said
    assert "At the cpu profile: reproduced" in said and "At the gpu profile: not resolved" in said
    assert "too few seeds, by permutation" in said and "What would settle it" in said
    assert "Prairie et al., Parcae: Scaling Laws For Stable Looped Language Models" in said
    assert "On published runs: reproduced" in text(page(folder, "000-phi"))


def test_what_nobody_measured_says_so_and_how_to(folder):
    other = next(one for one in LEDGER.values() if one.notebook == "early_exit")
    assert "Nothing measured yet." in page(folder, other.id)
    assert "make reproduce-figures PROFILE=cpu ONLY=early_exit" in page(folder, other.id)
    of_others = next(one for one in LEDGER.values() if one.paper == "005")
    assert "published runs decide" in text(page(folder, of_others.id))


def test_the_command_is_makes_unless_parameters_were_others():
    given = parameters.of_profile("cpu", "instability")
    again = claim_pages.command("instability", "cpu", {"parameters": given})
    assert again == "make reproduce-figures PROFILE=cpu ONLY=instability"
    assert claim_pages.command("instability", "cpu", {"parameters": {**given, "jobs": 7, "outputs": "x"}}) == again
    changed = claim_pages.command("instability", "cpu", {"parameters": {**given, "lrs": [0.5, 0.25]}})
    assert (
        changed
        == "papermill notebooks/instability.ipynb out.ipynb -f params/cpu/instability.yaml -y '{lrs: [0.5, 0.25]}'"
    )


@pytest.mark.parametrize("profile", WHOLE)
def test_parameters_that_a_file_has_kept_are_still_the_profiles(profile):
    """Among them tables by width or budget, whose keys are numbers, and text in JSON."""
    for name in NOTEBOOKS:
        kept = json.loads(json.dumps(parameters.of_profile(profile, name)))
        again = f"make reproduce-figures PROFILE={profile} ONLY={name}"
        assert claim_pages.command(name, profile, {"parameters": kept}) == again


def test_what_was_drawn_in_part_is_drawn_so_again_by_make():
    given = parameters.of_profile("desk", "end_to_end")
    part = {"seeds": given["seeds"][:1], "sizes": dict([*given["sizes"].items()][:2])}
    made = {"parameters": {**given, **part}, "cut_from": {name: given[name] for name in part}}
    assert claim_pages.command("end_to_end", "desk", made) == "make reproduce-figures PROFILE=desk ONLY=end_to_end"
    made["parameters"]["lr"] = 0.5
    assert claim_pages.command("end_to_end", "desk", made).endswith(" -f params/desk/end_to_end.yaml -y '{lr: 0.5}'")
    del made["cut_from"]  # somebody asked for these alone
    assert "{lr: 0.5, seeds: [" in claim_pages.command("end_to_end", "desk", made)


def test_a_page_shows_the_figure_that_the_ledger_names_and_links_the_others(folder):
    for one in LEDGER.values():
        shown = page(folder, one.id)
        expected = [*filter(None, [one.figure, one.published_figure])]
        pictures = re.findall(r'<img src="\.\./figures/cpu/(.*?)\.png" alt="(.*?)"', shown)
        assert pictures == [(name, f"what {name} shows") for name in expected], one.id
        linked = {name for name in re.findall(r'<a href="\.\./figures/cpu/(.*?)\.png">\1</a>', shown)}
        sections = [(one.notebook, one.figure)] if one.notebook else []
        sections += [("published_runs", one.published_figure)] if one.published else []
        every = {f"a_{notebook}" for notebook, _ in sections}.union(*(NAMED.get(at, ()) for at, _ in sections))
        assert linked == every - {*expected}, one.id
        assert shown.count("None of the notebook") == sum(not name for _, name in sections), one.id


def test_a_figure_that_is_not_there_is_named(folder):
    outputs = folder.parent
    (outputs / "figures" / "cpu" / "instability_each_rate.png").rename(outputs / "kept.png")
    (outputs / "figures" / "cpu" / "instability_each_rate.json").rename(outputs / "kept.json")
    report.build(outputs, "cpu")
    said = text(page(folder, JUDGED))
    for kind in ("png", "json"):
        (outputs / f"kept.{kind}").rename(outputs / "figures" / "cpu" / f"instability_each_rate.{kind}")
    report.build(outputs, "cpu")
    assert "The figure that shows this claim, instability_each_rate, is not here." in said
    assert "is not here" not in text(page(folder, JUDGED))


def test_a_page_loads_only_what_lies_beside_it(folder):
    for id in ORDER:
        assert "default-src 'none'" in page(folder, id) and "<script" not in page(folder, id)
        for address in loaded(page(folder, id)):
            assert (folder / "claims" / address.partition("#")[0]).is_file(), address


def test_headers_have_a_scope_and_pictures_have_words(folder):
    for id in (JUDGED, "000-phi"):
        assert all("scope=" in header for header in re.findall(r"<th\b[^>]*>", page(folder, id)))
        assert all(alt for alt in re.findall(r'<img [^>]*alt="(.*?)"', page(folder, id)))
        assert page(folder, id).count("<h1>") == 1 and '<html lang="en">' in page(folder, id)


@pytest.mark.parametrize("kind", ["ordering", "bound", "tie", "value"])
def test_a_rule_names_the_outcomes_of_its_kind(kind):
    claim = next(one for one in LEDGER.values() if one.kind == kind)
    said = claim_pages.rule(claim)
    assert "reproduced" in said and "contradicted" in said and ("absent here" in said) == (kind == "ordering")
    if kind == "value":
        assert f"within {claim.margin:.3g} of {claim.value:.4g}" in said


def test_a_page_of_a_claim_that_is_gone_goes(folder):
    (folder / "claims" / "of-no-claim.html").write_text("old")
    report.build(folder.parent, "cpu")
    assert not (folder / "claims" / "of-no-claim.html").exists()

"""A claim's page says what is stated, what was measured and how to do it again; all pages lead to what lies beside."""

import html
import io
import json
import re
import shutil
from urllib.parse import urlsplit

import nbformat
import PIL.Image
import pytest
import yaml
from nbformat.v4 import new_markdown_cell, new_notebook

from lib.papers.parcae.parameters import EndToEnd, Instability
from lib.workbook import claims, documents, parameters, places, report, stale
from tests.pages import BINDER, loaded
from tests.workbooks import ROOT, a_notebook, published_at

LEDGER = claims.ledger(ROOT / "params" / "claims.yaml")
ORDER = sorted(LEDGER, key=lambda id: LEDGER[id].paper)
JUDGED = "001-base-state-explodes"
#: notebook -> the figures of it that claims name
NAMED: dict[str, set[str]] = {}
for one in LEDGER.values():
    for notebook, figure in ((one.notebook, one.figure), (one.published, one.published_figure)):
        NAMED.setdefault(notebook, set()).update(filter(None, [figure]))
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
    given = parameters.at_profile(Instability, "cpu").model_dump()
    nb = a_notebook("instability", outputs, lrs=given["lrs"])
    nb.claim(JUDGED, [1.0, 1.1, 1.2], [1, 2, 3], "decades", "a <note>")
    a_notebook("instability", outputs, "gpu", lrs=[0.25]).claim(JUDGED, [0.1, -0.1], [1, 2], "decades")
    for one in LEDGER.values():
        if one.published:
            a_notebook(one.published, outputs).claim_of_published(one.id, [0.459], (0.43, 0.49), "phi")
    for notebook in NOTEBOOKS:
        for name in (f"a_{notebook}", *NAMED.get(notebook, ())):
            draw(outputs, notebook, name)
    copies = outputs / "notebooks" / "cpu"
    copies.mkdir(parents=True)
    nbformat.write(new_notebook(cells=[new_markdown_cell("# A heading")]), copies / "instability.ipynb")
    (outputs / "report" / "claims").mkdir(parents=True)
    (outputs / "report" / "claims" / "of-no-claim.html").write_text("of another time")
    assert stale.site(outputs, "cpu") == []
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
    assert f"{finding.mean:.3g} [{finding.low:.3g}, {finding.high:.3g}] decades" in said
    assert "At the cpu profile: reproduced" in said and "At the gpu profile: not resolved" in said
    assert "too few seeds, by permutation" in said and "What would settle it" in said
    assert "Prairie et al., Parcae: Scaling Laws For Stable Looped Language Models" in said
    assert "On published runs: reproduced" in text(page(folder, "000-phi"))


def test_what_nobody_measured_says_so_and_how_to(folder, tmp_path):
    other = next(one for one in LEDGER.values() if one.notebook == "early_exit")
    assert "Its notebook was not run here." in page(folder, other.id)
    assert "make reproduce-figures PROFILE=cpu ONLY=early_exit" in page(folder, other.id)
    of_others = next(one for one in LEDGER.values() if one.paper == "005")
    assert "published runs decide" in text(page(folder, of_others.id))
    assert report.build(tmp_path, "second-text") == []  # which has three of the notebooks
    assert "To measure it" not in page(tmp_path / "report", other.id)
    assert "ONLY=unified_law" in page(tmp_path / "report", "001-conditioning-needed")


def as_kept(kind, profile: str) -> dict:
    """Parameters as the file of a finding has them."""
    return json.loads(json.dumps(parameters.at_profile(kind, profile).model_dump()))


def test_the_command_is_makes_unless_parameters_were_others():
    given = as_kept(Instability, "cpu")
    for same in ({}, {"jobs": 7, "outputs": "x"}):
        again = report.command("instability", "cpu", {"parameters": given | same})
        assert again == "make reproduce-figures PROFILE=cpu ONLY=instability"
    changed = report.command("instability", "cpu", {"parameters": given | {"lrs": [0.5, 0.25]}})
    assert changed == "papermill notebooks/instability.ipynb out.ipynb -p profile cpu -y '{lrs: [0.5, 0.25]}'"


def test_what_was_drawn_in_part_is_drawn_so_again_by_make():
    given = as_kept(EndToEnd, "desk")
    part = {"seeds": given["seeds"][:1], "sizes": dict([*given["sizes"].items()][:2])}
    made = {"parameters": {**given, **part}, "cut_from": {name: given[name] for name in part}}
    assert report.command("end_to_end", "desk", made) == "make reproduce-figures PROFILE=desk ONLY=end_to_end"
    made["parameters"]["lr"] = 0.5
    assert report.command("end_to_end", "desk", made).endswith(" -p profile desk -y '{lr: 0.5}'")
    del made["cut_from"]  # somebody asked for these alone
    assert "{lr: 0.5, seeds: [" in report.command("end_to_end", "desk", made)


def test_a_page_shows_the_figure_that_the_ledger_names_and_links_the_others(folder):
    for one in LEDGER.values():
        shown = page(folder, one.id)
        expected = [*filter(None, [one.figure, one.published_figure])]
        pictures = re.findall(r'<img alt="(.*?)" src="\.\./figures/cpu/(.*?)\.png"', shown)
        assert pictures == [(f"what {name} shows", name) for name in expected], one.id
        linked = {name for name in re.findall(r'<a href="\.\./figures/cpu/(.*?)\.png">\w', shown)}
        sections = [(one.notebook, one.figure)] if one.notebook else []
        sections += [(one.published, one.published_figure)] if one.published else []
        every = {f"a_{notebook}" for notebook, _ in sections}.union(*(NAMED.get(at, ()) for at, _ in sections))
        assert linked == every - {*expected}, one.id


def test_a_claim_without_a_figure_says_what_was_counted_and_every_claim_what_was_tested(tmp_path, monkeypatch):
    """A single number stands there once. Links lead to other claims; of what is not beside them words are left."""
    (entry,) = (entry for entry in yaml.safe_load(places.LEDGER.read_text()) if entry["id"] == "003-excluded-flops")
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump([entry | {"figure": "", "instead": "Counted <here>."}]))
    monkeypatch.setattr(places, "LEDGER", tmp_path / "claims.yaml")
    told = "It *is* $r^2$ as in [phi](claims.md#000-phi), says [the log](../LOG.md)."
    monkeypatch.setattr(documents, "explanations", lambda: {entry["id"]: told})
    a_notebook(entry["notebook"], tmp_path).claim(entry["id"], [20.9], [], "%")
    assert report.build(tmp_path, "cpu") == []
    shown = page(tmp_path / "report", entry["id"])
    assert (
        "Counted &lt;here&gt;." in shown and shown.count("20.9") == 1 and "replicate" not in text(shown).lower()[:400]
    )
    assert "<em>is</em> <math" in shown and '<a href="000-phi.html">phi</a>, says the log.' in shown


def test_every_link_of_the_site_leads_to_a_file_and_a_place_in_it(folder, tmp_path):
    """Without a network, and wherever the site is moved."""
    site = shutil.copytree(folder.parent / "site", tmp_path / "elsewhere")
    files = sorted(site.rglob("*.html"))
    ids = {path: set(re.findall(r'\bid="(.*?)"', path.read_text())) for path in files}
    followed = set()
    for path in files:
        text = path.read_text()
        assert {*re.findall(r'href="#(.*?)"', text)} <= ids[path] and str(folder.parent) not in text, path.name
        for address in loaded(text):
            parts = urlsplit(address)
            target = (path.parent / parts.path).resolve()
            assert not parts.scheme and target.is_file() and target.is_relative_to(site), f"{path.name}: {address}"
            assert not parts.fragment or parts.fragment in ids[target], f"{path.name}: {address}"
            followed.add(target)
    pages = {f"claims/{id}.html" for id in LEDGER} | {"index.html", "verdicts.json", "style.css"}
    assert {site / name for name in pages} <= followed
    assert [path.name for path in site.rglob(".*")] == [".nojekyll"]


def test_a_notebook_opens_in_binder_where_the_workbook_is_published(folder, tmp_path, monkeypatch):
    """From its place in the report and from its page, which is written anew when the field has changed."""
    outputs = shutil.copytree(folder.parent, tmp_path / "outputs")
    published_at("https://github.com/a/b", monkeypatch, tmp_path)
    assert stale.site(outputs, "cpu") == []
    link = f'href="{places.binder("instability")}"'
    linking = {path.name for path in (outputs / "site").rglob("*.html") if link in path.read_text()}
    assert linking == {"index.html", "instability.html"}
    published_at("", monkeypatch, tmp_path)
    assert stale.site(outputs, "cpu") == []
    assert not [path for path in (outputs / "site").rglob("*.html") if BINDER in path.read_text()]

"""The site is whole: every link in it leads to a file and a place in it, from a folder and without a network."""

import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import matplotlib.pyplot as plt
import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from lib.base.errors import InputError
from lib.workbook import claims, places, site
from tests.pages import BINDER, loaded
from tests.workbooks import ROOT, a_notebook, published_at


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A site of findings of two notebooks, a figure, and an executed copy; beside it a page that nothing leads to."""
    outputs = tmp_path_factory.mktemp("made") / "outputs"
    nb = a_notebook("instability", outputs)
    nb.claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades")
    a_notebook("published_runs", outputs).claim_of_published("000-phi", [0.459], (0.43, 0.49), "phi")
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    axis.set(xlabel="step", ylabel="loss")
    nb.save(figure, "instability_rates")
    copies = outputs / "notebooks" / "cpu"
    copies.mkdir(parents=True)
    nbformat.write(
        new_notebook(cells=[new_markdown_cell("# A heading"), new_code_cell("1")]), copies / "instability.ipynb"
    )
    (copies / ".instability.done").touch()
    (outputs / "report" / "notebooks" / "gpu").mkdir(parents=True)
    (outputs / "report" / "notebooks" / "gpu" / "stale.html").write_text("of another time")
    assert site.build(outputs, "cpu") == []
    return outputs


def html_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def test_every_link_leads_to_a_file_and_a_place_in_it(made):
    folder = made / "site"
    ids = {path.resolve(): set(re.findall(r'\bid="(.*?)"', path.read_text())) for path in html_files(folder)}
    followed = 0
    for path in html_files(folder):
        here = re.findall(r'href="#(.*?)"', path.read_text())
        assert {*here} <= ids[path.resolve()], path.name
        for address in loaded(path.read_text()):
            parts = urlsplit(address)
            assert not parts.scheme and not parts.netloc, f"{path.name} needs a network: {address}"
            target = (path.parent / parts.path).resolve()
            assert target.is_file() and target.is_relative_to(folder.resolve()), f"{path.name}: {address}"
            assert not parts.fragment or parts.fragment in ids[target], f"{path.name}: {address}"
            followed += 1
    assert followed > 2 * len(claims.ledger(ROOT / "params" / "claims.yaml"))


def test_report_claims_notebooks_and_data_are_there_and_nothing_else(made):
    there = {str(path.relative_to(made / "site")) for path in (made / "site").rglob("*") if path.is_file()}
    pages = {f"claims/{id}.html" for id in claims.ledger(ROOT / "params" / "claims.yaml")}
    assert there == pages | {
        "index.html",
        "style.css",
        "verdicts.json",
        "verdicts.parquet",
        "notebooks/cpu/instability.html",
        "figures/cpu/instability_rates.png",
        ".nojekyll",
    }


def test_the_folder_may_be_moved(made, tmp_path):
    moved = shutil.copytree(made / "site", tmp_path / "elsewhere" / "site")
    assert site.reached(moved)[0] == Path("index.html") and len(site.reached(moved)) > 200
    for path in html_files(moved):
        assert str(made) not in path.read_text()


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("nowhere.html", "not there"),
        ("../outside.html", "not there"),
        ("index.html#no", "no such place"),
        ("#no", "no such place"),
    ],
)
def test_a_link_that_leads_nowhere_is_one_line(tmp_path, link, said):
    (tmp_path / "site").mkdir()
    (tmp_path / "outside.html").write_text("")
    (tmp_path / "site" / "index.html").write_text(f'<p id="yes"><a href="#yes">a</a><a href="{link}">b</a></p>')
    with pytest.raises(InputError, match=rf"^site: index\.html leads to .*{said}"):
        site.reached(tmp_path / "site")


def test_links_to_other_sites_are_left_alone(tmp_path):
    (tmp_path / "index.html").write_text('<a href="https://example.org/a">b</a><img src="data:image/png;base64,AA">')
    assert site.reached(tmp_path) == [Path("index.html")]


def test_a_notebook_opens_in_binder_where_the_workbook_is_published(made, tmp_path, monkeypatch):
    """From its place in the report and from its page, which is written anew when the field has changed."""
    outputs = tmp_path / "outputs"
    shutil.copytree(made, outputs)
    published_at("https://github.com/a/b", monkeypatch, tmp_path)
    assert site.build(outputs, "cpu") == []
    link = f'href="{places.binder("instability")}"'
    linking = [path for path in html_files(outputs / "site") if link in path.read_text()]
    assert [str(path.relative_to(outputs / "site")) for path in linking] == [
        "index.html",
        "notebooks/cpu/instability.html",
    ]
    published_at("", monkeypatch, tmp_path)
    assert site.build(outputs, "cpu") == []
    assert not [path for path in html_files(outputs / "site") if BINDER in path.read_text()]


def test_the_workflow_publishes_what_make_site_makes():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text())
    build, deploy = workflow["jobs"]["build"]["steps"], workflow["jobs"]["deploy"]
    commands = [step["run"] for step in build if "run" in step]
    assert commands == ["make reproduce-figures PROFILE=desk", "make site PROFILE=desk"]
    (upload,) = [step for step in build if "upload-pages-artifact" in step.get("uses", "")]
    assert upload["with"]["path"] == "outputs/site" and deploy["needs"] == "build"
    assert workflow["permissions"] == {"contents": "read"}
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}

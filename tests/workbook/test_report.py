"""The report shows every claim, figure and provenance without a network, and names a damaged file in one line."""

import collections
import html
import json
import re
import shutil
import subprocess
import tomllib

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from lib.base import files
from lib.base.errors import InputError
from lib.flops import run_flops
from lib.sweep.training import sweep
from lib.workbook import audit, claims, places, report
from tests.lines import in_one_line
from tests.pages import loaded
from tests.runs import several
from tests.workbooks import ROOT, a_notebook

FIGURES = ["phi", "instability_each_rate", "instability_radius", "generate"]  # by paper
LEDGER = claims.ledger(ROOT / "params" / "claims.yaml")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Figures of three notebooks, a table, findings of two at two profiles, and copies of two, one of which failed."""
    folder = tmp_path_factory.mktemp("made") / "outputs"
    for name in ("generate", "instability_radius", "instability_each_rate", "phi"):
        figure, axis = plt.subplots()
        axis.plot([1, len(name)])
        if name.startswith("instability"):
            axis.set(xlabel="step", ylabel="loss")
        words = {"heading": "What phi is", "n": "3 runs, 1 seed"} if name == "phi" else {}
        a_notebook({"phi": "phi_probes"}.get(name, name.partition("_")[0]), folder).save(figure, name, **words)
    nb = a_notebook("instability", folder)
    nb.save_table(pd.DataFrame({"base": ["3 of 3 <train>"]}, index=pd.Index([0.01], name="lr")), "which_train")
    nb.claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades", "a <note>")
    nb.claim("001-base-diverged-rho-at-least-one", [-1.0, -1.1, -1.2], [1, 2, 3], "log rho")
    a_notebook("instability", folder, "gpu").claim("001-base-state-explodes", [-2.0, -2.1], [1, 2], "decades")
    a_notebook("instability", folder, "smoke").claim("001-base-state-explodes", [7.0], [1], "decades")
    a_notebook("moe_isoflop", folder).claim("004-base-exponent", [float("nan")], [1], "")
    plt.close("all")
    copies = folder / "notebooks" / "cpu"
    copies.mkdir(parents=True)
    error = new_output("error", ename="ValueError", evalue="on <purpose>", traceback=["ValueError"])
    cells = [new_markdown_cell("# A heading"), new_code_cell("1 / 0", outputs=[error])]
    nbformat.write(new_notebook(cells=cells), copies / "phi_probes.ipynb")
    nbformat.write(new_notebook(cells=cells[:1]), copies / "instability.ipynb")
    (copies / ".instability.done").touch()
    report.build(folder, "cpu")
    return folder


@pytest.fixture
def outputs(made, tmp_path):
    """A copy, to be damaged; pages of notebooks in it are up to date."""
    return shutil.copytree(made, tmp_path / "outputs")


def page_there(outputs) -> str:
    return (outputs / "report" / "index.html").read_text()


def built(outputs, profile="cpu") -> str:
    report.build(outputs, profile)
    return page_there(outputs)


@pytest.fixture(scope="module")
def page(made) -> str:
    """The page of what nobody has changed."""
    return page_there(made)


def rows(page: str) -> list[dict]:
    """Rows of what was judged: what the filter goes by, and the text of each column by its label."""
    found = []
    for start, body in re.findall(r"(<tr data-paper.*?>)(.*?)</tr>", page, re.S):
        cells = dict(re.findall(r'<td data-label="(.*?)".*?>(.*?)</td>', body, re.S))
        texts = {label: " ".join(re.sub("<.*?>", " ", cell).split()) for label, cell in cells.items()}
        claim = re.search(r"<code>(.*?)</code>", body).group(1)
        found.append({**texts, **dict(re.findall(r'data-(\w+)="(.*?)"', start)), "id": claim})
    return found


def test_what_was_judged_is_told_and_the_rest_is_folded(page, outputs):
    """Of every claim; smoke judges nothing, and is shown only when it is asked for."""
    found = [(row["id"], row["place"], row["verdict"]) for row in rows(page)]
    outcomes = "at cpu contradicted, at cpu reproduced, at gpu contradicted, at cpu not measured"
    assert ", ".join(f"{place} {verdict}" for _, place, verdict in found) == outcomes
    open_ = re.findall(r'href="claims/(.*?)\.html"', re.search(r'<details id="open">.*?</details>', page, re.S).group())
    assert sorted(open_) == sorted({*LEDGER} - {id for id, *_ in found})
    smoke = rows(built(outputs, "smoke"))
    (only,) = [row["Measured"] for row in smoke if row["place"] == "at smoke"]
    assert only.startswith("7 decades") and 'id="findings"' not in page_there(outputs)


def test_findings_of_the_readme_come_first_what_contradicts_before_what_agrees(outputs):
    """Each with its verdict on either scale, and its figure once; before them stands no verdict of others."""
    nb = a_notebook("published_runs", outputs)
    nb.claim_of_published("000-phi-below-one", [0.541], (0.5, 0.6), "1 - phi", "a note")
    nb.claim_of_published("000-r4-trails-the-plain-frontier", [-0.1], (-0.2, -0.05), "nats")
    ours = a_notebook("recurrence_exponent", outputs)
    ours.claim("000-phi-below-one", [0.5], [], "1 - phi", draws=[-0.2, 0.4])
    ours.save(plt.figure(), LEDGER["000-phi-below-one"].figure)
    page = built(outputs)
    findings = page[page.index('id="findings"') : page.index('id="claims"')]
    assert "<table" not in page[: page.index('id="findings"')]
    assert ">At cpu, and on published runs</th>" in page and ">by an interval</th>" in page
    told = re.findall(r'<h3><a href="claims/(.*?)\.html">(.*?)</a></h3>\n<p>(.*?)</p>', findings, re.S)
    order = "000-r4-trails-the-plain-frontier 000-phi-below-one"
    assert " ".join(id for id, *_ in told) == order and findings.count("<img") == 1
    by_id = {id: (text, re.findall("<b class=.*?>(.*?)</b> (.*?):", said)) for id, text, said in told}
    both = [("reproduced", "on published runs"), ("not resolved", "at cpu")]
    assert by_id["000-phi-below-one"] == (LEDGER["000-phi-below-one"].short, both)
    (outputs / "claims" / "published" / "000-phi-below-one.json").write_text("{}")
    (problem,) = report.build(outputs, "cpu")
    assert "claims/published/000-phi-below-one.json" in problem and "PROFILE=cpu ONLY=published_runs" in problem


def test_a_row_holds_what_was_measured_and_sums_tell_what_is_counted_from_what_is_trained(outputs):
    """Where opinions differ both are shown."""
    numbers = [0.1, 0.1, 0.1, 0.1, 0.1, 40.0]  # one outlier widens the interval over 0, and is above it
    a_notebook("instability", outputs).claim("001-parcae-trains-past-base", numbers, [*range(6)], "octaves")
    a_notebook("usage_weighted", outputs).claim("003-excluded-flops", [20.9], [], "%")
    page = built(outputs)
    found = {(row["id"], row["place"]): row for row in rows(page)}
    row, nothing = found["001-base-state-explodes", "at cpu"], found["004-base-exponent", "at cpu"]
    assert row["The paper"] == "above 0" and row["Verdict"] == "reproduced at cpu" and row["paper"] == "001"
    assert row["Measured"] == "1.1 [0.852, 1.35] decades a &lt;note&gt; instability"
    assert nothing["Measured"] == "no number moe_isoflop" and nothing["Verdict"] == "not measured at cpu"
    assert nothing["The paper"].startswith(f"{LEDGER['004-base-exponent'].value:.3g}")
    disputed = found["001-parcae-trains-past-base", "at cpu"]
    assert disputed["verdict"] == claims.DISPUTED
    assert "by its interval: not resolved; by permutation: reproduced" in disputed["Verdict"]
    summary = re.search(r'class="summary".*?</table>', page, re.S).group()
    told = re.findall(r'data-paper="(.*?)" data-verdict="(.*?)" data-place="(.*?)">(\d+)<', summary)
    counts = collections.Counter((row["paper"], row["verdict"], row["place"]) for row in found.values())
    assert {tuple(key): int(n) for *key, n in told} == counts and ">0<" not in summary
    assert counts["003", "contradicted", "at cpu, counted"] == 1 == counts["001", "contradicted", "at gpu"]


def test_a_replicate_costs_what_one_seed_of_the_plan_does(outputs, store):
    """What a run took, or, where it is not there, its FLOPs; without seeds, everything. A damaged part is a line."""
    there, missing = sweep(several(2), store, jobs=1).results, several(3)[2].planned
    (outputs / "runs").symlink_to(store.path)
    planned = {cfg.key: cfg.model_dump(mode="json") for cfg in [*(run.config for run in there), missing]}
    plan = {"runs": planned, "measurements": {"f": {"k": 1.0}}}
    files.write_checked(outputs / "plans" / "cpu" / "instability.json", plan)
    found = report.Outputs(outputs).runs("cpu", "instability")
    seed = {run.config.train.seed: run.summary["seconds"] for run in there}
    seed[missing.train.seed] = run_flops(missing) / report.RATE
    assert (dict(found.runs), found.there, found.measurements) == (seed, 2, [1.0])
    measured = 1.0 / report.RATE
    for one, took in seed.items():
        assert found.seconds([one]) == pytest.approx(took + measured)
    assert found.seconds([*seed][:2]) == pytest.approx((sum([*seed.values()][:2]) + measured) / 2)
    assert found.seconds([]) == pytest.approx(sum(seed.values()) + measured)
    assert report.Outputs(outputs).runs("cpu", "of_no_plan") == report.Ran()
    files.need_folder(outputs / "records" / "cpu" / "runs.parquet")
    (outputs / "records" / "cpu" / "runs.parquet" / "0.parquet").write_text("")
    (problem,) = report.build(outputs, "cpu")
    in_one_line(problem, "records: part 0.parquet of ", "restore its files")
    page = (outputs / "report" / "claims" / "001-base-state-explodes.html").read_text()
    assert "2 of 3 planned ones; 1 measurements" in page


def test_a_clone_shows_the_audit_that_is_committed(outputs):
    said = {"complaints": {"b": "off"}, "keys": ["a", "b"], "cpu": "e"}
    folder = outputs / "records" / "cpu"
    folder.mkdir(parents=True)
    (folder / "verdicts.json").write_text(json.dumps({"audit": said, "verdicts": []}))
    page = html.unescape(built(outputs))
    assert f"1 of 2 agree on another class of machine,\nby the {audit.FORMER}. Run b does not: off." in page


def test_figures_stand_by_paper_and_notebook_and_say_what_they_are(page, made):
    assert re.findall(r'<figure id="(.*?)"', page) == FIGURES
    assert re.findall(r'<h2 id="paper-(.*?)">', page) == ["000", "001", "004"]
    figures = page[page.index('<h2 id="paper-000"') :]
    found = re.findall(r'<img alt="(.*?)" src="(.*?)" width="(\d+)" height="(\d+)" loading="lazy">', figures)
    assert [src for _, src, *_ in found] == [f"figures/cpu/{name}.png" for name in FIGURES]
    assert "; ".join(alt for alt, *_ in found) == "figure phi; Loss against step.; Loss against step.; figure generate"
    width, height = map(int, found[0][2:])
    with Image.open(made / "report" / found[0][1]) as image:
        assert width < image.width and width / height == pytest.approx(image.width / image.height, rel=0.01)
    assert re.findall("<h4>(.*?)</h4>", figures)[:2] == ["What phi is", "instability each rate"]
    assert "Drawn from 3 runs, 1 seed." in figures


def test_provenance_is_folded_below_figures_and_tables(page, made):
    figure = re.search(r'<figure id="instability_each_rate".*?</figure>', page, re.S).group()
    stamp = json.loads((made / "figures" / "cpu" / "instability_each_rate.json").read_text())
    read = yaml.safe_load(html.unescape(re.search(r"<details.*?<pre>(.*?)</pre></details>", figure, re.S).group(1)))
    assert {name: read[name] for name in ("commit", "device", "notebook")} == {
        name: stamp[name] for name in ("commit", "device", "notebook")
    }
    table = re.search(r'<details class="table"><summary>table which_train.*?</table>.*?</details>', page, re.S).group()
    assert '<th scope="row">0.01</th><td>3 of 3 &lt;train&gt;</td>' in table and "notebook: instability" in table


def test_the_report_needs_no_network(page):
    assert {address for address in loaded(page) if address.endswith(".png")} == {
        f"figures/cpu/{name}.png" for name in FIGURES
    }
    policy = "default-src 'none'; form-action 'none'; base-uri 'none'; img-src 'self' file:;"
    assert f'Content-Security-Policy" content="{policy}' in page
    page = page.replace('xmlns="http://www.w3.org/1998/Math/MathML"', "")  # a name, which nothing looks up
    assert not re.search(r"https?://|fetch\(|XMLHttpRequest|import\(", page)


def test_a_failed_notebook_says_why_and_its_copy_is_there(page, outputs):
    assert page.count("did not run to its end: ValueError: on &lt;purpose&gt;") == 2
    assert "ValueError" in (outputs / "report" / "notebooks" / "cpu" / "phi_probes.html").read_text()
    (outputs / "notebooks" / "cpu" / ".phi_probes.done").touch()
    assert "did not run to its end" not in built(outputs)


DAMAGED = {
    "figures/cpu/instability_each_rate.json": ("{", "ONLY=instability"),
    "figures/cpu/instability_radius.png": ("not a picture", "ONLY=instability"),
    "tables/cpu/which_train.csv": ("", "ONLY=instability"),
    "claims/cpu/001-base-state-explodes.json": ('{"id": 1}', "ONLY=instability"),
    "claims/gpu/001-base-state-explodes.json": ("", "PROFILE=gpu ONLY=instability"),
    "claims/cpu/of-no-claim.json": ("{}", "remove it"),
    "audits/cpu.json": ("{}", "make audit"),
    "notebooks/cpu/instability.ipynb": ("{", "ONLY=instability"),
    # of another version
    "plans/cpu/instability.json": (files.sealed({"runs": {"a": {"model": {"heigth": 1}}}}), "ONLY=instability"),
}


@pytest.mark.precision
def test_damaged_files_are_a_line_each_and_the_rest_is_there(page, outputs):
    for name, (text, _) in DAMAGED.items():
        (outputs / name).parent.mkdir(exist_ok=True, parents=True)
        (outputs / name).write_text(text)
    problems = report.build(outputs, "cpu")
    assert len(problems) == len(DAMAGED)
    left = page_there(outputs)
    for name, (_, remedy) in DAMAGED.items():
        (problem,) = [problem for problem in problems if name in problem]
        in_one_line(problem, name, remedy)
        assert left.count("<li>" + problem.split(": ")[0]) == 1
    assert left.count("<figure id") == 4 - 2  # without a whole picture, or without its provenance
    assert len(rows(left)) == len(rows(page)) - 2  # a claim's at either profile


def test_a_damaged_ledger_is_one_line_and_leaves_the_page_of_before(page, outputs, tmp_path, monkeypatch):
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "claims.yaml").write_text("- {id: a, papre: '001'}\n")
    monkeypatch.setattr(places, "LEDGER", tmp_path / "params" / "claims.yaml")
    with pytest.raises(InputError, match=r"claims\.yaml: 'a'"):
        report.build(outputs, "cpu")
    assert page_there(outputs) == page


def test_the_templates_and_data_are_shipped():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = {
        path
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    every = {path for path in (ROOT / "lib").rglob("*.*") if path.suffix not in (".py", ".pyc")}
    assert shipped and shipped == every


# ---- in a browser


@pytest.fixture
def dom(outputs, tmp_path):
    """The page after a reader did what a script does, in a browser that reaches no network."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    assert browser, "no browser: install chromium to run this test"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom"]
    whole, page = built(outputs), outputs / "report" / "played.html"

    def played(script: str) -> str:
        page.write_text(whole.replace("</body>", f"<script>{script}</script></body>"))
        return subprocess.run([browser, *flags, page.as_uri()], capture_output=True, text=True, timeout=120).stdout

    return played


def chosen(page: str) -> list[str]:
    return re.findall(r"<tr(?![^>]* hidden)[^>]*data-verdict=\"(.*?)\"", page)


@pytest.mark.browser
def test_filters_leave_the_rows_that_match_and_count_them(dom):
    shown = dom("form.verdict.value = 'contradicted'; form.dispatchEvent(new Event('input'))")
    assert '<form id="filter">' in shown and chosen(shown) == ["contradicted"] * 2
    assert ">2 of 4 verdicts: 2 contradicted<" in shown and shown.count('<tbody hidden="">') == 1  # of 004
    both = "form.words.value = 'EXPLOSION pre'; form.place.value = 'at gpu'; form.dispatchEvent(new Event('input'))"
    assert chosen(dom(both)) == ["contradicted"]
    link = "document.querySelector('.summary a[data-verdict=reproduced]').click()"
    assert chosen(dom(link)) == ["reproduced"]

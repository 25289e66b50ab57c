import re
import shutil
import subprocess

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from lib import claims, notebook, report
from tests.conftest import ROOT


@pytest.fixture
def outputs(tmp_path):
    nb = notebook.Notebook("instability", {"profile": "cpu"}, tmp_path)
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    nb.save(figure, "instability_rates")
    nb.save_table(pd.DataFrame({"base": ["3 of 3 <train>"]}, index=pd.Index([0.01], name="lr")), "which_train")
    nb.claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades", "a <note>")
    nb.claim("001-base-diverged-rho-at-least-one", [-1.0, -1.1, -1.2], [1, 2, 3], "log rho")
    plt.close("all")
    return tmp_path


def test_the_report_shows_figures_every_claim_and_provenance(outputs):
    page = report.build(outputs, "cpu").read_text()
    ledger = claims.ledger(ROOT / "params" / "claims.yaml")
    for entry in ledger.values():
        assert entry.id in page
    assert page.count('<span class="verdict open">') == len(ledger) - 2
    assert '<span class="verdict reproduced">' in page and '<span class="verdict contradicted">' in page
    assert "1.1 [0.852, 1.35] decades" in page and "a &lt;note&gt;" in page and "seeds 1, 2, 3" in page
    assert "instability_rates" in page and "commit" in page
    assert "which_train" in page and "<td>0.01</td><td>3 of 3 &lt;train&gt;</td>" in page


def test_the_report_is_self_contained(outputs):
    page = report.build(outputs, "cpu").read_text()
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert links and all(link.startswith("data:image/png;base64,") for link in links)
    assert "<script" not in page and "@import" not in page and "url(" not in page


def test_a_report_of_nothing_says_so(tmp_path):
    page = report.build(tmp_path, "cpu").read_text()
    assert "0 figures" in page and "0 are measured" in page


@pytest.mark.long
def test_a_browser_shows_the_report(outputs, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    assert browser, "no browser: install chromium to run this test"
    page = report.build(outputs, "cpu")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run([browser, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    assert "001-base-state-explodes" in shown.stdout
    picture = tmp_path / "report.png"
    subprocess.run([browser, *flags, f"--screenshot={picture}", "--window-size=1000,1600", page.as_uri()], timeout=120)
    assert picture.stat().st_size > 20_000

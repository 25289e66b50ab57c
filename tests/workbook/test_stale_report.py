"""The report is built where something that it shows has changed, and only there; what is damaged is named each time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
import yaml
from nbformat.v4 import new_markdown_cell, new_notebook

from lib.base import files
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.workbook import places, report, stale
from tests.runs import several
from tests.workbooks import ROOT, a_notebook, moved

CLAIM = "001-base-state-explodes"


@pytest.fixture(scope="module", autouse=True)
def ledger(tmp_path_factory):
    """Of one claim, so that a report is built fast."""
    (entry,) = (entry for entry in yaml.safe_load(places.LEDGER.read_text()) if entry["id"] == CLAIM)
    path = tmp_path_factory.mktemp("ledger") / "claims.yaml"
    path.write_text(yaml.safe_dump([entry]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "LEDGER", path)
        yield path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report of one notebook: a finding, a figure, an executed copy, a plan, a run of it here and one in records."""
    outputs = tmp_path_factory.mktemp("made") / "outputs"
    nb = a_notebook("instability", outputs)
    nb.claim(CLAIM, [1.0, 1.1, 1.2], [1, 2, 3], "decades")
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    nb.save(figure, "instability_rates")
    plt.close("all")
    copies = outputs / "notebooks" / "cpu"
    copies.mkdir(parents=True)
    nbformat.write(new_notebook(cells=[new_markdown_cell("# A heading")]), copies / "instability.ipynb")
    (copies / ".instability.done").touch()
    store = RunStore(outputs / "runs")
    here, there = sweep(several(2), store, jobs=1).results
    records.add(outputs / "records" / "cpu", [there], [])
    files.remove(store.path / there.key)
    planned = {run.key: run.config.model_dump(mode="json") for run in (here, there)}
    files.write_checked(outputs / "plans" / "cpu" / "instability.json", {"runs": planned})
    assert stale.renew(outputs, "cpu") == []
    return outputs


@pytest.fixture
def outputs(made, tmp_path):
    """A copy, to be changed, in its place: whatever the report says of folders, it says of this one."""
    shutil.copytree(made, tmp_path / "outputs")
    aside = made.with_name("aside")
    made.rename(aside)
    (tmp_path / "outputs").rename(made)
    yield made
    shutil.rmtree(made)
    aside.rename(made)


@pytest.fixture
def built(monkeypatch):
    """The profiles whose report is built, of which the page has nothing but the name."""
    found = []

    def build(outputs, profile):
        found.append(profile)
        (outputs / "report" / "index.html").write_text(profile)
        return []

    monkeypatch.setattr(report, "build", build)
    return found


def test_where_nothing_has_changed_nothing_is_built(outputs, built, capsys):
    for path in outputs.rglob("*"):
        os.utime(path, (1, 1))
    assert stale.renew(outputs, "cpu") == [] and built == []
    assert capsys.readouterr().out == "report     nothing that it is made from has changed\n"


#: what the report is made from, and what it is
COUNTS = f"""
claims/cpu/{CLAIM}.json claims/published/{CLAIM}.json figures/cpu/instability_rates.png audits/cpu.json
figures/cpu/instability_rates.json tables/cpu/instability_some.csv notebooks/cpu/instability.ipynb
notebooks/cpu/.instability.done plans/cpu/instability.json records/cpu/runs.parquet/a.parquet runs/other/result.json
report/index.html report/claims/{CLAIM}.html records/cpu/verdicts.json
""".split()


@pytest.mark.parametrize("name", COUNTS)
def test_what_the_report_is_made_from_or_is_has_changed(outputs, built, name):
    path = outputs / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b" ")
    stale.renew(outputs, "cpu")
    assert built == ["cpu"]


@pytest.mark.parametrize("name", ["lib/x.py", "notebooks/x.ipynb", "params/claims.yaml", "CITATION.cff"])
def test_a_change_in_the_workbook_is_one(outputs, built, name, tmp_path, monkeypatch):
    moved(monkeypatch, tmp_path)
    for times in (1, 2):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{times}")
        stale.renew(outputs, "cpu")
        stale.renew(outputs, "cpu")
        assert built == ["cpu"] * times


def test_another_profile_is_another_report(outputs, built):
    for profile in ("smoke", "smoke", "cpu", "cpu"):
        stale.renew(outputs, profile)
        assert (outputs / "report" / "index.html").read_text() == profile
    assert built == ["smoke", "cpu"]


def test_make_fails_with_a_line_a_damaged_file_until_it_is_mended_once_the_page_is_there(outputs, monkeypatch):
    path, page = outputs / "figures" / "cpu" / "instability_rates.png", outputs / "report" / "index.html"
    whole = path.read_bytes()
    path.write_text("not a picture")
    (outputs / "figures" / "cpu" / "phi.json").write_text("")
    monkeypatch.chdir(outputs.parent)
    for _ in range(2):
        with pytest.raises(SystemExit) as stopped:
            stale.write_report("cpu")
        lines = stopped.value.code.splitlines()
        assert ["instability_rates.png: cannot be read (it is damaged), " in line for line in lines] == [True, False]
        assert all("again" in line for line in lines) and "cannot be read (it is damaged)" in page.read_text()
    path.write_bytes(whole)
    (outputs / "figures" / "cpu" / "phi.json").unlink()
    stale.write_report("cpu")
    assert "it is damaged" not in page.read_text()


_opened: list[Path] | None = None


def _note(event: str, arguments: tuple) -> None:
    if event == "open" and _opened is not None and isinstance(arguments[0], str | Path):
        _opened.append(Path(arguments[0]))


def test_all_that_is_read_for_a_report_counts(outputs):
    """What a build opens, in the workbook and its outputs, is among its sources, or it has made it."""
    global _opened
    sys.addaudithook(_note)
    files.remove(outputs / "report")
    _opened = []
    try:
        report.build(outputs, "cpu")
        opened = {path.absolute() for path in _opened if path.is_file() and not stale.passes(path)}
    finally:
        _opened = None
    known = [path.absolute() for path in (*stale._sources(outputs), *stale._made(outputs, "cpu"))]
    runs = [path.parent.absolute() for path in outputs.glob("runs/*/result.json")]  # which has checksums of the others
    ours = {path for path in opened if path.is_relative_to(outputs.absolute()) or path.is_relative_to(ROOT)}
    ours = {path for path in ours if not path.is_relative_to(ROOT / ".venv")}
    assert (outputs / "plans" / "cpu" / "instability.json").absolute() in ours and places.LEDGER in opened
    assert not [path for path in ours if not any(path.is_relative_to(one) for one in known + runs)]


def test_to_see_that_nothing_has_changed_takes_no_torch(outputs):
    code = (
        "import sys; from pathlib import Path; from lib.workbook.stale import renew;"
        f"from lib.workbook import places; places.LEDGER = Path({str(places.LEDGER)!r});"
        f"renew(Path({str(outputs)!r}), 'cpu'); assert not {{'torch', 'numpy', 'pandas', 'jinja2'}} & {{*sys.modules}}"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0 and "has changed" in said.stdout, said.stderr

"""Whole makes, all in one workbook: what fails is said and holds up nothing else, and what was made is found again."""

import csv
import json
import shutil

import nbformat
import pytest

from lib.workbook import plans
from tests import made
from tests.workbooks import copied, make, papermill

AGAIN = "usage_weighted"  # make test-smoke runs all


@pytest.fixture(scope="module")
def workbook_at_smoke(tmp_path_factory):
    """Where make ran a notebook, and one more whose fourth cell fails; and what it said."""
    workbook = copied(tmp_path_factory.mktemp("make") / "workbook")
    broken = made.read(AGAIN)
    broken.cells[3].source = "raise RuntimeError('on purpose')"
    nbformat.write(broken, workbook / "notebooks" / "broken.ipynb")
    shutil.copy(workbook / f"params/smoke/{AGAIN}.yaml", workbook / "params/smoke/broken.yaml")
    only = f"ONLY=broken {AGAIN}"
    return workbook, make(workbook, "-j4", "reproduce-figures", "PROFILE=smoke", only, timeout=900)


pytestmark = [pytest.mark.costly, pytest.mark.precision]


def test_make_reports_a_failed_notebook_and_runs_another(workbook_at_smoke):
    workbook, done = workbook_at_smoke
    assert done.returncode != 0
    assert "failed     broken\n" in done.stdout.replace(" (the", "\n") and "outputs/report/index.html" in done.stdout
    folder = workbook / "outputs" / "notebooks" / "smoke"
    names = {f"{AGAIN}.ipynb", f".{AGAIN}.done", f".{AGAIN}.lock", "broken.ipynb", ".broken.lock"}
    assert {path.name for path in folder.iterdir()} == names
    assert "on purpose" in (folder / "broken.ipynb").read_text()
    assert (workbook / "outputs" / "report" / "index.html").exists()


def test_a_notebook_left_all_it_promises(workbook_at_smoke, plans_once):
    workbook, _ = workbook_at_smoke
    made.check(workbook / "outputs", AGAIN)
    made.check_plan(workbook / "outputs", AGAIN, plans.plan(AGAIN, "smoke"))


def test_what_was_made_is_not_made_again(workbook_at_smoke):
    workbook, done = workbook_at_smoke
    again = make(workbook, "notebooks", "PROFILE=smoke", f"ONLY={AGAIN}")
    assert again.returncode == 0 and f"notebook   {AGAIN}" in done.stdout
    assert "notebook   " not in again.stdout


def results(folder):
    """Tables, and claims without who made them."""
    tables = {path.name: list(csv.reader(path.open())) for path in sorted((folder / "tables/smoke").glob("usage*.csv"))}
    claims = {path.name: json.loads(path.read_text()) for path in sorted((folder / "claims/smoke").glob("003-*.json"))}
    assert tables and claims
    return tables, {name: {**claim, "provenance": None, "checksum": None} for name, claim in claims.items()}


@pytest.mark.long
def test_records_alone_give_the_same_numbers_again(workbook_at_smoke):
    """Of a whole notebook what test_records says of a sweep: make records packs what was trained; then the runs go, and
    the executed copy, run once more with the parameters that it has, finds nothing but the records."""
    workbook, _ = workbook_at_smoke
    outputs = workbook / "outputs"
    first = results(outputs)
    for path in (workbook / "notebooks").glob("*.ipynb"):
        if path.stem != AGAIN:
            path.unlink()  # records would find out what they ask, which takes longest
    packed = make(workbook, "records", "PROFILE=smoke", f"ONLY={AGAIN}", "JOBS=1", "MINUTES=4")
    assert packed.returncode == 0 and "nothing to train" in packed.stdout, packed.stderr[-2000:]
    for name in ("runs", "tables", "claims"):
        shutil.rmtree(outputs / name)
    copy = outputs / "notebooks" / "smoke" / f"{AGAIN}.ipynb"
    again = papermill(workbook, copy, outputs / "again.ipynb")
    assert again.returncode == 0, again.stderr[-2000:]
    assert results(outputs) == first
    assert not [*(outputs / "runs").glob("[!.]*")]


def test_clean_keeps_trained_runs_and_distclean_keeps_records(workbook):
    for name in ("runs/abc", "tokens", "notebooks", "figures", "report", "records/gpu"):
        (workbook / "outputs" / name).mkdir(parents=True)
    make(workbook, "clean")
    assert sorted(p.name for p in (workbook / "outputs").iterdir()) == ["records", "runs", "tokens"]
    make(workbook, "distclean")
    assert [p.name for p in (workbook / "outputs").iterdir()] == ["records"] and not (workbook / ".venv").exists()


def test_what_cpus_recorded_is_not_audited_on_a_gpu(workbook, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    audit = workbook / "lib" / "workbook" / "audit.py"
    audit.write_text("import os\n\ndef main(*asked):\n    print(asked[0], os.environ.get('CUDA_VISIBLE_DEVICES'))\n")
    assert make(workbook, "audit", "PROFILE=gpu").stdout == "gpu None\n"
    assert make(workbook, "audit", "PROFILE=desk").stdout == "desk \n"

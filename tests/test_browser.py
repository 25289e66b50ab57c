"""Every notebook runs in JupyterLab in a real browser, and once more after a parameter is changed in place.

The server is the one of ``make lab``; the browser is Chromium, driven by playwright. Each notebook is a copy of the
committed one; somebody turns it to the smoke profile, runs all cells, changes a parameter and runs all cells again in
the same kernel, and then moves the sliders, where there are any. One is run as it opens, at desk.
"""

import ast
import contextlib
import json
import re
import shutil
import typing
import urllib.error
import urllib.request

import nbformat
import pytest

from lib.base.parameters import Computing, Parameters
from lib.workbook.parameters import at_profile, kind_of
from tests import processes
from tests.made import NAMES
from tests.processes import until
from tests.workbooks import ROOT

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make browser installs it")
pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")

#: notebook -> the sliders that change its figure at this size
SLIDERS = {"early_exit": "threshold", "generate": "loops", "recurrence_exponent": "phi", "start_here": "curve"}
SLIDERS |= {"test_time_saturation": "seen"}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
PATIENCE = 900  # seconds for anything: a run of all cells, on a machine that does other things as well


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Copies of the notebooks beside their outputs, which they share as a user's do, and Jupyter's own files."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    return folder


@pytest.fixture(scope="module")
def lab(folder):
    """The address of a server as ``make lab`` starts it, with its token, but on the copies."""
    with processes.lab(folder, f"--ServerApp.root_dir={folder / 'notebooks'}") as (_, server_info):
        yield server_info


def answers(lab, what: str, method: str = "GET"):
    """What the server's REST interface says, parsed."""
    request = urllib.request.Request(
        lab["url"] + what, method=method, headers={"Authorization": f"token {lab['token']}"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read() or b"{}")


def waits(lab) -> bool:
    """Whether a kernel waits for work. The server answers 500 while a kernel starts: it has no last activity yet."""
    try:
        return any(kernel["execution_state"] == "idle" for kernel in answers(lab, "api/kernels"))
    except urllib.error.HTTPError as error:
        if error.code != 500:
            raise
        return False


@pytest.fixture(scope="module")
def browser(folder):
    if CHROMIUM is None:
        pytest.exit("browser: no chromium and no google-chrome is found, install one (apt install chromium)", 1)
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = started.new_context(viewport={"width": 1280, "height": 1000})  # its pages share what they loaded
        context.set_default_timeout(1000 * PATIENCE)
        yield context
        started.close()


class Reader:
    """Somebody with one notebook open in JupyterLab."""

    def __init__(self, lab, page, path, picture):
        self.lab, self.page, self.path, self.picture = lab, page, path, picture
        page.goto(f"{lab['url']}lab/tree/{path.name}?token={lab['token']}&reset")
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.wait_for()
        until(lambda: waits(lab), PATIENCE, pause=0.2)

    @contextlib.contextmanager
    def watched(self):
        """Keeps a picture of the page when something fails, and names it."""
        try:
            yield
        except (AssertionError, playwright.Error) as error:
            self.page.screenshot(path=self.picture)
            raise AssertionError(f"{error}\nwhat was on the screen: {self.picture}") from error

    def choose(self, menu: str, entry: str) -> None:
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.get_by_role("menuitem", name=entry).first.click()

    def cells(self):
        """The code cells of the notebook as it is saved now. A key that is pressed while JupyterLab saves by itself is
        lost, so that it is pressed again."""

        def saved():
            try:
                with self.page.expect_response(
                    lambda to: "/api/contents/" in to.url and to.request.method == "PUT", timeout=20_000
                ):
                    self.page.keyboard.press("Control+s")
            except playwright.TimeoutError:
                return False
            return True

        until(saved, PATIENCE)
        return [cell for cell in nbformat.read(self.path, 4).cells if cell.cell_type == "code"]

    def set_parameters(self, text: str) -> None:
        """Pastes a text over the parameters cell, the first of those with code."""
        self.page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Escape")

    def run_all(self):
        """Runs all cells to the end of the last, or to an error, and returns the code cells."""
        last = max(cell.execution_count or 0 for cell in self.cells())
        self.choose("Run", "Run All Cells")

        def ended():
            (kernel,) = answers(self.lab, "api/kernels")
            if kernel["execution_state"] != "idle":
                return None
            cells = self.cells()
            done = all((cell.execution_count or 0) > last for cell in cells)
            return cells if done or errors(cells) else None

        return until(ended, PATIENCE, pause=0.2)

    def see_figures(self, cells) -> None:
        """Scrolls to every figure that the cells hold, by itself or with sliders, of which there is one at least."""
        kinds = ("image/png", "application/vnd.jupyter.widget-view+json")
        held = sum(kind in o.get("data", {}) for cell in cells for o in cell.outputs for kind in kinds)
        figures = self.page.locator(".jp-Notebook .jp-OutputArea-output img")
        assert figures.count() == held > 0
        for figure in figures.all():
            figure.scroll_into_view_if_needed()
            assert figure.is_visible() and figure.evaluate("img => img.naturalWidth * img.naturalHeight") > 0

    def move(self, slider: str) -> None:
        """Drags a slider to where it has the most room, and sees its figure change."""
        widgets = self.page.locator(".widget-vbox").filter(
            has=self.page.locator(".widget-label", has_text=re.compile(f"^{slider}$"))
        )
        row = widgets.locator(".widget-slider").filter(has_text=slider)
        row.scroll_into_view_if_needed()
        figure = widgets.locator("img")
        before = figure.get_attribute("src")
        track, handle = row.locator(".noUi-base").bounding_box(), row.locator(".noUi-handle").bounding_box()
        x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
        share = 0.25 if x > track["x"] + track["width"] / 2 else 0.75
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(track["x"] + share * track["width"], y, steps=5)
        self.page.mouse.up()
        until(lambda: figure.count() and figure.get_attribute("src") != before, PATIENCE, pause=0.2)


def errors(cells) -> list[str]:
    return ["\n".join(o.traceback) for cell in cells for o in cell.outputs if o.output_type == "error"]


@pytest.fixture
def reader(browser, lab, folder, name, tmp_path):
    """Somebody with a copy of the notebook ``name``; when the test fails, a picture of what was on the screen."""
    page = browser.new_page()
    path = folder / "notebooks" / f"{name}.ipynb"
    shutil.copy(ROOT / "notebooks" / path.name, path)  # as it opens, whatever a test before has saved
    try:
        yield Reader(lab, page, path, tmp_path / f"{name}.png")
    finally:
        page.close()
        for session in answers(lab, "api/sessions"):
            answers(lab, f"api/sessions/{session['id']}", "DELETE")


def parameters_cell(source: str, kind: type[Parameters], values: dict) -> str:
    """The parameters cell of a notebook with some values in their places, and below it what it does not have."""
    lines, types = source.splitlines(), typing.get_type_hints(kind)
    for field in reversed(ast.parse(source).body):
        if field.target.id in values:
            value = values[field.target.id]
            new = f"{field.target.id}: {ast.unparse(field.annotation)} = {value!r}"
            lines[field.lineno - 1 : field.end_lineno] = [new]
    shown = {field.target.id for field in ast.parse(source).body}
    return "\n".join(lines + [f"{n}: {types[n].__name__} = {value!r}" for n, value in values.items() if n not in shown])


def changed(values: dict) -> dict:
    """One of the parameters, moved: another resample where runs are many and fits are studied, another seed
    to train where they are few, less text where there is neither."""
    moves = {"resamples": 1, "seeds": 1, "seed": 1, "max_bytes": -50_000}
    name = next(name for name in moves if name in values)
    was = values[name]
    return {name: [one + moves[name] for one in was] if isinstance(was, list) else was + moves[name]}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook(name, reader, folder):
    """Somebody runs it at smoke, changes one parameter, runs it again, and moves its sliders."""
    kind = kind_of(name)
    smoke = at_profile(kind, "smoke")
    given = {"profile": "smoke", "outputs": str(folder / "outputs")}
    if issubclass(kind, Computing):
        given["max_hours"] = 1.0
    for values in (given, {**given, **changed(smoke.model_dump())}):
        with reader.watched():
            asked = parameters_cell(reader.cells()[0].source, kind, values)
            reader.set_parameters(asked)
            cells = reader.run_all()
            assert cells[0].source == asked
            assert not errors(cells), errors(cells)[0]
            reader.see_figures(cells)
    with reader.watched():
        assert (reader.page.locator(".widget-slider").count() > 0) == (name in SLIDERS)
        if name in SLIDERS:
            reader.move(SLIDERS[name])


@pytest.mark.parametrize("name", ["looping_isoflop"])
def test_a_notebook_as_it_opens_draws_from_committed_runs(name, reader, folder):
    with reader.watched():
        own = {"outputs": str(folder / "outputs")}
        reader.set_parameters(parameters_cell(reader.cells()[0].source, kind_of(name), own))
        cells = reader.run_all()
        assert not errors(cells), errors(cells)[0]
        reader.see_figures(cells)
        assert f"desk: outputs {own['outputs']} (changed)" in "".join(o.get("text", "") for o in cells[1].outputs)

"""The paper profile is what the papers state, field by field; what is not is listed as ours, with its reason.

tests/papers/stated/<paper>.yaml transcribes the papers' tables of set-ups. ``sets`` are columns of such tables: each of
their ``cells`` has what the paper states (``is`` one value in every run, or ``each`` of some over the runs) and where
(``at``, of the set's ``source``); each of ``ours`` has what the profile has instead, or where the paper says nothing,
and ``why``. ``plans`` say of which sets the runs of a notebook are: ``which`` picks the runs by their facts, ``but``
leaves some out. ``parameters`` are of what is measured on runs.
"""

import collections
import functools
import itertools
import math
from typing import Any

import pytest
import yaml

from lib.flops import count
from lib.papers.isodepth import designs as isodepth
from lib.papers.isodepth.parameters import IsodepthIsoflop
from lib.papers.looped_moe import designs as sparse
from lib.papers.looped_moe.parameters import MoeIsoflop
from lib.papers.nanochat.parameters import UsageWeighted
from lib.workbook import plans
from lib.workbook.plans import NOTEBOOKS
from tests.cells import function
from tests.given import given, of_profile
from tests.papers.facts import ACCOUNTED, facts
from tests.workbooks import ROOT

pytestmark = pytest.mark.usefixtures("plans_once")

PAPERS = ("000", "001", "002", "003", "004")
#: asks for runs of other notebooks alone, or for what no paper has
BORROWED = {"downstream_core", "downstream_axes", "delta_phi_league", "depth_tasks"}
BORROWED |= {"early_exit_wallclock", "residual_scaling_beyond"}


@functools.cache
def stated(paper: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "tests" / "papers" / "stated" / f"{paper}.yaml").read_text())


@functools.cache
def planned(paper: str, name: str) -> list[dict[str, Any]]:
    return [facts(cfg, paper) for cfg in plans.plan(name, "paper").runs]


GROUPS = [
    pytest.param(paper, name, i, id=f"{name}-{i}")
    for paper in PAPERS
    for name, groups in stated(paper)["plans"].items()
    for i, _ in enumerate(groups)
]


def columns(paper: str, group: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the paper states of a group of runs, and what is ours there; the group's own come over its sets'."""
    parts = [*(stated(paper)["sets"][name] for name in group["sets"]), group]
    cells, ours = (collections.ChainMap(*(part.get(kind, {}) for part in parts[::-1])) for kind in ("cells", "ours"))
    return dict(cells), dict(ours)


def picked(paper: str, name: str, group: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a group."""

    def fits(run, asked):
        return all(run[field] in (value if isinstance(value, list) else [value]) for field, value in asked.items())

    left_out = group.get("but")
    return [run for run in planned(paper, name) if fits(run, group["which"]) and not (left_out and fits(run, left_out))]


def same(value: Any, wanted: Any, within: float) -> bool:
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not isinstance(value, int | float):
        return value == wanted
    return math.isclose(value, wanted, rel_tol=within or 1e-9)


def holds(cell: dict[str, Any], values: list[Any]) -> bool:
    """Whether every run has what a cell says, and each of what it lists is there."""
    within = cell.get("within", 0.0)
    wanted = cell["each"] if "each" in cell else [cell["is"]]
    allowed = all(any(same(value, one, within) for one in wanted) for value in values)
    return allowed and all(any(same(value, one, within) for value in values) for one in wanted)


@pytest.mark.parametrize(("paper", "name", "i"), GROUPS)
def test_a_run_is_what_its_paper_states(paper, name, i):
    """Or what is listed as ours; nothing is listed that the paper's cell says as well, and no field is left out."""
    group = stated(paper)["plans"][name][i]
    cells, ours = columns(paper, group)
    runs = picked(paper, name, group)
    assert runs, f"no run has {group['which']}"
    values = {field: [run[field] for run in runs] for field in cells | ours}
    wrong = {
        field: (cell, {*map(str, values[field])})
        for field, cell in (cells | ours).items()
        if not holds(cell, values[field])
    }
    assert not wrong, f"differ from {paper} and are not listed as ours: {wrong}"
    stale = [field for field in cells.keys() & ours if holds(cells[field], values[field])]
    assert not stale, f"listed as ours, but as the paper has it: {stale}"
    open_fields = [names for names in ACCOUNTED if not (cells | ours).keys() & {*names}]
    assert not open_fields, "neither stated nor ours"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_run_is_in_one_group(paper):
    known = stated(paper)["plans"]
    trained = {name for name in NOTEBOOKS[paper] if planned(paper, name)}
    assert trained - BORROWED == known.keys()
    for name, groups in known.items():
        found = [run for group in groups for run in picked(paper, name, group)]
        assert len(found) == len({id(run) for run in found}) == len(planned(paper, name)), name


@pytest.mark.parametrize("paper", PAPERS)
def test_what_is_measured_on_runs_is_what_is_stated(paper):
    for name, fields in stated(paper).get("parameters", {}).items():
        values = of_profile("paper", name)
        for field, cell in fields.items():
            value = values[field]
            if "has" in cell:
                assert {*cell["has"]} <= {*value}, (name, field)
            elif "count" in cell:
                assert len(value) == cell["count"], (name, field)
            else:
                assert value == cell["is"] or math.isclose(value, cell["is"], rel_tol=cell.get("within", 1e-9))


# ---- tables of sizes -------------------------------------------------------------------------------------------------


def test_000_the_grid_has_the_papers_parameters_and_tokens():
    """Table 6: N in millions, to its digit. Its tokens are "for r = 1", where its FLOPs (Eq. 1) give up to 2.7 % more
    than it prints; what it prints lies among the tokens of the four r, to its digits, and so it is held to that."""
    p, table = given(IsodepthIsoflop, "paper"), stated("000")["grid"]
    recurrences, budgets = table["recurrences"], table["budgets"]
    assert p.recurrences == recurrences and p.budgets == budgets
    cells: dict[Any, list[float]] = {}
    for (_, budget, _, width, _), cfg in isodepth.grid_with_noise(p).items():
        cells.setdefault((budget, width), []).append(cfg.tokens / 1e9)
    printed = {}
    for size, row in table["rows"].items():
        own = [isodepth.size(isodepth.model(p, r, 64 * size))["N"] / 1e6 for r in recurrences]
        assert own == pytest.approx(row["N"], abs=0.051), size
        printed |= {(budget, 64 * size): D for budget, D in zip(budgets, row["D"], strict=True) if D is not None}
    assert printed.keys() == cells.keys()
    assert all(min(cells[cell]) - 0.006 <= D <= max(cells[cell]) + 0.006 for cell, D in printed.items())


def test_003_the_widths_have_the_logs_parameters_and_flops():
    p, table = given(UsageWeighted, "paper"), stated("003")["sizes"]
    assert {*itertools.chain(*p.widths.values())} == {row["width"] for row in table["rows"].values()}
    for size, row in table["rows"].items():
        cfg = function("usage_weighted", "model")(p, row["width"])
        counts = count(cfg, p.context)
        assert (cfg.width, cfg.heads, counts.n_params) == (64 * size, row["heads"], row["parameters"])
        assert counts.published["003"] == pytest.approx(row["flops"], rel=1e-6)


def test_004_the_widths_have_the_papers_parameters():
    p, table = given(MoeIsoflop, "paper"), stated("004")["sizes"]
    assert {*itertools.chain(*p.widths.values())} - {*table["rows"]} == {*table["between"]}
    for width, row in table["rows"].items():
        four = {name: sparse.model(p, name, width, p.loops) for name in sparse.LOOK}
        counts = {name: count(cfg) for name, cfg in four.items()}
        assert {cfg.mlp_width for cfg in four.values()} == {row["d_ff"]}
        assert {cfg.heads for cfg in four.values()} == {row["heads"]}
        active = [c.n_active / 1e6 for c in counts.values()]  # up to .11M are routers', which the paper neglects
        assert active == pytest.approx([row["active"]] * 4, abs=0.61)
        stored = [counts[name].n_params / 1e6 for name in ("looped-moe", "moe")]
        assert stored == pytest.approx([row["stored"], row["stored_moe"]], abs=0.51)

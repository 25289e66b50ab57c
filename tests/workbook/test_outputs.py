"""What a plan came to is counted from the runs that are there, each with its own size, machine and time."""

import pytest

from lib.base import files
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.workbook.report import RATE, Outputs, Ran
from tests.lines import in_one_line
from tests.runs import several


@pytest.fixture
def outputs(store, tmp_path):
    """Two runs of three that a notebook planned."""
    folder = tmp_path / "outputs"
    results = sweep(several(2), store, jobs=1).results
    files.need_folder(folder)
    (folder / "runs").symlink_to(store.path)
    planned = {run.key: run.config for run in results} | {"c": several(3)[2].planned}
    dumped = {key: config.model_dump(mode="json") for key, config in planned.items()}
    files.write_checked(
        folder / "plans" / "cpu" / "instability.json", {"runs": dumped, "measurements": {"f": {"k": 1.0}}}
    )
    return folder


def test_a_replicate_costs_what_one_seed_of_the_plan_does(outputs):
    """What a run took, or, where it is not there, its FLOPs; without seeds, everything."""
    found, missing = Outputs(outputs).runs("cpu", "instability"), several(3)[2].planned
    there = RunStore(outputs / "runs").runs()
    seed = {run.config.train.seed: run.summary["seconds"] for run in there}
    seed[missing.train.seed] = run_flops(missing) / RATE
    assert (sorted(found.runs), found.there, found.measurements) == (sorted(seed.items()), 2, [1.0])
    measured = 1.0 / RATE
    for one, took in seed.items():
        assert found.seconds([one]) == pytest.approx(took + measured)
    assert found.seconds([*seed][:2]) == pytest.approx((sum([*seed.values()][:2]) + measured) / 2)
    assert found.seconds([]) == pytest.approx(sum(seed.values()) + measured)
    assert Outputs(outputs).runs("cpu", "of_no_plan") == Ran()


def test_a_damaged_part_is_a_line_and_the_rest_is_counted(outputs):
    files.need_folder(outputs / "records" / "cpu" / "runs.parquet")
    (outputs / "records" / "cpu" / "runs.parquet" / "0.parquet").write_text("")
    found = Outputs(outputs)
    assert len(found.runs("cpu", "instability").runs) == 3 and len(found.problems) == 1
    in_one_line(found.problems[0], "records: part 0.parquet of ", "restore its files")

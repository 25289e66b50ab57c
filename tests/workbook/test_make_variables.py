"""What make was asked is fine or refused in one line, by any Python and without the library."""

import subprocess
import sys

import pytest

from lib.base.parameters import PROFILES
from lib.workbook import make_variables
from tests.lines import in_one_line
from tests.workbooks import ROOT

FINE = dict.fromkeys(("ONLY", "MINUTES", "SHARD", "SEED", "BESIDE", "ENGINE", "GIVEN", "GOALS"), "")
FINE |= {"PROFILE": "cpu", "JOBS": "0", "TORCH": "cpu", "NOTEBOOKS": "generate instability"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"PROFILE": "smoke", "ONLY": " generate  instability ", "JOBS": "12", "GIVEN": "PROFILE ONLY JOBS"},
        *({"MINUTES": minutes, "GOALS": "records"} for minutes in ("8", "0.5", ".5", "8.", "08")),
        *({"SHARD": shard, "GOALS": "records"} for shard in ("1/1", "2/2", "10/12")),
        {"MINUTES": "8", "SEED": "3", "GOALS": "audit"},
        {"BESIDE": "outputs/Größe 2", "GOALS": "site report"},
        {"MINUTES": "8"},  # without a goal make helps
        {"ENGINE": "ray", "GIVEN": "ENGINE RAY_ADDRESS RUN_GPUS", "GOALS": "reproduce-figures"},
        {"TORCH": "cuda", "GIVEN": "TORCH PYTHON", "GOALS": "env lab"},
    ],
)
def test_what_is_fine_is_fine(changes):
    assert make_variables.answer({**FINE, **changes}) == "fine"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"GIVEN": "PROFILE SHELL"}, "SHELL: unknown variable, use PROFILE, ONLY, JOBS, MINUTES"),
        ({"PROFILE": "huge"}, "PROFILE: 'huge' is not known, use smoke, cpu, desk, gpu, paper, addendum or"),
        ({"ENGINE": "slurm"}, "ENGINE: 'slurm' is not known, use ray, or leave it out"),
        ({"ONLY": "generate game"}, "ONLY: there is no notebook 'game', use one of: generate instability"),
        ({"JOBS": "²"}, "JOBS: '²' is not a number of processes, use 0 for one a core"),
        ({"JOBS": "1\n"}, "JOBS: '1\n' is not a number of processes"),
        *(({"JOBS": jobs}, f"JOBS: '{jobs}' is not a number of processes") for jobs in ("-1", "1.5", "1 2", "", "two")),
        *(
            ({"MINUTES": minutes, "GOALS": "records"}, f"MINUTES: '{minutes}' is not a time, use a positive number")
            for minutes in ("0", "0.0", ".", "1e3", "nan", "-5", "1 2", " ", "1.2.3", "inf")
        ),
        ({"MINUTES": "8", "GOALS": "records lab"}, "MINUTES: make lab has no limit, use it with make records or make"),
        *(
            ({"SHARD": shard, "GOALS": "records"}, f"SHARD: '{shard}' is no share of the runs, use 1/2 on one machine")
            for shard in ("2", "0/2", "1/0", "1/2/3", "a/b", "-1/2", " ", "1 /2")
        ),
        *(({"SEED": seed, "GOALS": "audit"}, f"SEED: '{seed}' is not a number") for seed in ("-1", "1.5", "a")),
        ({"SEED": "1", "GOALS": "records"}, "SEED: make records draws nothing, use it with make audit alone"),
        ({"BESIDE": "it's", "GOALS": "report"}, "BESIDE: 'it's' has a quote, a dollar or a backslash, rename"),
        ({"BESIDE": "a", "GOALS": "lab"}, "BESIDE: make lab shows no second folder, use it with make report or make"),
        ({"SHARD": "1/2", "GOALS": "lab"}, "SHARD: make lab is not shared by machines, use it with make records alone"),
        ({"ENGINE": "ray", "GOALS": "lab records"}, "ENGINE: make records trains on this machine, leave it out"),
        ({"GIVEN": "RUN_GPUS"}, "RUN_GPUS: only a cluster needs it, use ENGINE=ray, or leave it out"),
        ({"TORCH": "tpu"}, "TORCH: 'tpu' is not known, use cpu or cuda"),
    ],
)
def test_what_is_not_fine_names_a_variable_and_a_remedy(changes, says):
    assert make_variables.answer({**FINE, **changes}).startswith(says)


def test_profiles_are_those_of_the_library():
    assert [*PROFILES] == make_variables.PROFILES


def test_the_makefile_names_the_same_variables():
    makefile = (ROOT / "Makefile").read_text()
    for name in make_variables.VARIABLES:
        assert any(line.split()[:2] in ([name, "?="], [name, ":="]) for line in makefile.splitlines()), name


def test_it_needs_nothing_but_a_python():
    """No library and no environment, and it says one line whatever stands in a variable."""
    path = ROOT / "lib" / "workbook" / "make_variables.py"
    command = [sys.executable, "-I", "-S", str(path)]
    done = subprocess.run(command, env={**FINE, "PROFILE": "a\nb"}, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    in_one_line(done.stdout.strip(), "PROFILE: 'a b' is not known")

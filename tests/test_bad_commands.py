"""A bad variable of make or argument of the harness is refused in one line with a remedy, and no shell reads it."""

import os
import shutil
import subprocess

import pytest

from lib.config import ModelConfig
from lib.model.looped import LoopedLM
from lib.workbook import records
from tests.lines import in_one_line, refused
from tests.workbooks import ROOT

# ---- make ------------------------------------------------------------------------------------------------------------

#: what tests/workbook/test_make_variables.py asks of the function, of make itself: a few of each kind
MAKE = [
    ("reproduce-figures PROFILE=cpu+smoke", "PROFILE: 'cpu smoke' is not known", "use smoke, cpu, desk, gpu, paper"),
    ("reproduce-figures ONLY=instability.ipynb", "ONLY: there is no notebook", "use one of: backprop_depth"),
    ("reproduce-figures JOBS=", "JOBS: '' is not a number", "use 0 for one a core"),
    ("reproduce-figures MINUTES=8", "MINUTES: make reproduce-figures has no limit", "use it with make records"),
    ("records RUN_GPUS=2", "RUN_GPUS: only a cluster needs it", "use ENGINE=ray, or leave it out"),
    ("lab SHELL=/bin/false", "SHELL: unknown variable", "use PROFILE"),
]


@pytest.fixture
def bare(tmp_path):
    """The files that make reads, in a folder where all else is missing: what is refused makes nothing there."""
    for name in ("Makefile", "notebooks", "params", "lib"):
        (tmp_path / name).symlink_to(ROOT / name)
    yield tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "lib", "notebooks", "params"]


def make_refuses(folder, arguments, *words) -> None:
    torch = [] if any("TORCH" in argument for argument in arguments) else ["TORCH=cpu"]
    done = subprocess.run(["make", *arguments, *torch], cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2 and not done.stdout
    in_one_line(done.stderr.strip(), *words)


@pytest.mark.parametrize(("given", "words"), [(given, words) for given, *words in MAKE])
def test_a_variable_of_make(bare, given, words):
    """Without -n."""
    make_refuses(bare, [argument.replace("+", " ") for argument in given.split()], *words)


@pytest.mark.parametrize(
    "value",
    [
        "$(shell touch made)",
        "$$(touch made)",
        "'; touch made; '",
        "1\ntouch made",
        '1; `touch made` | touch made > made "#*\\',
    ],
)
def test_a_value_for_make_reaches_no_shell(bare, value):
    variables = ("PROFILE", "ONLY", "JOBS", "MINUTES", "ENGINE", "TORCH")
    make_refuses(bare, ["records", *(f"{variable}={value}" for variable in variables)], "PROFILE: ", "use ")


def test_a_goal_of_make_reaches_no_shell(bare):
    make_refuses(bare, ["';touch made;'", "MINUTES=8"], "MINUTES: make ';touch has no limit", "use it with")


def test_make_says_where_there_is_no_python(bare):
    (bare / "bin").mkdir()
    try:
        environment = {**os.environ, "PATH": str(bare / "bin")}
        make = shutil.which("make")
        done = subprocess.run([make, "help", "TORCH=cpu"], cwd=bare, env=environment, capture_output=True, text=True)
    finally:
        (bare / "bin").rmdir()
    assert done.returncode == 2
    in_one_line(done.stderr.strip(), "PYTHON: '' does not run", "pass PYTHON=/path/to/python3.11")


@pytest.mark.parametrize(
    ("names", "profile", "minutes", "words"),
    [
        (["nope"], "smoke", "", ["name: there is no notebook 'nope'", "use one of"]),
        (["instability"], "huge", "", ["profile: params/huge", "use one of smoke"]),
        (["instability"], "smoke", "nan", ["MINUTES: nan", "use a positive number"]),
        (["instability"], "smoke", "-1", ["MINUTES: -1", "use a positive number"]),
    ],
)
def test_what_make_records_passes_on(tmp_path, names, profile, minutes, words):
    limit = float(minutes) if minutes else None
    refused(lambda: records.make(names, profile, limit, 1, outputs=tmp_path / "outputs"), *words)
    assert not [*tmp_path.iterdir()]


# ---- the harness -----------------------------------------------------------------------------------------------------

HARNESS = [
    ("nobody", {}, "path: there is no", "give a run of outputs/runs or a checkpoint"),
    ("notes.txt", {}, "path:", "give a model.safetensors"),
    ("broken", {}, "path: the run", "restore it or train it again"),
    ("whole", {"tokenizer": "words"}, "tokenizer: there is no file words", "use 'bytes' or a tokenizer.json"),
    ("whole", {"loops": 0}, "loops: 0", "at least 1"),
    ("whole", {"loops": "many"}, "loops:", "give one int"),
]


@pytest.mark.precision
@pytest.mark.parametrize(("path", "given", "words"), [(path, given, words) for path, given, *words in HARNESS])
def test_an_argument_of_the_harness(tmp_path, path, given, words):
    pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")
    from lib.tasks.harness import Looped

    (tmp_path / "notes.txt").write_text("notes")
    for name in ("broken", "whole"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "result.json").write_text("{}")
    (tmp_path / "broken" / "config.json").write_text('{"speed": 1}')
    LoopedLM(ModelConfig(context=16)).save(tmp_path / "whole" / "model.safetensors")
    refused(lambda: Looped(str(tmp_path / path), **given), *words)

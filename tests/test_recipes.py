"""docs/recipes.md does what it says, block by block, in a copy of the workbook with the committed records."""

import os
import re
import subprocess
import sys

import pandas as pd
import pytest

from tests.workbooks import ROOT, copied, own_environment

TEXT = (ROOT / "docs" / "recipes.md").read_text()
RECIPES = {part.partition("\n")[0]: re.findall(r"```(\w+)\n(.*?)```", part, re.S) for part in TEXT.split("\n## ")[1:]}
SEEN = {
    "Your text": "outputs/text/figures/smoke/instability_rates.png",
    "Your tokenizer": "outputs/my-tokens/figures/smoke/instability_rates.png",
    "Your runs in a law": "phi = 0.459",
    "Phi from the records, without this library": "phi = 0.485",
    "Half the budgets": "outputs/half/figures/desk/isodepth_isoflop.png",
    "A run's model, its text and its loss against loops": "loops.png",
    "A new injection": "outputs/gate/figures/smoke/injection_losses.png",
    "One test file": "[100%]",
}
QUICK = ("Your runs in a law", "Phi from the records, without this library")


@pytest.fixture(scope="module")
def workbook(tmp_path_factory):
    place = copied(tmp_path_factory.mktemp("recipes") / "workbook")
    (place / "outputs").mkdir()
    (place / "outputs" / "records").symlink_to(ROOT / "outputs" / "records")
    return place


def do(workbook, kind: str, block: str) -> str:
    """What a reader does with a block; returns what is printed."""
    if kind == "diff":
        (workbook / "gate.diff").write_text(block)
        return ""
    command = ["bash", "-e", "-c", block] if kind == "sh" else [sys.executable, "-c", block]
    path = os.pathsep.join([str(workbook / ".venv" / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=workbook, env=own_environment() | {"PATH": path}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_recipe_with_blocks_is_tried():
    assert {name for name, blocks in RECIPES.items() if blocks} == {*SEEN}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in SEEN]
)
def test_a_recipe_shows_what_it_says(workbook, name):
    """In their order: what the first leaves is there for the next."""
    printed = "".join(do(workbook, *block) for block in RECIPES[name])
    assert SEEN[name] in printed or (workbook / SEEN[name]).exists()
    if name == "A new injection":
        table = pd.read_csv(workbook / "outputs/gate/tables/smoke/injection_ablation.csv", index_col="injection")
        assert table["parameters"]["gate"] == table["parameters"]["additive"] + 1 and table["loss"].notna().all()


def test_a_new_injection_takes_two_files_and_trains(tmp_path):
    """The recipe's, without its notebook: only the edited files are copied over the library's."""
    place = copied(tmp_path / "workbook")
    (kind, diff), *_ = RECIPES["A new injection"]
    assert kind == "diff" and len(re.findall(r"^\+\+\+ ", diff, re.M)) <= 2
    do(place, kind, diff)
    do(place, "sh", "git apply gate.diff; cat *.md > my.txt")
    do(
        place,
        "python",
        """
from lib.config import DataConfig, RunConfig
from lib.presets import optimizer, preset
from lib.train import train

cfg = preset("isodepth-s10-r4", injection="gate", vocab_size=256, width=16, heads=2, mlp_width=32, context=16)
data, optim = DataConfig(source="my.txt", context=16, val_rows=4), optimizer("isodepth-s10-r4", steps=3)
run = train(RunConfig(model=cfg, data=data, optim=optim, train={"steps": 3, "batch": 2}))
assert run.status == "finished" and run.summary["train_flops"] > 0
""",
    )

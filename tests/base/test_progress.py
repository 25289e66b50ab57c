"""A bar's times stay sensible when the clock is set back, and it is shown only where it takes a while."""

import re
import time

import pytest

from lib.base import progress
from tests.processes import python

CODE = """
import sys, time
now = time.time()
def set_back():
    global now
    now -= 600
    return now
time.time = set_back
from tqdm import tqdm
from lib.base.progress import Bar
with {bar}(total=4, desc="runs", mininterval=0, file=sys.stdout, ascii=True) as bar:
    for _ in range(4):
        time.sleep(0.02)
        bar.update()
"""


def shown(bar: str) -> str:
    return python(CODE.format(bar=bar)).communicate(timeout=240)[0]


@pytest.mark.parametrize("bar", ["Bar", "tqdm"])
def test_a_clock_that_is_set_back_makes_no_time_negative(bar):
    output = shown(bar)
    steps = re.findall(r"([1-4])/4 \[([^<]*)<([^,]*),\s*([^\]]*)\]", output)
    sensible = {done for done, elapsed, left, rate in steps if "-" not in elapsed + left + rate and "?" not in left}
    if bar == "Bar":
        assert sensible == {"1", "2", "3", "4"}, output
    else:
        assert sensible != {"1", "2", "3", "4"}, "tqdm minds the clock no more, and needs no help"


def test_a_bar_is_shown_once_it_takes_more_than_a_moment(monkeypatch, capsys):
    assert list(progress.passing(range(3), "quick")) == [0, 1, 2]
    assert "quick" not in capsys.readouterr().err
    monkeypatch.setattr(progress, "SOON", 0.05)
    for _ in progress.passing(range(3), "slow"):
        time.sleep(0.2)
    shown = capsys.readouterr().err
    assert "slow:  67%" in shown and "/s]" in shown  # with the time that is left
    assert shown.rsplit("\r", 2)[1].strip() == ""  # gone at the end

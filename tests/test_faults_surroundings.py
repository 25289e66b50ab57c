"""Neither a clock that is set back nor odd names of folders and files change a number."""

import json
from pathlib import Path

from lib.store.runs import RunStore
from lib.tasks import files as taskfiles
from lib.text.tokenizer import train_bpe
from lib.train.loop import train
from tests.processes import python
from tests.runs import depth_losses, numbers, small_run
from tests.tasks.test_files import HERE, written
from tests.workbooks import ODD

# ---- the clock -------------------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_changes_no_number(tmp_path):
    configs = [small_run(train={"seed": seed}) for seed in range(2)]
    listed = json.dumps([cfg.model_dump(mode="json") for cfg in configs])
    code = f"""
import json, time
now = time.time()
def set_back():
    global now
    now -= 3600
    return now
time.time = set_back
from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.sweep.training import sweep
sweep([RunConfig(**c) for c in json.loads({listed!r})], RunStore({str(tmp_path / "runs")!r}), jobs=1)
"""
    output, _ = (process := python(code)).communicate(timeout=300)
    assert process.returncode == 0, output
    found = RunStore(tmp_path / "runs")
    for cfg in configs:
        result = found.find(cfg)
        assert numbers(result) == numbers(train(cfg, RunStore(tmp_path / "plain" / "runs")))
        assert result.summary["seconds"] > 0 and min(result.metrics["tokens_per_s"]) > 0


# ---- names -----------------------------------------------------------------------------------------------------------


def a_text_and_a_tokenizer(folder: Path, text: str, tokenizer: str) -> dict[str, str]:
    folder.mkdir(parents=True)
    documents = [f"document {i} says {i * i} things" * 5 for i in range(60)]
    (folder / text).write_text("\n\n".join(documents))
    train_bpe(documents, 300, folder / tokenizer)
    return {"source": str(folder / text), "tokenizer": str(folder / tokenizer)}


def test_a_name_changes_no_number(tmp_path):
    found = []
    for folder, *names in [
        ("plain", "text.txt", "tokenizer.json"),
        (ODD, "mein Text 模型.txt", "l'été 'n' \"ü\".json"),
    ]:
        data = a_text_and_a_tokenizer(tmp_path / folder, *names)
        cfg = small_run(model={"vocab_size": 300}, data={**data, "max_bytes": None, "val_rows": 4})
        store = RunStore(tmp_path / folder / "meine Läufe" / "runs")
        result = train(cfg, store)
        examples = taskfiles.read(
            HERE, written(tmp_path / folder / "Aufgaben 1", {"context": "c", "continuation": "z"})
        )
        found.append((result.key, numbers(result), depth_losses([cfg], store, [1]).to_dict(), examples))
    assert found[0] == found[1]

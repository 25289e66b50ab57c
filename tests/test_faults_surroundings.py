"""Neither a clock that is set back nor odd names of folders and files change a number."""

from pathlib import Path

from lib.store.runs import RunStore
from lib.tasks import files as taskfiles
from lib.text.tokenizer import train_bpe
from lib.train.loop import train
from tests.processes import python
from tests.runs import depth_losses, numbers, several, small_run, sweeping
from tests.tasks.test_files import HERE, written
from tests.workbooks import ODD


def test_a_clock_that_is_set_back_changes_no_number(tmp_path):
    configs = several(2)
    set_back = "import itertools, time; clock = itertools.count(time.time(), -3600); time.time = clock.__next__\n"
    code = set_back + sweeping(configs, tmp_path / "runs", "jobs=1")
    output, _ = (process := python(code)).communicate(timeout=300)
    assert process.returncode == 0, output
    found = RunStore(tmp_path / "runs")
    for cfg in configs:
        result = found.find(cfg)
        assert numbers(result) == numbers(train(cfg, RunStore(tmp_path / "plain" / "runs")))
        assert result.summary["seconds"] > 0 and min(result.metrics["tokens_per_s"]) > 0


def a_text_and_a_tokenizer(folder: Path, text: str, tokenizer: str) -> dict[str, str]:
    folder.mkdir(parents=True)
    documents = [f"document {i} says {i * i} things" * 5 for i in range(60)]
    (folder / text).write_text("\n\n".join(documents))
    train_bpe(documents, 300, folder / tokenizer)
    return {"source": str(folder / text), "tokenizer": str(folder / tokenizer)}


def test_a_name_changes_no_number(tmp_path):
    found = []
    odd = ODD, "mein Text 模型.txt", "l'été 'n' \"ü\".json"
    for folder, *names in [("plain", "text.txt", "tokenizer.json"), odd]:
        data = a_text_and_a_tokenizer(tmp_path / folder, *names)
        cfg = small_run(model={"vocab_size": 300}, data={**data, "max_bytes": None, "val_rows": 4})
        store = RunStore(tmp_path / folder / "meine Läufe" / "runs")
        result = train(cfg, store)
        line = {"context": "c", "continuation": "z"}
        examples = taskfiles.read(HERE, written(tmp_path / folder / "Aufgaben 1", line))
        found.append((result.key, numbers(result), depth_losses([cfg], store, [1]).to_dict(), examples))
    assert found[0] == found[1]

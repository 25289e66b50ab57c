"""A file of each kind that the workbook writes: a function each that makes one in a folder, and says what uses it."""

from lib.config import DataConfig
from lib.data.rows import token_store
from lib.store.runs import RunStore
from lib.sweep.finished import depth_losses, run_model
from lib.sweep.measurements import key, measure, name
from lib.train.loop import train
from lib.workbook import claims, records
from tests.cases import Case, claim, squared
from tests.runs import numbers, records_alone, small_run, stopped
from tests.workbooks import a_notebook


def a_checkpoint(folder, **changes):
    cfg, store = small_run(**changes), RunStore(folder / "runs")
    return stopped(cfg, store), lambda: numbers(train(cfg, store))


def tokens(file, unfinished=False, **data):
    def make(folder):
        cfg = DataConfig(**{**small_run().data.model_dump(), "content": "", **data})
        found = token_store(cfg, folder)
        if unfinished:  # as if it had been killed before its last file
            (found.path / "meta.json").unlink()
        (path,) = (path for path in folder.rglob(file) if "corrupt" not in path.name)

        def use():
            again = token_store(cfg, folder)
            return again.tokenizer.encode_batch(["one text"])[0].tolist(), again.tokens(3, 0, 50).tolist(), again.meta

        return path, use

    return make


def a_run(file):
    def make(folder):
        cfg, store = small_run(), RunStore(folder / "runs")
        return train(cfg, store).path / file, lambda: numbers(train(cfg, store))

    return make


def weights(folder):
    cfg, store = small_run(), RunStore(folder / "runs")
    path = train(cfg, store).path / "model.safetensors"
    return path, lambda: {name: value.tolist() for name, value in run_model(cfg, store).state_dict().items()}


def a_note(folder):
    cfg, store = small_run(), RunStore(folder / "runs")
    result = train(cfg, store)

    def use():
        return depth_losses([cfg], store, [1, 2]).to_dict()

    use()
    return result.path / "depth_losses.json", use


def a_record(file):
    def make(folder):
        cfg, store = small_run(), RunStore(folder / "runs")
        train(cfg, store)
        records.pack([cfg], store, folder / "records")
        record = records_alone(folder / "records", folder)
        return folder / "records" / cfg.key / file, lambda: numbers(record.find(cfg))

    return make


def a_measurement(folder):
    store = RunStore(folder / "runs")
    measure(squared, [Case(x=1.5)], store, jobs=1)
    path = folder / "measured" / name(squared) / f"{key(Case(x=1.5))}.json"
    return path, lambda: measure(squared, [Case(x=1.5)], store, jobs=1)


def a_measured_record(folder):
    path, _ = a_measurement(folder)
    asked = {name(squared): {path.stem: 1.0}}
    records.pack_measured(asked, RunStore(folder / "runs"), folder / "records")
    record = records_alone(folder / "records", folder)
    return folder / "records" / path.relative_to(folder), lambda: measure(squared, [Case(x=1.5)], record, jobs=1)


def a_finding(folder):
    claims.report(claim(), "n", [1.0, 1.1, 0.9], [1, 2, 3], "cpu", folder, "octaves", "a note")
    return folder / "x.json", lambda: claims.findings(folder)


def a_plan(folder):
    nb, cfg = a_notebook("a", folder), small_run()

    def use():
        nb.plan({("one",): cfg})
        return a_notebook("b", folder).plan({("one",): cfg}).to_dict()

    use()
    return folder / "plans" / "cpu" / "a.json", use


KINDS = {
    "checkpoint": a_checkpoint,
    "shard": tokens("00000.bin"),
    "ends of documents": tokens("00000.ends.npy"),
    "tokens": tokens("meta.json"),
    "begun tokens": tokens("state.json", unfinished=True),
    "tokenizer": tokens("*bpe-300*.json", tokenizer="bpe-300"),
    "result": a_run("result.json"),
    "config": a_run("config.json"),
    "metrics": a_run("metrics.json"),
    "weights": weights,
    "note": a_note,
    "record": a_record("result.json"),
    "metrics of a record": a_record("metrics.json"),
    "checksums of a record": a_record("checksums.json"),
    "measurement": a_measurement,
    "measured record": a_measured_record,
    "finding": a_finding,
    "plan": a_plan,
}

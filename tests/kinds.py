"""A file of each kind that the workbook writes: a function each that makes one in a folder, and says what uses it."""

from lib.config import DataConfig
from lib.data.rows import token_store
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep.finished import losses_by_depth, run_model
from lib.sweep.measurements import Asked, key, measure, name
from lib.train.loop import train
from lib.workbook import claims
from tests.cases import Case, claim, squared
from tests.runs import depth_losses, numbers, records_alone, small_run, stopped
from tests.workbooks import a_notebook


def a_checkpoint(folder, **changes):
    cfg, store = small_run(**changes), RunStore(folder / "runs")
    return stopped(cfg, store), lambda: numbers(train(cfg, store))


def tokens(file, **data):
    def make(folder):
        cfg = DataConfig(**{**small_run().data.model_dump(), "content": "", **data})
        token_store(cfg, folder)
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


def losses(folder):
    cfg, store = small_run(), RunStore(folder / "runs")
    train(cfg, store)

    def use():
        return depth_losses([cfg], store, [1, 2]).to_dict()

    use()
    (path,) = (folder / "measured" / name(losses_by_depth)).glob("*.json")
    return path, use


def a_record(table):
    def make(folder):
        cfg, store = small_run(), RunStore(folder / "runs")
        measure(squared, [Case(x=1.5)], store, jobs=1)
        asked = Asked(squared, Case(x=1.5))
        records.add(folder / "records", [train(cfg, store)], [asked.found(store)])
        record = records_alone(folder / "records", folder)
        (path,) = (folder / "records" / f"{table}.parquet").iterdir()
        return path, lambda: (numbers(record.get(cfg)), measure(squared, [Case(x=1.5)], record, jobs=1))

    return make


def a_measurement(folder):
    store = RunStore(folder / "runs")
    measure(squared, [Case(x=1.5)], store, jobs=1)
    path = folder / "measured" / name(squared) / f"{key(Case(x=1.5))}.json"
    return path, lambda: measure(squared, [Case(x=1.5)], store, jobs=1)


def a_finding(folder):
    claims.report(claim(), "n", [1.0, 1.1, 0.9], [1, 2, 3], "cpu", folder, "octaves", "a note")
    return folder / "x.json", lambda: claims.read(folder / "x.json")


def a_plan(folder):
    nb, cfg = a_notebook("a", folder), small_run()

    def use():
        nb.plan({("one",): cfg})
        return a_notebook("b", folder).plan({("one",): cfg}).to_dict()

    use()
    return folder / "plans" / "cpu" / "a.json", use


KINDS = {
    "checkpoint": a_checkpoint,
    "ends of documents": tokens("ends.npy"),
    "tokens": tokens("meta.json"),
    "tokenizer": tokens("tokenizer.json", tokenizer="bpe-300"),
    "result": a_run("result.json"),
    "config": a_run("config.json"),
    "metrics": a_run("metrics.json"),
    "weights": weights,
    "losses by depth": losses,
    "records of runs": a_record("runs"),
    "records of curves": a_record("curves"),
    "records of measurements": a_record("measured"),
    "measurement": a_measurement,
    "finding": a_finding,
    "plan": a_plan,
}

"""Bad input is refused in one line that names the field and the remedy, before anything is trained or lost.

Each is a row: what is given, and the words that must stand in that line. It leaves nothing behind.

More of the same stands with what it is about: fields of configs in test_config.py, damaged texts in test_text.py, what
papermill shows in test_notebooks.py.
"""

import contextlib
import gzip
import json
import lzma
import math
import os
import pickle
import shutil
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors
import safetensors.torch
import torch

from lib.base import files
from lib.base.processes import processes
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.model.looped import LoopedLM, load_weights
from lib.papers.parcae.parameters import Instability
from lib.presets import optimizer, preset
from lib.store.runs import CHECKSUMS, RunStore
from lib.sweep.cost import missing
from lib.sweep.finished import depth_losses, run_model
from lib.sweep.training import sweep
from lib.train.loop import load_data, train
from lib.workbook import notebook, parameters, plans, records
from lib.workbook.widgets import Player
from tests.lines import in_one_line, one_line
from tests.runs import small_run, stopped
from tests.workbooks import ROOT, moved

NAN, INF = math.nan, math.inf


def refused(function, *words) -> None:
    """It raises InputError with these words, on one line."""
    assert len(words) >= 2, "a field and a remedy"
    with one_line(*words):
        function()


def everything(folder) -> dict:
    """What lies in a folder: path -> contents, without the locks and stamps of processes that looked."""
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".lock"}


# ---- parameters of notebooks, as papermill passes them ---------------------------------------------------------------

PARAMETERS = [
    # what papermill -p, -y and -f make of the command line: text, numbers, lists, mappings
    ("instability", {"stepz": 3}, "stepz: is not a parameter of instability", "did you mean 'steps'?"),
    ("instability", {"Steps": 3}, "Steps: is not a parameter", "did you mean 'steps'?"),
    ("instability", {"qqq": 3}, "qqq: is not a parameter of instability", "use one of"),
    ("instability", {"steps": "many"}, "steps:", "valid integer"),
    ("instability", {"steps": 2.5}, "steps:", "valid integer"),
    ("instability", {"steps": None}, "steps:", "valid integer"),
    ("instability", {"steps": True}, "steps: takes no true or false", "give it as int"),
    ("instability", {"steps": [12]}, "steps:", "valid integer"),
    ("instability", {"steps": -1}, "steps:", "greater than or equal to 1"),
    ("instability", {"steps": 1}, "optim.warmup_steps:", "shorten them"),
    ("instability", {"batch": 0}, "batch:", "greater than or equal to 1"),
    ("instability", {"mean_loops": 10**12}, "mean_loops:", "less than or equal to"),
    ("instability", {"width": 33}, "width: 33", "change one of them"),
    ("instability", {"vocab_size": 100}, "vocab_size:", "raise it"),
    ("instability", {"vocab_size": "5000000000"}, "vocab_size: 5000000000 entries", "too many to count tokens of"),
    ("instability", {"architectures": "[base, rnn]"}, "architectures: 'rnn' is not known", "use"),
    ("instability", {"lrs": "0.1, 0.2"}, "lrs:", "valid list"),
    ("instability", {"lrs": "[0.1, quick]"}, "lrs.1:", "valid number"),
    ("instability", {"lrs": []}, "lrs: []", "list each once"),
    ("instability", {"lrs": [0.1, 0.1]}, "lrs: [0.1, 0.1]", "list each once"),
    ("instability", {"lrs": [NAN]}, "lrs.0:", "finite number"),
    ("instability", {"lrs": [0.0]}, "lr:", "greater than 0"),
    ("instability", {"seeds": [-1]}, "seed:", "greater than or equal to 0"),
    ("instability", {"max_state_rms": INF}, "max_state_rms:", "finite number"),
    ("instability", {"max_hours": "nan"}, "max_hours:", "finite number"),
    ("instability", {"max_hours": NAN}, "max_hours:", "finite number"),
    ("instability", {"limit_ngram": 0}, "limit_ngram: 0", "at least 1"),
    ("injection_ablation", {"limit_ngram": 4}, "limit_ngram: 4-grams of 256", "use 1 or a smaller vocabulary"),
    ("instability", {"limit_ngram": 9}, "limit_ngram: 9-grams of 256", "use 1 or a smaller vocabulary"),
    ("instability", {"source": "no/such.txt"}, "data.source: no/such.txt", "check the path"),
    ("instability", {"source": "lib"}, "data.source: 'lib'", "'hf:NAME'", ".txt"),
    ("instability", {"source": "tests/conftest.py"}, "data.source:", ".txt"),
    ("instability", {"content": "../../elsewhere"}, "content:", "match pattern"),
    ("instability", {"outputs": "README.md"}, "outputs: 'README.md' is no folder", "give one"),
    ("instability", {"outputs": "README.md/runs"}, "outputs: 'README.md/runs' is no folder", "give one"),
    ("instability", {"outputs": ""}, "outputs: ''", "give one"),
    ("instability", {"outputs": "x" * 300}, "outputs: xxx", "give a folder"),
    ("instability", {"profile": "CPU"}, "profile: 'CPU' is not known", "smoke, cpu, gpu, paper"),
    ("instability", {"profile": "../cpu"}, "profile: '../cpu' is not known", "smoke, cpu, gpu, paper"),
    ("end_to_end", {"sizes": {}}, "sizes: {}", "list each once"),
    ("end_to_end", {"sizes": [32, 48]}, "sizes:", "valid dictionary"),
    ("end_to_end", {"sizes": {"wide": 1}}, "sizes.wide", "valid integer"),
    ("extrapolation", {"widths": {1.0e9: [20, 24]}}, "widths: has none for the budget", "list them"),
    ("extrapolation", {"resamples": 0}, "resamples:", "greater than or equal to 1 (got 0)"),
    ("isodepth_isoflop", {"recurrences": [3]}, "recurrences: 8 looped layers", "use divisors of 8"),
    ("isodepth_isoflop", {"resamples": -1}, "resamples:", "greater than or equal to 1 (got -1)"),
    ("residual_scaling_beyond", {"kept_lr": -1.0}, "lrs", "three rates, kept_lr -1 too"),
    ("residual_scaling_beyond", {"reference_depth": 0}, "reference_depth: 0", "at least 1"),
    ("generate", {"test_loops": -1}, "loops: -1", "at least 1"),
    ("generate", {"top_p": 1.5}, "top_p: 1.5", "at most 1"),
    ("downstream_axes", {"tasks": "no/such/folder"}, "tasks: no/such/folder is not a folder", "give one"),
]


@pytest.mark.parametrize(("name", "given", "words"), [(n, g, w) for n, g, *w in PARAMETERS])
def test_a_parameter(tmp_path, name, given, words):
    given = {"outputs": str(tmp_path / "outputs"), **given}
    profile = given.pop("profile", None)

    def start():
        if profile is None:
            plans.plan(name, "smoke", **given)
        else:
            notebook.start(Instability, {**parameters.of_profile("smoke", name), "profile": profile})

    refused(start, *words)
    assert not everything(tmp_path)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("- steps\n- 3\n", ["profile:", "x.yaml", "write 'name: value'"]),
        ("steps 3", ["profile:", "x.yaml", "write 'name: value'"]),
        ("", ["profile:", "x.yaml", "write 'name: value'"]),
        ("steps: [1, 2", ["profile:", "x.yaml is not YAML", "mend it"]),
        ("steps: !!python/object/apply:os.system ['false']", ["profile:", "x.yaml is not YAML", "mend it"]),
    ],
)
def test_a_file_of_parameters(tmp_path, monkeypatch, file, words):
    (tmp_path / "params" / "cpu").mkdir(parents=True)
    (tmp_path / "params" / "cpu" / "x.yaml").write_text(file)
    moved(monkeypatch, tmp_path)
    refused(lambda: parameters.of_profile("cpu", "x"), *words)


# ---- texts and tokenizers --------------------------------------------------------------------------------------------

PROSE = "a few words of text, and then some more of them\n\n" * 200


def parquet(column) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(column), sink)
    return sink.getvalue().to_pybytes()


TEXTS = [
    # file, what is in it (None: nothing there; {}: a folder), other fields of the data, words
    ("a.txt", None, {}, "data.source:", "a.txt does not exist", "check the path"),
    ("a.txt", {}, {}, "data.source:", "a.txt is no file", "check the path"),
    ("a.parquet", {}, {}, "data.source:", "a.parquet is no file", "check the path"),
    ("a.csv", PROSE, {}, "data.source:", "a.csv", ".jsonl"),
    ("a.txt.zip", PROSE, {}, "data.source:", "a.txt.zip", ".gz"),
    ("a" * 300 + ".txt", None, {}, "data.source:", "too long", "check the path"),
    ("a.txt", bytes(range(256)), {}, "data.source:", "not UTF-8", "convert it"),
    ("a.txt", PROSE.encode("utf-16"), {}, "data.source:", "not UTF-8", "convert it"),
    ("a.txt", gzip.compress(PROSE.encode(), mtime=0), {}, "data.source:", "not UTF-8", "convert it"),
    ("a.txt", "\n \n\n", {}, "data.source:", "holds no text", "give a file"),
    ("a.txt", "one document", {}, "data.source:", "single document", "separate documents"),
    ("a.txt", "one\n\ntwo", {}, "data.source:", "less than one row of 32", "lower context"),
    ("a.txt", "word " * 40 + "\n\ntwo", {}, "data.val_fraction:", "one row of 32", "give more text"),
    ("a.txt", PROSE, {"subset": "en"}, "data.subset:", "leave it empty"),
    ("a.txt", PROSE, {"field": "body"}, "data.field:", "no columns", "leave 'body' out"),
    ("a.txt.gz", PROSE, {}, "data.source:", "Not a gzipped file", "is the file complete?"),
    (
        "a.txt.gz",
        gzip.compress(PROSE.encode(), mtime=0)[:-8] + b"\0" * 8,
        {},
        "data.source:",
        "CRC",
        "is the file complete?",
    ),
    ("a.txt.gz", gzip.compress(b"", mtime=0), {}, "data.source:", "holds no text", "give a file"),
    ("a.jsonl.zst", pa.compress(b'{"text": "a"}\n' * 99, "zstd", asbytes=True)[:-4], {}, "data.source:", "complete?"),
    ("a.jsonl.xz", lzma.compress(PROSE.encode()), {}, "data.source:", "line 1 is not JSON", "mend it"),
    ("a.jsonl", "[1]\n", {}, "data.field:", "line 1", "name the right column"),
    ("a.jsonl", '{"text": null}\n', {}, "data.field:", "line 1", "name the right column"),
    ("a.jsonl", '{"text": "a"}\n' + "[" * 100_000, {}, "data.source:", "line 2 is not JSON", "mend it"),
    ("a.jsonl", '{"n": ' + "1" * 5000 + "}", {}, "data.source:", "line 1 is not JSON", "mend it"),
    ("a.jsonl", '{"text": ""}\n' * 9, {}, "data.source:", "holds no text", "give a file"),
    ("a.jsonl", '{"text": "a"}\n', {"field": ""}, "data.field:", "line 1", "name the right column"),
    ("a.parquet", b"PAR1PAR1", {}, "data.source:", "not a parquet file", "give a whole one"),
    (
        "a.parquet",
        parquet({"text": PROSE.split("\n\n")})[:-20],
        {},
        "data.source:",
        "not a parquet",
        "give a whole one",
    ),
    ("a.parquet", parquet({"body": ["x"]}), {}, "data.field:", "no column 'text'", "it has ['body']"),
    ("a.parquet", parquet({"text": [["x"]]}), {}, "data.field:", "holds no text", "name the right column"),
    ("a.parquet", parquet({"text": pa.array([None], pa.string())}), {}, "data.source:", "holds no text", "give a file"),
    # the same for tokenizers, of a text that is whole
    ("t.json", None, "tokenizer", "data.tokenizer:", "t.json does not exist", "give the path"),
    ("t.json", {}, "tokenizer", "data.tokenizer:", "t.json is no file", "give the path"),
    ("t.json", "", "tokenizer", "data.tokenizer:", "is not a tokenizer.json", "give one"),
    ("t.json", "[]", "tokenizer", "data.tokenizer:", "is not a tokenizer.json", "give one"),
    ("t.json", pickle.dumps({"model": 1}), "tokenizer", "data.tokenizer:", "is not a tokenizer.json", "give one"),
    ("t.model", "x", "tokenizer", "tokenizer:", "is not known", "use 'bytes', 'bpe-SIZE'"),
]


@pytest.mark.parametrize(("name", "content", "fields", "words"), [(n, c, f, w) for n, c, f, *w in TEXTS])
def test_a_text(tmp_path, name, content, fields, words):
    path = tmp_path / "given" / name
    path.parent.mkdir()
    if content == {}:
        path.mkdir()
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    data = {"tokenizer": str(path)} if fields == "tokenizer" else {"source": str(path), **fields}
    before, store = everything(path.parent), RunStore(tmp_path / "runs")
    refused(lambda: load_data(small_run(data=data), store), *words)
    assert everything(path.parent) == before and not store.path.exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"source": ""}, ["data.source: ''", "'sotu'"]),
        ({"source": "."}, ["data.source: '.'", ".txt"]),
        ({"source": "/dev/zero"}, ["data.source: '/dev/zero'", ".txt"]),
        ({"source": "hf:"}, ["data.source: 'hf:' names no dataset", "use hf:NAME"]),
        ({"source": "hf:tests/no such"}, ["data.source: the dataset 'tests/no such'", "check its name"]),
        ({"source": "sotu", "max_bytes": 1}, ["data.source: sotu is a single document", "separate documents"]),
        ({"content": "0" * 16}, ["data.content: states 0000000000000000", "leave content empty"]),
        ({"tokenizer": "bpe-0"}, ["tokenizer: a BPE vocabulary", "260 to"]),
        ({"tokenizer": "bpe-²"}, ["tokenizer: 'bpe-²' is not known", "use 'bytes', 'bpe-SIZE'"]),
        ({"tokenizer": "bpe-300"}, ["model.vocab_size: 256 is smaller than bpe-300", "raise it"]),
    ],
)
def test_a_name_of_a_text(tmp_path, monkeypatch, data, words):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    store = RunStore(tmp_path / "runs")
    refused(lambda: load_data(small_run(data=data), store), *words)
    assert not store.path.exists()


@pytest.mark.parametrize("name", ["a.txt.gz", "lines.txt.gz", "a.jsonl.zst"])
def test_what_unpacks_without_end(tmp_path, monkeypatch, name):
    """A line, and a document of many lines, end somewhere."""
    monkeypatch.setattr("lib.text.sources.MAX_DOCUMENT", 1 << 16)
    text = b"x\n" * (1 << 17) + b"\nx" if name == "lines.txt.gz" else b"x" * (1 << 17)
    (tmp_path / name).write_bytes(
        gzip.compress(text) if name.endswith("gz") else pa.compress(text, "zstd", asbytes=True)
    )
    data = {"source": str(tmp_path / name), "max_bytes": 10}
    words = "data.source:", name, "65536 characters or more", "separate documents"
    refused(lambda: load_data(small_run(data=data), RunStore(tmp_path / "runs")), *words)


# ---- configs ---------------------------------------------------------------------------------------------------------

CONFIGS = [
    (lambda: ModelConfig(vocab_size=5 * 10**9), "vocab_size: 5000000000 does not fit tokens of 32 bits", "use at most"),
    (lambda: ModelConfig(width=2**70), "width:", "less than or equal to"),
    (lambda: ModelConfig(width=64.0), "width:", "valid integer (got 64.0)"),
    (lambda: ModelConfig(width=True), "width:", "valid integer (got True)"),
    (lambda: ModelConfig(prelude=10**9), "prelude:", "less than or equal to"),
    (lambda: ModelConfig(mean_loops=10**12), "mean_loops:", "less than or equal to"),
    (lambda: ModelConfig(backprop_loops="quarter"), "backprop_loops", "'half' or 'all'"),
    (lambda: ModelConfig(injection="add", state_init="prelude"), "state_init:", "use 'zero'"),
    (lambda: ModelConfig(value_embeddings=True, width=16), "value_embeddings:", "widen it"),
    (lambda: ModelConfig(softcap=NAN), "softcap:", "finite number"),
    (lambda: ModelConfig(init_std=0.5), "init_std:", "use init='normal'"),
    (lambda: OptimConfig(lr="1e-3"), "lr:", "valid number (got '1e-3')"),
    (lambda: OptimConfig(betas=(0.9,)), "betas.1:", "add it"),
    (lambda: OptimConfig(betas=(NAN, 0.9)), "betas.0:", "finite number"),
    (lambda: OptimConfig(reference_depth=6), "reference_depth:", "use scaling='depth-loop'"),
    (lambda: OptimConfig(name="muonh", muon_cautious=True), "name:", "leave muon_*"),
    (lambda: OptimConfig(momentum=0.9), "momentum:", "remove it or correct its spelling"),
    (lambda: TrainConfig(precision="fp16"), "precision:", "'fp32', 'bf16', 'bf16-mixed' or 'auto'"),
    (lambda: TrainConfig(steps=0), "steps:", "greater than or equal to 1"),
    (lambda: TrainConfig(seed=-1), "seed:", "greater than or equal to 0"),
    (lambda: TrainConfig(batch=8, micro_batch=16), "micro_batch: 16", "use a divisor"),
    (lambda: DataConfig(val_fraction=NAN), "val_fraction:", "finite number"),
    (lambda: DataConfig(max_bytes=0), "max_bytes:", "greater than or equal to 1"),
    (lambda: DataConfig(content="../../elsewhere"), "content:", "match pattern"),
    (lambda: RunConfig(model=None), "model:", "valid dictionary or instance of ModelConfig"),
    (lambda: RunConfig(steps=3), "steps:", "remove it or correct its spelling"),
    (lambda: small_run().replace(lr=3.0), "lr:", "remove it or correct its spelling"),
    (lambda: small_run(optim={"cooldown_steps": 7}), "optim.warmup_steps:", "shorten them"),
    (lambda: small_run(data={"context": 64}), "model.context: 32", "raise it"),
    (lambda: preset("parcae-140M"), "preset: 'parcae-140M' is not known", "use one of parcae-140m"),
    (lambda: preset(None), "preset: None is not known", "use one of"),
    (lambda: preset("parcae-140m", widht=3), "widht:", "correct its spelling"),
    (lambda: optimizer("parcae-140m", 0), "steps: 0", "at least 1"),
    (lambda: processes(-1), "jobs: -1", "at least 1"),
]


@pytest.mark.parametrize(("make", "words"), [(make, words) for make, *words in CONFIGS])
def test_a_config(make, words):
    refused(make, *words)


# ---- runs, records and weights ---------------------------------------------------------------------------------------

CFG = small_run()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with one run, and a checkpoint of another, which was stopped in its middle."""
    store = RunStore(tmp_path_factory.mktemp("trained") / "runs")
    train(CFG, store)
    stopped(small_run(train={"seed": 9}), store)
    return store


@pytest.fixture
def run(trained, tmp_path):
    """The folder of a copy of that run, in a store of its own."""
    shutil.copytree(trained.path.parent, tmp_path / "copy")
    return tmp_path / "copy" / "runs" / CFG.key


def resealed(run):
    """Checksums that hold, as if whoever damaged the run had written it: what is wrong has to be told from what it
    says."""
    with contextlib.suppress(OSError, ValueError):  # where result.json itself cannot be read
        fields = json.loads((run / "result.json").read_text())
        sums = fields.get("files", {})
        sums |= {name: files.digest(run / name) for name in sums if (run / name).exists()}
        files.write_checked(run / "result.json", {**fields, "files": sums})


def edited(name, **changes):
    def edit(run):
        fields = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**fields, **changes}))

    return edit


def written(name, content):
    return lambda run: (run / name).write_bytes(content)


def gone(name):
    return lambda run: (run / name).unlink()


DAMAGES = [
    (gone("result.json"), "result.json"),
    (written("result.json", b'{"status": "fin'), "Unterminated"),
    (written("result.json", b"{}"), "result.json does not name the files beside it"),
    (edited("result.json", status="great"), "result.json is not that of a run"),
    (edited("result.json", summary="low"), "result.json is not that of a run"),
    (written("config.json", bytes(range(256))), "utf-8"),
    (edited("config.json", speed=1), "speed: unknown name"),
    (edited("config.json", train={"seed": 5}), "config.json belongs to run"),
    (written("metrics.json", b"[" * 100_000), "recursion"),
    (written("metrics.json", b"[1]"), "indices"),
    (written("metrics.json", b'{"columns": {"step": [1, 2], "loss": [3]}}'), "differ in length"),
    (gone("model.safetensors"), "model.safetensors"),
    (lambda run: torch.save({"a": torch.zeros(3)}, run / "model.safetensors"), "header"),
]


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
def test_a_damaged_run_is_set_aside_whole(run, capsys, damage, why):
    damage(run)
    resealed(run)
    before = [*everything(run).values()]
    assert RunStore(run.parent).find(CFG) is None
    in_one_line(capsys.readouterr().out, f"run {CFG.key} cannot be read", why, "set aside as", "to be trained again")
    assert [*everything(run.with_name(f"{CFG.key}.corrupt-1")).values()] == before


def sealed_sums(**changes):
    """Other checksums of a record's files, as whoever wrote it might have made them."""
    return lambda record: files.write_checked(record / CHECKSUMS, files.read_checked(record / CHECKSUMS) | changes)


RECORDS = [
    *[(damage, "is not what checksums.json has the checksum of") for damage, _ in DAMAGES[1:11]],
    (gone("result.json"), "result.json"),
    (edited(CHECKSUMS, **{"config.json": "0" * 64}), "checksums.json has no checksum"),
    (
        lambda run: (run / CHECKSUMS).write_text((run / CHECKSUMS).read_text().replace("config", "Config")),
        "checksums.json has changed since it was written",
    ),
    (sealed_sums(**{"config.json": "0" * 64}), "config.json is not what checksums.json has"),
    (sealed_sums(**{"../../../dev/zero": ""}), "does not name the files beside it"),
    (written(CHECKSUMS, files.sealed({}).encode()), "does not name the files beside it"),
    (written(CHECKSUMS, b"{}"), "checksums.json has no checksum"),
    (written(CHECKSUMS, b"[]"), "checksums.json holds no fields"),
    (gone(CHECKSUMS), "result.json has no checksum"),
]


@pytest.mark.parametrize(("damage", "why"), RECORDS)
def test_a_damaged_record_stays_where_it_is(run, damage, why):
    folder = run.parent.parent / "records"
    records.pack([CFG], RunStore(run.parent), folder)
    shutil.rmtree(run)
    damage(folder / CFG.key)
    before = everything(folder)
    store = RunStore(run.parent, [folder])
    refused(lambda: store.find(CFG), CFG.key, why, "restore it or remove it")
    refused(lambda: sweep([CFG], store, jobs=1), CFG.key, "restore it or remove it")
    assert everything(folder) == before and not run.exists()


def tampered(change):
    """Other tensors, or another config, in the weights of a run."""

    def tamper(run):
        path = run / "model.safetensors"
        with safetensors.safe_open(path, framework="pt") as opened:
            metadata = opened.metadata()
        tensors, metadata = change(safetensors.torch.load_file(path), metadata)
        safetensors.torch.save_file(tensors, path, metadata=metadata)

    return tamper


def integers(tensors, metadata):
    return {name: tensor.int() for name, tensor in tensors.items()}, metadata


def one_less(tensors, metadata):
    return {name: tensors[name] for name in [*tensors][1:]}, metadata


def without_config(tensors, metadata):
    return tensors, {}


def of_another_model(run):
    LoopedLM(ModelConfig(width=16)).save(run / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (of_another_model, ["runs:", "holds another model", "restore it or remove the run"]),
        (tampered(one_less), ["weights:", "is missing", "give a checkpoint of this model"]),
        (tampered(integers), ["weights:", "holds torch.int32", "give a checkpoint of this model"]),
        (tampered(without_config), ["path:", "carries no config", "give one of them"]),
    ],
)
def test_weights_of_a_run_that_do_not_fit(run, damage, words):
    damage(run)
    resealed(run)
    before = everything(run)
    refused(lambda: run_model(CFG, RunStore(run.parent)), *words)
    assert everything(run) == before


CHECKPOINTS = [
    # file -> what is in it; {} is a folder
    ({}, "model.safetensors cannot be read", "give a model.safetensors"),
    ({"model.safetensors": b""}, "header", "give a model.safetensors"),
    ({"model.safetensors": (10**9).to_bytes(8, "little") + b"{}"}, "header", "give a model.safetensors"),
    ({"model.safetensors": pickle.dumps([1])}, "header", "give a model.safetensors"),
    ({"model.safetensors": {}}, "cannot be read", "give a model.safetensors"),
    ({"model.safetensors.index.json": b"[]"}, "is no JSON object", "restore or remove it"),
    ({"model.safetensors.index.json": b"\xff\xfe"}, "is not JSON", "restore or remove it"),
    ({"model.safetensors.index.json": b'{"weight_map": ["a"]}'}, "weight_map", "restore it"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": 3}}'}, "weight_map", "restore it"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "../model.safetensors"}}'}, "weight_map", "restore it"),
    ({"config.json": b"\xff", "model.safetensors": None}, "config.json is not JSON", "restore or remove it"),
    ({"config.json": {}, "model.safetensors": None}, "config.json is not JSON", "restore or remove it"),
    ({"model.safetensors": None}, "carries no config", "give one of them"),
]


@pytest.mark.parametrize(("files", "words"), [(files, words) for files, *words in CHECKPOINTS])
def test_a_checkpoint(tmp_path, files, words):
    for name, content in files.items():
        if content == {}:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_bytes(safetensors.torch.save({"x": torch.zeros(3)}) if content is None else content)
    before = everything(tmp_path)
    refused(lambda: load_weights(tmp_path), "path:", *words)
    assert everything(tmp_path) == before


def test_a_checkpoint_of_another_run_is_not_gone_on_with(run, capsys):
    other = small_run(train={"seed": 9})
    shutil.rmtree(run)
    store = RunStore(run.parent)
    store.partial(other.key).rename(store.partial(CFG.key))
    train(CFG, store)
    words = [f"it is one of run {other.key}", "set aside as", "starting anew"]
    in_one_line(capsys.readouterr().out, *words)


RUNS = [
    (lambda store: run_model(small_run(train={"seed": 3}), store), "runs: there is no run", "train it"),
    (lambda store: Player(store, "nope"), "run: 'nope'", "use a whole key"),
    (lambda store: Player(store, ""), "run: ''", "use a whole key"),
    (lambda store: depth_losses([CFG], store, [0]), "loops: 0", "at least 1"),
    (lambda store: sweep([small_run(train={"seed": 3})], store, jobs=0), "jobs: 0", "at least 1"),
    (
        lambda store: sweep([small_run(train={"seed": 3})], store, jobs=1, max_hours=NAN),
        "max_hours:",
        "raise max_hours",
    ),
    (
        lambda store: sweep([small_run(model={"width": 2**20, "heads": 2**15})], store, jobs=1),
        "model:",
        "parameters need",
        "use a smaller width",
    ),
    (
        lambda store: sweep([small_run(model={"vocab_size": 2**32})], store, jobs=1),
        "model:",
        "parameters need",
        "vocab_size",
    ),
    (lambda store: RunStore(store.path / "new", remote="nope://x").find(CFG), "STORE: nope://x", "mend it"),
]


@pytest.mark.parametrize(("ask", "words"), [(ask, words) for ask, *words in RUNS])
def test_what_is_asked_of_runs(run, ask, words):
    before = everything(run.parent)
    refused(lambda: ask(RunStore(run.parent)), *words)
    assert everything(run.parent) == before


def test_more_processes_than_there_are_runs_are_no_more_than_runs(run):
    """A slip that asks for a thousand billion of them costs nothing."""
    assert missing([small_run(train={"seed": 3})], RunStore(run.parent), jobs=10**12).jobs == 1


# ---- the command line ------------------------------------------------------------------------------------------------

MAKE = [
    ("reproduce-figures PROFILE=huge", "PROFILE: 'huge' is not known", "use smoke, cpu, gpu or paper"),
    ("reproduce-figures PROFILE=", "PROFILE: '' is not known", "use smoke, cpu, gpu or paper"),
    ("reproduce-figures PROFILE=cpu+smoke", "PROFILE: 'cpu smoke' is not known", "use smoke, cpu, gpu or paper"),
    ("reproduce-figures PROFILE=../cpu", "PROFILE: '../cpu' is not known", "use smoke, cpu, gpu or paper"),
    ("reproduce-figures ONLY=nothing", "ONLY: there is no notebook 'nothing'", "use one of: backprop_depth"),
    ("reproduce-figures ONLY=instability.ipynb", "ONLY: there is no notebook", "use one of: backprop_depth"),
    ("reproduce-figures ONLY=%", "ONLY: there is no notebook '%'", "use one of: backprop_depth"),
    ("reproduce-figures JOBS=two", "JOBS: 'two' is not a number", "use 0 for one a core"),
    ("reproduce-figures JOBS=-1", "JOBS: '-1' is not a number", "use 0 for one a core"),
    ("reproduce-figures JOBS=1.5", "JOBS: '1.5' is not a number", "use 0 for one a core"),
    ("reproduce-figures JOBS=1+2", "JOBS: '1 2' is not a number", "use 0 for one a core"),
    ("reproduce-figures JOBS=", "JOBS: '' is not a number", "use 0 for one a core"),
    ("reproduce-figures JOBS=';touch+made;'", "JOBS: '';touch made;'' is not a number", "use 0 for one a core"),
    ("records MINUTES=0", "MINUTES: '0' is not a time", "use a positive number"),
    ("records MINUTES=0.0", "MINUTES: '0.0' is not a time", "use a positive number"),
    ("records MINUTES=.", "MINUTES: '.' is not a time", "use a positive number"),
    ("records MINUTES=1.2.3", "MINUTES: '1.2.3' is not a time", "use a positive number"),
    ("records MINUTES=nan", "MINUTES: 'nan' is not a time", "use a positive number"),
    ("records MINUTES=1e3", "MINUTES: '1e3' is not a time", "use a positive number"),
    ("records MINUTES=-5", "MINUTES: '-5' is not a time", "use a positive number"),
    ("records MINUTES=1+2", "MINUTES: '1 2' is not a time", "use a positive number"),
    ("records MINUTES=';touch+made;'5", "MINUTES: '';touch made;'5' is not a time", "use a positive number"),
    ("reproduce-figures MINUTES=8", "MINUTES: make reproduce-figures has no limit", "use it with make records alone"),
    ("reproduce-figures ENGINE=slurm", "ENGINE: 'slurm' is not known", "use ray, or leave it out"),
    ("reproduce-figures ENGINE=ray+ray", "ENGINE: 'ray ray' is not known", "use ray, or leave it out"),
    ("records ENGINE=ray", "ENGINE: make records trains on this machine", "leave it out"),
    ("reproduce-figures STORE=s3://x", "STORE: only a cluster needs it", "use ENGINE=ray, or leave it out"),
    ("records RUN_GPUS=2", "RUN_GPUS: only a cluster needs it", "use ENGINE=ray, or leave it out"),
    ("env TORCH=tpu", "TORCH: 'tpu' is not known", "use cpu or cuda"),
    ("env TORCH=cpu+cuda", "TORCH: 'cpu cuda' is not known", "use cpu or cuda"),
    ("reproduce-figures PROFIL=smoke", "PROFIL: unknown variable", "use PROFILE"),
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


@pytest.mark.parametrize("variable", ["PROFILE", "ONLY", "JOBS", "MINUTES", "ENGINE", "TORCH"])
@pytest.mark.parametrize(
    "value",
    ["$(shell touch made)", "$$(touch made)", "`touch made`", "1; touch made", "1\ntouch made", "'; touch made; '",
     '"; touch made; "', "1 | touch made", "> made", "1\\", "'", "#", "*"],
)  # fmt: skip
def test_a_value_for_make_reaches_no_shell(bare, variable, value):
    make_refuses(bare, ["records", f"{variable}={value}"], f"{variable}: ", "use ")


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
    refused(lambda: records.make(names, profile, limit, 1, tmp_path / "outputs"), *words)
    assert not [*tmp_path.iterdir()]


HARNESS = [
    ("nobody", {}, "path: there is no", "give a run of outputs/runs or a checkpoint"),
    ("notes.txt", {}, "path:", "give a model.safetensors"),
    ("broken", {}, "path: the run", "restore it or train it again"),
    ("whole", {"tokenizer": "words"}, "tokenizer: there is no file words", "use 'bytes' or a tokenizer.json"),
    ("whole", {"loops": 0}, "loops: 0", "at least 1"),
    ("whole", {"loops": "many"}, "loops:", "give one int"),
]


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

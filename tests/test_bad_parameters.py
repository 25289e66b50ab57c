"""A bad parameter of a notebook is refused in one line with a remedy, before anything is trained.

What papermill shows of it stands in test_notebooks.py.
"""

import math

import pytest

from lib.papers.parcae.parameters import Instability
from lib.workbook import notebook, parameters, plans
from tests.lines import everything, refused
from tests.workbooks import moved

NAN, INF = math.nan, math.inf

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
    ("injection_ablation", {"vocab_size": 0}, "vocab_size:", "greater than or equal to 1 (got 0)"),
    ("stability_ablation", {"vocab_size": -1}, "vocab_size:", "greater than or equal to 1 (got -1)"),
    ("looping_isoflop", {"batch": 0}, "batch:", "greater than or equal to 1 (got 0)"),
    ("unified_law", {"context": 0}, "context:", "greater than or equal to 1 (got 0)"),
    ("residual_scaling_init", {"vocab_size": 0}, "vocab_size:", "greater than or equal to 1 (got 0)"),
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
    ("instability", {"outputs": "README.md"}, "outputs: ", "README.md cannot be written to"),
    ("instability", {"outputs": "README.md/runs"}, "outputs: ", "README.md/runs cannot be written to"),
    ("instability", {"outputs": ""}, "outputs: ", "at least 1 character"),
    ("instability", {"outputs": "x" * 300}, "outputs: ", "xxx cannot be written to"),
    ("instability", {"profile": "CPU"}, "profile: 'CPU' is not known", "smoke, cpu, desk, gpu, paper"),
    ("instability", {"profile": "../cpu"}, "profile: '../cpu' is not known", "smoke, cpu, desk, gpu, paper"),
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
    ("downstream_core", {"training_seeds": [5]}, "training_seeds: none is of [1]", "add one of them"),
    ("downstream_axes", {"budgets": [3.0]}, "budgets: 3 is none of recurrence_exponent at smoke", "use 1e+09"),
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

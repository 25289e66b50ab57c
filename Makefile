# The commands of the workbook; `make help` lists them. What a command needs is installed by it, into .venv.

# ---- variables, which `make help` explains ---------------------------------------------------------------------------
PROFILE ?= desk
ONLY    ?=
JOBS    ?= 0
MINUTES ?=
SHARD   ?=
SEED    ?=
BESIDE  ?=
# that of .venv, where there is one
PYTHON  ?= $(shell for python in $(BIN)/python python3.11 python3.12 python3.13 python3.14 python3; do \
  command -v $$python && break; done)
# the build of torch: with CUDA where this machine has an NVIDIA GPU
ifndef TORCH
TORCH := $(if $(shell nvidia-smi -L 2>/dev/null),cuda,cpu)
endif
# for lib/sweep/cluster.py, which finds these in its environment
ENGINE      ?=
RAY_ADDRESS ?=
RUN_CPUS    ?=
RUN_GPUS    ?=
RUN_MEMORY  ?=
export ENGINE RAY_ADDRESS RUN_CPUS RUN_GPUS RUN_MEMORY

# paths and what is printed may have letters that the machine's locale lacks
export PYTHONUTF8 := 1

BIN   := .venv/bin
NAMES := $(basename $(notdir $(wildcard notebooks/*.ipynb)))

# ---- bad input: one line, before anything runs -----------------------------------------------------------------------
# lib/workbook/make_variables.py checks what was asked, and says "fine" or what is wrong. make before 4.4 hands none of
# its variables to $(shell), so the command puts them into the environment: as they were given, unexpanded, and in
# single quotes, where a shell minds nothing but a quote
GIVEN  := $(foreach v,$(.VARIABLES),$(if $(findstring command line,$(origin $v)),$v))
quoted  = '$(subst ','\'',$1)'
override SHELL := /bin/sh
override .SHELLFLAGS := -c
ANSWER := $(shell export $(foreach v,PROFILE ONLY JOBS MINUTES SHARD SEED BESIDE ENGINE TORCH,$v=$(call quoted,$(value $v))) \
  GIVEN=$(call quoted,$(GIVEN)) GOALS=$(call quoted,$(MAKECMDGOALS)) NOTEBOOKS=$(call quoted,$(NAMES)); \
  for python in $(BIN)/python $(call quoted,$(PYTHON)) python3; do \
  "$$python" -I -S lib/workbook/make_variables.py && break; done 2>/dev/null)
ifeq ($(ANSWER),)
$(error PYTHON: '$(PYTHON)' does not run lib/workbook/make_variables.py, pass PYTHON=/path/to/python3.11)
else ifneq ($(ANSWER),fine)
$(error $(ANSWER))
endif

# ---- what follows from them ------------------------------------------------------------------------------------------
CPU_WHEELS := https://download.pytorch.org/whl/cpu
READY  := .venv/.ready-$(TORCH)
# more, for some commands: the texts of tasks and the harness, and what checks and tests ask for
TASKS  := .venv/.with-tasks
DEV    := .venv/.with-dev
# an addendum and a second text have parameters for some notebooks alone
CHOSEN := $(if $(ONLY),$(ONLY),$(filter $(NAMES),$(basename $(notdir $(wildcard params/$(PROFILE)/*.yaml)))))
# a progress bar writes one line a minute where output goes to a file (make before 4.0 cannot tell)
ifeq ($(MAKE_TERMOUT)$(filter 3.%,$(MAKE_VERSION)),)
reproduce-figures notebooks records audit: export TQDM_MININTERVAL ?= 60
endif

.DEFAULT_GOAL := help
# a notebook trains on JOBS processes, and they run one after the other, also with -j. At smoke, without JOBS, they run
# side by side, each on one process: starting is what takes time there. One more than there are cores, since a notebook
# also waits, for its kernel or for a run that another trains. At desk they train nothing, and one of them measures
# times, so that no more run than there are cores
ifneq ($(filter smoke-0 desk-0,$(PROFILE)-$(JOBS)),)
AT_ONCE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + $(if $(filter smoke,$(PROFILE)),1,0))))
EACH    := 1
reproduce-figures notebooks: export OMP_NUM_THREADS ?= 1
else
AT_ONCE := 1
EACH    := $(JOBS)
endif
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help env tasks dev lock reproduce-figures notebooks records audit report site gallery
.PHONY: lint test test-precision test-smoke test-long browser mutants truth
.PHONY: bench lab flash clean distclean

help:
	@echo 'make reproduce-figures   runs the notebooks and writes the report; trains what is missing, at desk nothing'
	@echo 'make records             trains what is missing, the most telling runs first, and packs results for outputs/records/'
	@echo 'make audit               trains records drawn at random anew, and compares: to the last digit on a machine of their class'
	@echo 'make report              writes outputs/report/index.html from what is there; beside it a page a claim, the notebooks, data'
	@echo 'make site                the report with all its pages as outputs/site/, for GitHub Pages or any server'
	@echo 'make gallery             copies desk, as it was drawn last, into docs/notebooks/ and docs/gallery/'
	@echo 'make lab                 starts JupyterLab, for this machine alone, with a token'
	@echo 'make clean               removes figures, executed notebooks and the report; trained runs stay'
	@echo 'make distclean           removes .venv and all outputs but the committed records'
	@echo
	@echo 'make env                 installs the core of locks/ into .venv: all that draws and trains (the other commands do it first)'
	@echo 'make tasks               adds the texts of downstream tasks, and the harness (make test does it first)'
	@echo 'make dev                 adds what tests and lint need (make test and make lint do it first)'
	@echo 'make lock                writes locks/ anew, after a pin in environment.yml has changed (.venv/bin/pip install -e .[lock])'
	@echo 'make flash               builds the flash-attn of pyproject.toml into .venv (needs CUDA and its compiler)'
	@echo
	@echo 'make lint                ruff, mypy in strict mode on lib/ and on the notebooks, and which room may import which'
	@echo 'make test                the tests (three minutes on two cores with AVX-512, some six without)'
	@echo 'make test-precision      those that look at the precision of this machine, once more with the other outcome'
	@echo 'make test-smoke          make reproduce-figures PROFILE=smoke, and whether it made all that the notebooks promise'
	@echo 'make test-long           the slow tests, for the night: studies over many fits, kills in series, Ray'
	@echo 'make browser             runs every notebook in JupyterLab in a real browser, and once more after a change (needs chromium)'
	@echo 'make truth               whether keys, verdicts, tables and figures of desk and smoke are what they were'
	@echo 'make mutants             how many small faults in lib the tests notice (.venv/bin/pip install -e .[mutation])'
	@echo 'make bench               speed of models, a sweep, fits, decoding, generation, scoring and reading text, as ratios'
	@echo
	@echo 'Variables, with their values now:'
	@echo 'PROFILE=$(PROFILE)   desk (drawn from records), smoke (that everything runs), cpu (trains on two cores), gpu,'
	@echo '                 paper (the published sizes); addendum (more runs beside some of desk), second-text'
	@echo 'ONLY=$(ONLY)         the notebooks to run, all when empty: $(NAMES)'
	@echo 'JOBS=$(JOBS)         training processes of a notebook, 0 for one a core (smoke: 0 for a notebook on each core)'
	@echo 'MINUTES=$(MINUTES)         when make records stops; the same command goes on from there; no limit when empty.'
	@echo '                 Of make audit how long it trains, 10 when empty'
	@echo 'SEED=$(SEED)            by which make audit draws runs, 0 when empty'
	@echo 'BESIDE=$(BESIDE)          a second folder of outputs, which make report shows beside these: outputs/mine, say'
	@echo 'SHARD=$(SHARD)           of several machines on which make records runs, which this is: 1/2 and 2/2, say'
	@echo 'ENGINE=$(ENGINE)          ray trains sweeps on a Ray cluster (.venv/bin/pip install -e .[ray]), as RAY_ADDRESS,'
	@echo '                 RUN_CPUS, RUN_GPUS and RUN_MEMORY say: docs/machines.md'
	@echo 'TORCH=$(TORCH)       the build of torch that make env installs: cpu or cuda'
	@echo 'PYTHON=$(PYTHON)   the Python that make env begins with, 3.11 to 3.14'

# ---- environment -----------------------------------------------------------------------------------------------------
env: $(READY)
tasks: $(TASKS)
dev: $(DEV)

# what the locks name, whatever else a package says that it needs, and no file whose hash they do not have
LOCKED := $(BIN)/pip install --quiet --no-deps --require-hashes

$(READY): pyproject.toml $(wildcard locks/core.txt locks/torch-*.txt)
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || \
	  { echo "PYTHON: '$(PYTHON)' is not Python 3.11 to 3.14, pass PYTHON=/path/to/python3.11" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
# another build of torch has the same version to pip, so that it has to go first
	@if ls .venv/.ready-* >/dev/null 2>&1 && [ ! -e $@ ]; then $(BIN)/pip uninstall --yes --quiet torch; fi; \
	rm -f .venv/.ready-*
	@echo 'installing what locks/ names, which takes minutes'
ifeq ($(TORCH),cpu)
# on Linux the package index has CUDA builds only; a CPU wheel at hand is taken first
	$(LOCKED) --no-index -r locks/torch-cpu.txt 2>/dev/null || \
	  $(LOCKED) --index-url $(CPU_WHEELS) -r locks/torch-cpu.txt
else
	$(LOCKED) -r locks/torch-cuda.txt
endif
	$(LOCKED) -r locks/core.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
# without this every kernel warns at length that the loopback is not encrypted, and one that is stopped while it
# computes complains of sockets that are gone
	@mkdir -p .venv/etc/ipython && echo 'c.IPKernelApp.log_level = "CRITICAL"' > .venv/etc/ipython/ipython_kernel_config.py
	@touch $@

# the other groups, beside the core
$(TASKS) $(DEV): .venv/.with-%: locks/%.txt $(READY)
	$(LOCKED) -r $<
	@touch $@

# the locks, anew from the pins: versions that still fit stay. First of all groups together, so that they agree; then of
# each with the core, of which the others name what the core lacks
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
lock: export PATH := $(CURDIR)/$(BIN):$(PATH)
lock: $(READY)
	@test -x $(BIN)/uv || { echo 'uv: is not installed, run .venv/bin/pip install -e .[lock]'; exit 1; }
	@mkdir -p .venv/lock
	@awk '/# (core|tasks|dev):/ {group = ".venv/lock/" $$2; sub(":", ".txt", group)} \
	  / - .*==/ {print $$2 > group}' environment.yml
	@cat locks/core.txt locks/tasks.txt locks/dev.txt locks/torch-cuda.txt > .venv/lock/all
	cd .venv/lock && $(COMPILE) --output-file all core.txt tasks.txt dev.txt
	cd .venv/lock && for group in core tasks dev; do \
	  $(COMPILE) --constraint all core.txt $$group.txt > $$group || exit 1; done
	sed -n 's/^ *# pip install --no-deps //p' environment.yml | $(COMPILE) --no-deps - >> .venv/lock/tasks
	@cd .venv/lock && awk '/^[^ ]/ {file = /^(torch=|triton=|nvidia-|cuda-)/ ? "torch-cuda" : FILENAME; \
	    again = $$0 in core; if (FILENAME == "core") core[$$0]; file = "../../locks/" file ".txt"} \
	  again {next} !begun[file]++ {print "# written by make lock, from environment.yml" > file} {print > file}' core tasks dev

flash: $(READY)
	$(BIN)/pip install --quiet --editable '.[flash-build]'
	$(BIN)/pip install --no-build-isolation --editable '.[flash]'

# ---- the workbook ----------------------------------------------------------------------------------------------------
# what runs for long is a child of make itself, without a shell in between: a signal that ends make ends it too
RUN_STALE := exec $(BIN)/python -c 'from lib.workbook.make_notebooks import main; \
  main("$(PROFILE)", $(EACH), $(AT_ONCE), "$(CHOSEN)".split())'
reproduce-figures: $(READY)
	-@$(RUN_STALE)
	@failed=; $(MAKE) --no-print-directory report || failed=" report"; for name in $(CHOSEN); do \
	  test -e outputs/notebooks/$(PROFILE)/.$$name.done || failed="$$failed $$name"; done; \
	$(BIN)/python -c 'from lib.workbook.verdicts import main; main("$(PROFILE)", "$(CHOSEN)".split())'; \
	echo "figures    outputs/figures/$(PROFILE)/"; \
	echo "notebooks  outputs/notebooks/$(PROFILE)/"; \
	echo "report     outputs/report/index.html"; \
	if [ -n "$$failed" ]; then \
	  echo "failed    $$failed (the executed copy of a notebook holds the cell with the error)"; exit 1; fi

# those that are stale: lib/workbook/stale.py says when
notebooks: $(READY)
	@$(RUN_STALE)

# results to be committed, without weights
records: $(READY)
	@exec $(BIN)/python -c 'from lib.workbook.records import main; main("$(ONLY)".split(), "$(PROFILE)", "$(MINUTES)", $(JOBS), "$(SHARD)")'

report: $(READY)
	@exec $(BIN)/python -c 'from lib.workbook.stale import write_report; write_report("$(PROFILE)", False, "$(BESIDE)")'

site: $(READY)
	@exec $(BIN)/python -c 'from lib.workbook.stale import write_report; write_report("$(PROFILE)", True, "$(BESIDE)")'

# what docs/ shows of desk, from its outputs
gallery: $(READY)
	@exec $(BIN)/python -c 'from lib.workbook.gallery import main; main()'

# desk was recorded on CPUs, and random states are drawn on the device that trains
ifeq ($(PROFILE),desk)
audit: export CUDA_VISIBLE_DEVICES :=
endif
audit: $(READY)
	@exec $(BIN)/python -c 'from lib.workbook.audit import main; main("$(PROFILE)", "$(MINUTES)", "$(SEED)", $(JOBS))'

lab: $(READY)
# --allow-root is for containers, where one is root
	$(BIN)/jupyter lab --ip 127.0.0.1 --allow-root --LabApp.default_url=/lab/tree/notebooks/start_here.ipynb

# ---- checks ----------------------------------------------------------------------------------------------------------
lint: $(DEV)
	$(BIN)/ruff check lib tests notebooks
	$(BIN)/ruff format --check lib tests
	$(BIN)/mypy
	@$(BIN)/python -m tests.exported .venv/exported
	$(BIN)/mypy --config-file tests/exported.ini .venv/exported
	$(BIN)/lint-imports

# a process a core, with one thread each. One process has all tests of a file: they share what they set up
CORES  := $$(getconf _NPROCESSORS_ONLN)
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
test test-precision test-smoke test-long: export OMP_NUM_THREADS ?= 1
# images of containers often keep Python from writing bytecode; every process would compile all tests and lib anew
test test-precision test-smoke test-long: export PYTHONDONTWRITEBYTECODE :=

test: $(TASKS) $(DEV)
	@exec $(PYTEST) -n $(CORES)

# what `precision: auto` comes to on other machines
OTHER := from lib.config import native_precision; print("bf16-mixed" if native_precision() == "fp32" else "fp32")
test-precision: $(TASKS) $(DEV)
	@export AUTO_PRECISION="$$($(BIN)/python -c '$(OTHER)')" && \
	  exec $(PYTEST) -n $(CORES) -m "precision and not (long or browser or smoke)"

# one process more than cores: many of these tests wait for processes that they have killed or started
test-long: $(TASKS) $(DEV)
	@exec $(PYTEST) -n $$(($(CORES) + 1)) -m "long or hypothesis" --hypothesis-profile=thorough

# runs all notebooks at smoke, then looks whether they made what they promise
test-smoke: $(TASKS) $(DEV)
	@$(MAKE) --no-print-directory reproduce-figures PROFILE=smoke
	@exec $(PYTEST) -n $(CORES) tests -m smoke --made=outputs

# the browser is the machine's own
READS := tests/test_browser.py
browser: $(DEV)
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/pip install --quiet --editable '.[browser]'
	@exec $(BIN)/python -m pytest -m browser $(if $(ONLY),$(ONLY:%='$(READS)::test_a_notebook[%]'),$(READS))

truth: $(DEV)
	@exec $(BIN)/python -m tests.truth

mutants: $(TASKS) $(DEV)
	nice -n 15 $(BIN)/python -m tests.mutants

bench: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench_fit
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench_decode
	$(BIN)/python -m tests.bench_generate
	$(BIN)/python -m tests.bench_data
	$(BIN)/python -m tests.bench_steps
	$(BIN)/python -m tests.bench_gpu

clean:
	rm -rf outputs/notebooks outputs/figures outputs/tables outputs/claims outputs/plans outputs/report outputs/site

distclean: clean
	rm -rf outputs/runs outputs/tokens outputs/measured outputs/audits .venv *.egg-info

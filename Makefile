# Everything installs itself: see `make help`.

PROFILE ?= cpu
ONLY    ?=
JOBS    ?= 0
# after how long make records stops, no limit when empty
MINUTES ?=
PYTHON  ?= $(shell command -v python3.11 || command -v python3)
# a CUDA build of torch where an accelerator answers, the CPU build otherwise
TORCH   ?= $(if $(shell nvidia-smi -L 2>/dev/null),cuda,cpu)
# where sweeps are trained, and what a run asks for there: for lib/cluster.py, by way of the environment
ENGINE      ?=
RAY_ADDRESS ?=
RUN_CPUS    ?=
RUN_GPUS    ?=
RUN_MEMORY  ?=
STORE       ?=
export ENGINE RAY_ADDRESS RUN_CPUS RUN_GPUS RUN_MEMORY STORE

CPU_WHEELS := https://download.pytorch.org/whl/cpu
BIN        := .venv/bin
READY      := .venv/.ready-$(TORCH)
NAMES      := $(basename $(notdir $(wildcard notebooks/*.ipynb)))
CHOSEN     := $(if $(ONLY),$(ONLY),$(NAMES))
DONE       := $(CHOSEN:%=outputs/notebooks/$(PROFILE)/.%.done)

# ---- bad input: one line, before anything runs -----------------------------------------------------------------------
GIVEN   := $(foreach v,$(.VARIABLES),$(if $(findstring command line,$(origin $(v))),$(v)))
UNKNOWN := $(filter-out PROFILE ONLY JOBS MINUTES PYTHON TORCH ENGINE RAY_ADDRESS RUN_CPUS RUN_GPUS RUN_MEMORY STORE,$(GIVEN))
ifneq ($(UNKNOWN),)
$(error $(firstword $(UNKNOWN)): unknown variable, use PROFILE, ONLY, JOBS, MINUTES, PYTHON, TORCH, ENGINE, RAY_ADDRESS, RUN_CPUS, RUN_GPUS, RUN_MEMORY or STORE)
endif
ifeq ($(filter $(PROFILE),smoke cpu gpu paper),)
$(error PROFILE: '$(PROFILE)' is not known, use smoke, cpu, gpu or paper)
endif
ifneq ($(filter-out ray,$(ENGINE)),)
$(error ENGINE: '$(ENGINE)' is not known, use ray, or leave it out for the cores of this machine)
endif
ifneq ($(filter-out $(NAMES),$(ONLY)),)
$(error ONLY: there is no notebook '$(firstword $(filter-out $(NAMES),$(ONLY)))', use one of: $(NAMES))
endif
ifneq ($(if $(JOBS),$(shell printf %s '$(JOBS)' | tr -d 0-9),empty),)
$(error JOBS: '$(JOBS)' is not a number of processes, use 0 for one a core)
endif
ifeq ($(if $(MINUTES),$(shell printf '%s\n' '$(MINUTES)' | grep -Ex '[0-9]+(\.[0-9]+)?' | grep '[1-9]'),no limit),)
$(error MINUTES: '$(MINUTES)' is not a time, use a positive number of minutes, or leave it out for no limit)
endif
ifneq ($(and $(MINUTES),$(filter-out records,$(MAKECMDGOALS))),)
$(error MINUTES: make $(firstword $(filter-out records,$(MAKECMDGOALS))) has no limit, use it with make records alone)
endif
ifneq ($(and $(ENGINE),$(filter records,$(MAKECMDGOALS))),)
$(error ENGINE: make records trains on this machine, leave it out, or use make reproduce-figures)
endif
ifeq ($(filter $(TORCH),cpu cuda),)
$(error TORCH: '$(TORCH)' is not known, use cpu or cuda)
endif

.DEFAULT_GOAL := help
# notebooks share the machine's cores through JOBS, so make itself runs one thing at a time, also under make -j
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help env reproduce-figures notebooks records report test test-long bench lab flash clean distclean

help:
	@echo 'make reproduce-figures   train what is missing, run the notebooks, write the report'
	@echo 'make records             train what is missing, the most telling runs first, and pack results for outputs/records/'
	@echo 'make test                the tests (about half an hour on two cores)'
	@echo 'make test-long           the slow ones: kills in series, a browser'
	@echo 'make bench               speed of every family, of a sweep, of fits, decoding, scoring and reading text, as ratios'
	@echo 'make lab                 JupyterLab on this machine alone, with a token'
	@echo 'make report              outputs/report/index.html from what is there'
	@echo 'make env                 .venv from the pins in environment.yml'
	@echo 'make flash               flash-attn into .venv (needs CUDA and its compiler)'
	@echo 'make clean               remove figures, executed notebooks and the report; trained runs stay'
	@echo 'make distclean           remove .venv and all outputs but the committed records'
	@echo
	@echo 'PROFILE=$(PROFILE)   smoke (seconds), cpu (minutes on two cores), gpu, paper (the published sizes)'
	@echo 'ONLY=$(ONLY)         notebooks to run, all when empty: $(NAMES)'
	@echo 'JOBS=$(JOBS)         training processes, 0 for one a core'
	@echo 'MINUTES=$(MINUTES)         when make records stops, to go on another time; no limit when empty'
	@echo 'ENGINE=$(ENGINE)          ray: sweeps on a Ray cluster (pip install -e .[ray]), with RAY_ADDRESS, RUN_CPUS, RUN_GPUS, RUN_MEMORY, STORE'
	@echo 'TORCH=$(TORCH)       build of torch that make env installs: cpu or cuda'
	@echo 'PYTHON=$(PYTHON)'

# ---- environment -----------------------------------------------------------------------------------------------------
env: $(READY)

$(READY): environment.yml pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "PYTHON: '$(PYTHON)' is not Python 3.11, pass PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
# another build of torch has the same version to pip, so that it has to go first
	@if ls .venv/.ready-* >/dev/null 2>&1 && [ ! -e $@ ]; then $(BIN)/pip uninstall --yes --quiet torch; fi; \
	rm -f .venv/.ready-*
	@sed -n '/- pip:/,$$ s/^ *- //p' environment.yml | sed '/^pip:/d' > .venv/pins.txt
ifeq ($(TORCH)-$(shell uname -s),cpu-Linux)
# on Linux the package index has CUDA builds only; a CPU wheel at hand is taken first
	$(BIN)/pip install --quiet --no-deps --no-index "$$(grep ^torch== .venv/pins.txt)" 2>/dev/null || \
	  $(BIN)/pip install --quiet --no-deps --index-url $(CPU_WHEELS) "$$(grep ^torch== .venv/pins.txt)"
endif
	$(BIN)/pip install --quiet -r .venv/pins.txt
	$(BIN)/pip install --quiet $$(sed -n "s/^# pip install //p" environment.yml)
# kernels listen on loopback only; without this each start warns at length that the loopback is not encrypted
	@mkdir -p .venv/etc/ipython && echo 'c.IPKernelApp.log_level = "ERROR"' > .venv/etc/ipython/ipython_kernel_config.py
	@touch $@

flash: $(READY)
	$(BIN)/pip install --no-build-isolation flash-attn

# ---- the workbook ----------------------------------------------------------------------------------------------------
reproduce-figures: $(READY)
	@$(MAKE) --no-print-directory --keep-going notebooks; \
	failed=; $(MAKE) --no-print-directory report || failed=" report"; for name in $(CHOSEN); do \
	  test -e outputs/notebooks/$(PROFILE)/.$$name.done || failed="$$failed $$name"; done; \
	echo "figures    outputs/figures/$(PROFILE)/"; \
	echo "notebooks  outputs/notebooks/$(PROFILE)/"; \
	echo "report     outputs/report/index.html"; \
	if [ -n "$$failed" ]; then \
	  echo "failed    $$failed (the executed copy of a notebook holds the cell with the error)"; exit 1; fi

notebooks: $(DONE)

# the executed copy is written as it runs; only the mark beside it says that it ran to its end
outputs/notebooks/$(PROFILE)/.%.done: notebooks/%.ipynb params/$(PROFILE)/%.yaml $(wildcard lib/*.py) params/claims.yaml | $(READY)
	@mkdir -p $(@D) && rm -f $@
	$(BIN)/papermill --log-level ERROR --no-progress-bar --stdout-file - --stderr-file - \
	  $< $(@D)/$*.ipynb \
	  -f params/$(PROFILE)/$*.yaml $(if $(shell grep '^jobs:' params/$(PROFILE)/$*.yaml),-p jobs $(JOBS))
	@touch $@

# results alone, without weights, to be committed
records: $(READY)
	@$(BIN)/python -c 'from lib.records import main; main("$(ONLY)".split(), "$(PROFILE)", "$(MINUTES)", $(JOBS))'

report: $(READY)
	@$(BIN)/python -c 'from pathlib import Path; from lib.report import build; build(Path("outputs"), "$(PROFILE)")'

lab: $(READY)
# --allow-root matters in containers only, where root is who one is
	$(BIN)/jupyter lab --ip 127.0.0.1 --allow-root

# ---- checks ----------------------------------------------------------------------------------------------------------
test: $(READY)
	$(BIN)/python -m pytest

test-long: $(READY)
	$(BIN)/python -m pytest -m long

bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench_fit
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench_decode
	$(BIN)/python -m tests.bench_downstream
	$(BIN)/python -m tests.bench_data
	$(BIN)/python -m tests.bench_gpu

clean:
	rm -rf outputs/notebooks outputs/figures outputs/tables outputs/claims outputs/plans outputs/report

distclean: clean
	rm -rf outputs/runs outputs/tokens outputs/measured .venv *.egg-info

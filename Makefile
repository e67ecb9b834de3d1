# Everything runs in .venv with the versions pinned in constraints.txt.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
LOCKED := pyproject.toml constraints.txt
SOURCES := halfmoon kvtransfer prefill decode router gateway bench cli tests

.PHONY: help serve test test-all lint format protos protos-check lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/.stamp-run ## Serve a model: make serve ARGS="--port 9000 --prefill 2 --decode 2"
	@exec $(BIN)/halfmoon serve $(ARGS)

test: $(VENV)/.stamp-dev ## Run the tests, but for the slow ones
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-all: $(VENV)/.stamp-dev ## Run all tests
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.stamp-dev protos-check ## Check style, types, import arrows and generated code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.stamp-dev ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

protos: $(VENV)/.stamp-dev ## Generate halfmoon/v1 from protos/
	bash tools/gen_protos.sh

protos-check: $(VENV)/.stamp-dev ## Check that halfmoon/v1 is what protos/ generates
	bash tools/gen_protos.sh --check

lock: ## Renew constraints.txt with the newest versions that pyproject.toml allows
	PYTHON="$(PYTHON)" bash tools/lock.sh

clean: ## Remove .venv and all caches in this folder
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "halfmoon needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3-venv is missing (apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/.stamp-run: $(LOCKED) | $(BIN)/python
	@echo "Installing halfmoon and what it needs into $(VENV)"
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e .
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-run
	@echo "Installing what tests and linters need into $(VENV)"
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

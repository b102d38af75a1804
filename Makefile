# Everything runs in .venv, which these targets make and keep up to date with pyproject.toml.

PYTHON ?= python3
VENV := .venv
RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev
# The tests' models are tiny: more threads only wait for each other, and one thread gives one result everywhere.
TEST_ENV := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-8s %s\n", $$1, $$2}'

demo: $(RUNTIME) ## Translate by the published models, then train the toy ladders (10 minutes on 2 cores)
	$(VENV)/bin/hf-cmal demo

test: $(DEV) ## Run the tests
	$(TEST_ENV) $(VENV)/bin/python -m pytest

check: $(DEV) ## Lint, check the format, the types and the direction of imports
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(DEV) ## Format the code and fix what the linter can fix
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(DEV) ## Run each script of benchmarks/
	@ls benchmarks/*.py >/dev/null
	@for script in benchmarks/*.py; do echo "== $$script" && $(VENV)/bin/python $$script || exit 1; done

# pip is the last thing that `venv` puts in place, so an interrupted creation is started again.
$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

# Stamps are written after a successful install only. The dev install holds the runtime one, hence both stamps.
$(RUNTIME): pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/python -m pip install -e .
	@touch $@

$(DEV): pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/python -m pip install -e ".[dev]"
	@touch $(RUNTIME) $@

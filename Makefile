# Two commands do all their own set-up on a fresh machine: `make tune` and `make test`.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: help tune test check fast bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

$(VENV)/.ready-tune: pyproject.toml scripts/setup
	PYTHON=$(PYTHON) scripts/setup $(VENV) llamacpp
	@touch $@

$(VENV)/.ready-test: pyproject.toml scripts/setup
	PYTHON=$(PYTHON) scripts/setup $(VENV) dev,llamacpp,postgres,sched,bench
	@touch $@ $(VENV)/.ready-tune

tune: $(VENV)/.ready-tune ## tune real llama.cpp on this machine, about six minutes
	$(BIN)/autoscout tune llamacpp --experiment-name llamacpp --budget 6m

test: $(VENV)/.ready-test ## everything CI runs: lint, types, import contract, all tests
	scripts/system-packages
	scripts/check $(VENV)
	scripts/test $(VENV)

check: $(VENV)/.ready-test ## lint, types, import contract, sizes
	scripts/check $(VENV)

fast: $(VENV)/.ready-test ## the tests that take seconds
	$(BIN)/pytest -q -m "not slow"

bench: $(VENV)/.ready-test ## figures of speed, beside peers
	$(BIN)/python -m benchmarks.space

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

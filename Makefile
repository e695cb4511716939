# Penstock: `make help` lists what there is.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help

.PHONY: help setup clean
help: ## this list
	@echo "Penstock: continuous SQL over sliding windows far larger than memory."
	@echo
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment .venv with everything in it

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[spark,dev]'
	@touch $(STAMP)

clean: ## remove the environment and everything made by running
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis

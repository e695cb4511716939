# Penstock: `make help` lists what there is. Needs make and Python 3.11 or later; the rest comes into .venv.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest
SOAK_SECONDS ?= 3600
# Half as many again as there are cores, since some tests wait for processes that they kill.
WORKERS := $(shell $(PYTHON) -c 'import os; print(3 * (os.cpu_count() or 2) // 2)' 2>/dev/null || echo 2)

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow soak lint docs-check bench bench-beside bench-full clean

help: ## this list
	@echo "Welcome to Penstock: continuous SQL over sliding windows far larger than memory, exact and fast."
	@echo
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'
	@echo
	@echo "New here? 'make run' shows it at work; README.md explains it."

setup: $(STAMP) ## make the virtual environment .venv with everything in it

$(STAMP): pyproject.toml src/penstock_bench/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Penstock needs Python 3.11 or later, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing):" \
	       "install one and name it, as in 'make setup PYTHON=python3.12'."; exit 1; }
	@echo "setup: installing Penstock, its laboratory and its tools into .venv (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable '.[spark,dev]' --editable './src/penstock_bench[kafka,esper]'
	@touch $(STAMP)

run: $(STAMP) ## a call centre on Spark's local mode: 144 KPIs over 24 hours, every two hours of event time
	@echo "run: generating call-centre events and computing 144 rolling KPIs on Spark (about a minute)"
	@$(BIN)/python -m penstock_bench.workloads.callcentre_on_spark

test: $(STAMP) ## the quick tests, in a few minutes
	@echo "test: everything but the soak and fault rounds; first what needs no Spark session, on all cores"
	@$(PYTEST) -m "not slow and not spark" -n $(WORKERS) --dist worksteal
	@echo "test: the tests on Spark, in one session"
	@$(PYTEST) -m "spark and not slow"

test-slow: $(STAMP) ## the soak and fault tests: long property searches, many rounds of kill -9
	@echo "test-slow: soak and fault tests"
	@$(PYTEST) -m slow -n $(WORKERS) --dist worksteal

soak: $(STAMP) ## a query on Spark for an hour (or SOAK_SECONDS=...): nothing may grow
	@echo "soak: a query on Spark that goes on and on, its memory, files and state watched"
	@PENSTOCK_SOAK_SECONDS=$(SOAK_SECONDS) $(PYTEST) tests/spark/test_soak.py -s

lint: $(STAMP) ## style, types and the direction of imports
	@echo "lint: ruff (rules and format), mypy, import-linter"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs-check: $(STAMP) ## run the examples in README.md, docs/ and the docstrings
	@echo "docs-check: every example in the documents and docstrings"
	@$(PYTEST) tests/docs

bench: $(STAMP) ## a short version of every measurement, the report and the papers' page, into out/bench
	@echo "bench: own benches and microbenchmarks, quick; what is done already is not done again (about an hour on all systems)"
	@$(BIN)/penstock bench all --output out/bench

bench-beside: $(STAMP) ## one bench on two states of the code, in turns: COMMIT=... BENCH=vwap ROUNDS=3
	@test -n "$(COMMIT)" || { echo "bench-beside: name the state to compare with, as in 'make bench-beside COMMIT=HEAD~1 BENCH=vwap'"; exit 1; }
	@$(BIN)/python -m penstock_bench.benches.beside $(COMMIT) $(or $(BENCH),vwap) --rounds $(or $(ROUNDS),3)

bench-full: $(STAMP) ## the long version, into out/bench-full: many hours
	@echo "bench-full: everything as the papers have it, as far as this machine can; it goes on where it was stopped"
	@$(BIN)/penstock bench all --full --output out/bench-full

clean: ## remove the environment and everything that running makes, compiled kernels included
	@echo "clean: removing .venv, caches and out/"
	@rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf spark-warehouse metastore_db derby.log
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

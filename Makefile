# Everything a contributor runs. Needs Python 3.11 or later and make; the rest goes into .venv.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS ?=

# Each stamp says which extras are in: a demo needs no test tools, and tests need no LangChain.
BASE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-all llm-test check format bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(BASE) ## A conversation killed in mid-call that loses nothing; a hundred turns in 8K; a recorded run, and its cost
	@$(BIN)/python examples/story.py
	@$(BIN)/python examples/long_session.py --brief
	@$(BIN)/python -m backstory replay examples/agent_run.jsonl --tools examples/agent_tools.json \
		--budget 5000 --compare full,sliding,stepped --brief $(ARGS)

test: $(DEV) ## Run the fast tests, on all processors, and show coverage (ARGS="-k word" selects)
	$(BIN)/python -m pytest -n auto --dist loadfile --cov --cov-report=term $(ARGS)

test-slow: $(DEV) ## Run the slow tests alone
	$(BIN)/python -m pytest -m slow $(ARGS)

test-all: $(DEV) ## Run every test, on all processors, and show coverage
	$(BIN)/python -m pytest -m "" -n auto --dist loadfile --cov --cov-report=term $(ARGS)

llm-test: $(DEV) ## Talk to the server at OPENAI_BASE_URL, any that speaks OpenAI's protocol (see docs/models.md)
	@$(BIN)/python -m pytest tests/models/test_real_server.py -m slow -s -rs -p no:cov $(ARGS)

check: $(DEV) ## Check format, lint, types and architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture -q -p no:cov

format: $(DEV) ## Format the code, and mend what the linter can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(BENCH) ## Run the benchmarks, peers too: half an hour; ARGS="length turns" chooses (docs/measurements.md)
	$(BIN)/python benchmarks/run.py $(ARGS)

clean: ## Remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist

$(BIN)/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Backstory needs Python 3.11 or later; on the PATH there is none$(if $(PYTHON), ($(PYTHON) is not))." \
		"Install one, or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make environments: its venv or ensurepip module is missing." \
		"On Debian or Ubuntu: apt install python3-venv (or python3.X-venv for that version)." >&2; exit 1; }
	@echo "Making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml | $(BIN)/python
	@echo "Installing backstory …"
	@$(PIP) --editable .
	@touch $@

$(DEV): $(BASE)
	@echo "Installing the development tools …"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(BENCH): $(BASE)
	@echo "Installing what the benchmarks compare with …"
	@$(PIP) --editable '.[bench]'
	@touch $@

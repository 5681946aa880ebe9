# Set-up, tests and the demo from a bare checkout. Needs make, Python 3.11 or newer, and a package index to install from.
#
#   make demo                 a worker is killed mid-work and a standby finishes; ARGS='--pages 20' and the like are passed on
#   make test                 every test, lint and types among them; ARGS='-k fence' and the like are passed on
#   make lint                 lint, format and types alone
#   make check-times          the bounds on time, which depend on the machine and so are no tests
#   make check-pings          how long a ping takes beside strangers who say the most tiresome things, and beside crowds
#   make bench                ours beside the peers and the limits of the machine: some minutes; figures and picture in .bench/
#   make simulate SEEDS=1000  the simulation over that many seeds, on all cores; FROM=N is the first one
#   make clean                removes what the others made

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 200
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint check-times check-pings bench simulate clean

demo: $(STAMP)
	@$(BIN)/dhp demo $(ARGS)

test: $(STAMP)
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

check-times: $(STAMP)
	@$(BIN)/python bench/check_times.py $(ARGS)

check-pings: $(STAMP)
	@$(BIN)/python bench/pings.py $(ARGS)
	@$(BIN)/python bench/crowds.py

bench: $(STAMP)
	@$(BIN)/python bench/run.py --json .bench/figures.json --picture .bench/figures.png $(ARGS)

simulate: $(STAMP)
	@$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(if $(FROM),--from $(FROM)) $(ARGS)

clean:
	@rm -rf $(VENV) .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-out
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate counts only if it runs, is new enough and can make environments: a name on PATH may do none of it.
$(STAMP): pyproject.toml
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Setting up $(VENV) with $$($$python --version)."; \
	        $$python -m venv $(VENV) && $(BIN)/pip install --quiet --editable '.[test]' && touch $@; exit; \
	    fi; \
	done; \
	echo "This needs Python 3.11 or newer with its venv module: install one, or name one with PYTHON=…" >&2; exit 1

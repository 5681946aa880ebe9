# Set-up, tests and the demo from a bare checkout. Needs make, Python 3.11 or newer, and a package index to install from.
#
#   make demo                 a worker is killed mid-work and a standby finishes; ARGS='--pages 20' and the like are passed on
#   make test                 every test, lint and types among them; ARGS='-k fence' and the like are passed on
#   make lint                 lint, format and types alone
#   make audit                what comes along with dhpd and its extras: licences, and known vulnerabilities as far as the index can be asked
#   make check-times          the bounds on time, which depend on the machine and so are no tests
#   make check-restart        how 500 clients with live leases come back when their daemon is restarted; ARGS='--ttl-ms 2000' and the like
#   make check-pings          how long a ping takes beside strangers who say the most tiresome things, and beside crowds
#   make check-abuse          the same beside strangers who abuse the daemon in every way, and what memory that takes
#   make soak MINUTES=10      a steady load, and whether memory, log and file stay as they are; how it extrapolates to a day
#   make check-handshakes     what TLS costs, and how long a ping takes beside a storm of handshakes and beside long answers
#   make bench                ours beside the peers and the limits of the machine: some minutes; figures and picture in .bench/
#   make ordeal               dhp chaos at full size: 300 handoffs, a worker killed every second for two minutes, the daemon five times
#   make check-reliability    kill to resume, work done twice, work taken without need: a quarter of an hour; ARGS=--quick for two minutes
#   make simulate SEEDS=1000  the simulation over that many seeds, on all cores; FROM=N is the first one
#   make fuzz SECONDS=600     random bytes for everything that reads them from strangers, with fresh seeds; failures are kept in .fuzz
#   make check-spool KILLS=60 a worker killed that often at any moment of a partition, its spool sent by the next; minutes
#   make clean                removes what the others made

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TESTABLE := $(VENV)/.testable
SEEDS ?= 200
MINUTES ?= 10
SECONDS ?= 60
KILLS ?= 60
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without bytecode on disk each of the hundreds of processes of a run compiles all that it imports: half of what its start costs.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint audit check-times check-restart check-pings check-abuse soak check-handshakes bench ordeal check-reliability simulate fuzz check-spool clean

demo: $(INSTALLED)
	@$(BIN)/dhp demo $(ARGS)

test: $(TESTABLE)
	@$(BIN)/python -m pytest --numprocesses 4 --dist loadfile $(ARGS)

lint: $(TESTABLE)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

audit: $(TESTABLE)
	@$(BIN)/python -m tests.security.audit $(ARGS)

check-times: $(TESTABLE)
	@$(BIN)/python bench/check_times.py $(ARGS)

check-restart: $(TESTABLE)
	@$(BIN)/python bench/restarts.py $(ARGS)

check-pings: $(TESTABLE)
	@$(BIN)/python bench/pings.py $(ARGS)
	@$(BIN)/python bench/crowds.py

check-abuse: $(TESTABLE)
	@$(BIN)/python bench/pings.py --abuse $(ARGS)

soak: $(TESTABLE)
	@$(BIN)/python bench/soak.py --minutes $(MINUTES) $(ARGS)

check-handshakes: $(TESTABLE)
	@$(BIN)/python bench/handshakes.py

bench: $(TESTABLE)
	@$(BIN)/python bench/run.py --json .bench/figures.json --picture .bench/figures.png $(ARGS)

ordeal: $(TESTABLE)
	@$(BIN)/dhp chaos --handoffs 300 --workers 6 --seconds 120 --kill-every-ms 1000 --daemon-kills 5 $(ARGS)

check-reliability: $(TESTABLE)
	@$(BIN)/python -m bench.reliability $(ARGS)

simulate: $(TESTABLE)
	@$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(if $(FROM),--from $(FROM)) $(ARGS)

fuzz: $(TESTABLE)
	@$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(ARGS)

check-spool: $(TESTABLE)
	@DHP_SPOOL_KILLS=$(KILLS) $(BIN)/python -m pytest -q -o timeout=0 tests/client/test_spool_kills.py $(ARGS)

clean:
	@rm -rf $(VENV) .bench .fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-out
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate counts only if it runs, is new enough and can make environments: a name on PATH may do none of it.
$(INSTALLED): pyproject.toml
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Setting up $(VENV) with $$($$python --version)."; \
	        $$python -m venv $(VENV) && $(BIN)/pip install --quiet --editable . && touch $@; exit; \
	    fi; \
	done; \
	echo "This needs Python 3.11 or newer with its venv module: install one, or name one with PYTHON=…" >&2; exit 1

# A hundred packages of the bridges' counterparts: uv brings them in seconds, pip in a minute.
$(TESTABLE): $(INSTALLED)
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[test]'
	@touch $@

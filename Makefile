# Every target that needs the environment builds it first: `make demo` works right after `git clone`.

# The Python for .venv: by default the newest supported one that runs.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := build/docs-venv
RELEASE := build/release-venv
MANIFESTS := build/manifests-venv
ACTIONLINT := v1.7.12
PYTEST := $(BIN)/python -m pytest --basetemp=build/tests
# Two processes run tests with Spark, and two run tests of other services (tests/scheduling.py). All share one broker and one
# server of each other kind. A process that ends within a test ends the run, so that the test's name is the last output.
AT_ONCE := -n 4 --dist loadscope --max-worker-restart=0
# Tests without services are short and need little of their file: whoever has run its part takes from another's.
UNIT_AT_ONCE := -n 4 --dist worksteal --max-worker-restart=0
# Tests of what differs between versions of Spark.
SPARK_TESTS := $(addprefix tests/,spark jobs replays verification delta/checkpoint delta/landing delta/commit delta/catalog) \
    $(addprefix tests/,test_checkpoint_exchange.py test_replays.py delta/test_kills.py delta/test_lanes.py delta/test_typed_tables.py)

.DEFAULT_GOAL := help
export PYTHON
# Modules of tests are compiled once, and not by each process again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help venv lock audit java kerberos stack demo emulators test test-spark test-unit test-slow dist release lint prose actionlint manifests docs chaos soak scale race topics debezium fuzz differential sql model bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Build .venv with every package pinned by requirements.lock
	@# Modules are compiled before a query starts, as on a cluster, including modules that were edited since.
	@$(BIN)/python -m compileall -q tiered_stream
	@mkdir -p build

$(STAMP): requirements.lock setup.cfg pyproject.toml
	python=$${PYTHON:-$$(sh conf/python.sh)} && "$$python" -m venv --clear $(VENV)
	@# A package without a wheel (pyspark) is built with the pinned setuptools.
	sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock >$(VENV)/setuptools.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/setuptools.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-build-isolation -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/pip check
	$(BIN)/tiered-stream warm --pyspark
	@touch $@

audit: ## Look for known vulnerabilities of the pinned packages
	@sh conf/audit.sh

lock: ## Write the hashes of the lock files again, for the versions in them
	@sh conf/lock.sh

java: ## Look for Java 17 or newer; install Debian's if that is allowed
	@sh conf/stack/java.sh

kerberos: venv ## Look for Kerberos' KDC and the package gssapi; install Debian's KDC if that is allowed
	@sh conf/stack/kerberos.sh $(BIN)/python

stack: venv java ## Start a Kafka broker that tiers, and an S3 endpoint over its tier; print how to use them; until Ctrl-C
	@$(BIN)/python -m tests.rigs.stack

test-spark: java ## Run the demo and the tests of Spark with pyspark VERSION=4.1.2, in an environment of its own
	@sh conf/spark_environment.sh $(VERSION) build/spark-$(VERSION)
	PATH=$(CURDIR)/build/spark-$(VERSION)/bin:$$PATH build/spark-$(VERSION)/bin/python -m tests.rigs.demo
	PATH=$(CURDIR)/build/spark-$(VERSION)/bin:$$PATH build/spark-$(VERSION)/bin/python -m pytest --basetemp=build/tests-spark \
	    $(AT_ONCE) $(or $(TESTS),$(SPARK_TESTS))
	build/spark-$(VERSION)/bin/python -m tests.spark.abilities

demo: venv java ## Tier a topic, read it straight from the object store, and land it in a Delta table
	@$(BIN)/python -m tests.rigs.demo

emulators: venv ## Build the emulators of clouds' storage that tests use
	@$(BIN)/python -m tests.rigs.stack.emulators

build/spark.jsa: $(STAMP) # the JVMs of tests take half the CPU with it
	@$(BIN)/python -m tests.rigs.stack.class_archive

test: venv java kerberos emulators build/spark.jsa ## Run the tests, including tests that start the broker, the S3 endpoint and Spark; SLOW=1 adds slow tests, TIMES=FOLDER measures, ORDER=SEED shuffles
	$(if $(SLOW),DEEP=1) $(if $(TIMES),TEST_TIMES=$(TIMES)) $(PYTEST) $(AT_ONCE) $(if $(SLOW),-m "slow or not slow",--few-cases) \
	    $(if $(TIMES),-p tests.rigs.test_times.plugin) $(if $(ORDER),--order $(ORDER))

test-unit: venv ## Run the tests that start no service and need no network; WITHOUT="FOLDER …" leaves folders out
	$(PYTEST) $(UNIT_AT_ONCE) --few-cases -m "not stack and not slow" $(addprefix --ignore=,$(WITHOUT))

dist: venv $(RELEASE)/.installed ## Build the wheel, an environment without PySpark for a cluster's workers, and the gateway as one file, into dist/
	@$(BIN)/python conf/pack.py dist
	@$(BIN)/python -m conf.pack_gateway dist $(RELEASE)/bin/pex

release: venv $(RELEASE)/.installed ## Make the release VERSION=1.2.3: version, changelog, sdist and wheel in dist/, checks, commit and tag; no upload
	@$(BIN)/python -m conf.release "$(VERSION)" $(RELEASE)/bin/twine

$(RELEASE)/.installed: requirements-release.lock
	python=$${PYTHON:-$$(sh conf/python.sh)} && "$$python" -m venv --clear $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-release.lock
	@touch $@

lint: venv docs prose ## Check style, format, types and prose, and build the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

prose: venv ## Check the English of documentation, docstrings, errors and help texts by the rules of CONTRIBUTING.md
	$(BIN)/python conf/prose.py $(wildcard *.md) .github docs $(wildcard examples) --code tiered_stream

actionlint: build/actionlint/$(ACTIONLINT) ## Check the workflows of GitHub; needs Go
	$</actionlint

build/actionlint/$(ACTIONLINT):
	GOBIN=$(CURDIR)/$@ go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)

manifests: $(MANIFESTS)/.installed ## Check the gateway's Dockerfile and Kubernetes manifests; runs none of them
	$(MANIFESTS)/bin/hadolint examples/gateway/Dockerfile
	$(MANIFESTS)/bin/kubernetes-validate --strict examples/gateway/kubernetes.yaml

$(MANIFESTS)/.installed: requirements-manifests.lock
	python=$${PYTHON:-$$(sh conf/python.sh)} && "$$python" -m venv --clear $(MANIFESTS)
	$(MANIFESTS)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-manifests.lock
	@touch $@

docs: $(DOCS)/.installed ## Build the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

$(DOCS)/.installed: requirements-docs.lock
	python=$${PYTHON:-$$(sh conf/python.sh)} && "$$python" -m venv --clear $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.lock
	@touch $@

test-slow: venv java kerberos emulators build/spark.jsa ## Run the tests and cases that `make test` leaves out, and all examples of tests that draw them; takes PART=1/6
	DEEP=1 $(PYTEST) $(AT_ONCE) -m slow --few-cases $(if $(PART),--slow-part $(PART)) -o faulthandler_timeout=3600

# The next three take MINUTES. chaos and fuzz take a SEED, which is otherwise random and printed. With ALONE=1, chaos stalls only S3,
# for queries without fallback. With FORKS=1, soak deletes the fork server's folder or kills the server each minute.
chaos: venv java ## Inject faults of all kinds into landing queries for MINUTES=30, and count every record
	@$(BIN)/python -m tests.rigs.chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(if $(ALONE),--alone)

soak: venv java ## Land each second for MINUTES=60 under all kinds of load, or BATCHES=1000 in five ways (WAY=tables: one); look for growth, count all
	@$(BIN)/python -m tests.rigs.soak$(if $(BATCHES),.batches $(BATCHES) $(if $(WAY),--way $(WAY)), $(or $(MINUTES),60) $(if $(FORKS),--fork-faults))

scale: venv ## Measure what the driver takes for a million segments, 10,000 tasks, 2,000 tables; takes SCALE=0.01 and PART=tables
	@$(BIN)/python -m tests.rigs.scale $(if $(SCALE),--scale $(SCALE)) $(if $(PART),--only $(PART))

fuzz: venv ## Give every parser mutated bytes for MINUTES=15 on two cores; prints a table, and writes build/fuzz.json
	@$(BIN)/python -m tests.rigs.fuzz --minutes $(or $(MINUTES),15) $(if $(SEED),--seed $(SEED))

race: venv java ## Let writers of a table in S3 race, kill the driver once, and count every record
	@$(BIN)/python -m tests.delta.race --kills 1

topics: venv java ## Land 500 topics in 500 tables by one query, kill its driver five times
	@$(BIN)/python -m tests.delta.many_topics 500

debezium: venv java ## Land changes of TABLES=20 PostgreSQL tables by Debezium, kill the driver KILLS=20 times; takes a SEED
	@$(BIN)/python -m tests.rigs.debezium --tables $(or $(TABLES),20) --kills $(or $(KILLS),20) $(if $(SEED),--seed $(SEED)) $(if $(MODE),--mode $(MODE))

differential: venv java ## Compare SETTINGS=300 random reads and streams with Spark's own kafka source; takes a SEED
	@$(BIN)/python -m tests.rigs.differential --settings $(or $(SETTINGS),300) $(if $(SEED),--seed $(SEED))

sql: venv java ## Compare EXAMPLES=300 random sets of SQL expressions and conditions with Spark's own SQL; takes a SEED
	@EXAMPLES=$(or $(EXAMPLES),300) SEED=$(SEED) $(BIN)/python -m pytest -q tests/formats/sql/test_sql_in_spark.py

model: venv java ## Kill the driver within HISTORIES=300 random histories of tables and LIFETIMES=20000 of planners; count all rows; takes a SEED
	@$(BIN)/python -m tests.rigs.planner_model --lifetimes $(or $(LIFETIMES),20000) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.rigs.dead_letter_model --without-spark --histories $(or $(HISTORIES),300) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.rigs.dead_letter_model --histories $(or $(HISTORIES),300) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.rigs.upsert_model --histories $(or $(HISTORIES),300) $(if $(SEED),--seed $(SEED))

bench: venv java ## Measure throughput against Spark's own kafka source; takes ONLY=A,H (parts), SCALE=0.1, RUNS=5 and UNCHECKED=1
	@$(BIN)/python -m tests.rigs.bench $(if $(ONLY),--only $(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(RUNS),--runs $(RUNS)) $(if $(UNCHECKED),--unchecked)

clean: ## Remove all files that the other targets made here (downloaded jars stay in the user's cache)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	rm -rf tiered_stream/records/kernel_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every target that needs the environment builds it first: `make demo` works right after `git clone`.

# Which Python .venv is built with; by default the newest that is supported and runs.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest --basetemp=build/tests
# Most tests of services wait; a file's tests stay together, and each process has a stack of its own.
TWO_AT_ONCE := -n 2 --dist loadfile

.DEFAULT_GOAL := help
export PYTHON
.PHONY: help venv java stack demo test test-unit test-slow lint soak race bench clean

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Build .venv with every package pinned by requirements.lock
	@# As on a cluster: modules are compiled before a query starts, those edited since the last time included.
	@$(BIN)/python -m compileall -q tiered_stream
	@mkdir -p build

$(STAMP): requirements.lock setup.cfg pyproject.toml
	python=$${PYTHON:-$$(sh conf/python.sh)} && "$$python" -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/pip check
	$(BIN)/tiered-stream warm --pyspark
	@touch $@

java: ## Look for Java 17 or newer; install Debian's where that is allowed
	@sh conf/stack/java.sh

stack: venv java ## Start a Kafka broker that tiers, and an S3 endpoint over its tier; print how to use them; until Ctrl-C
	@$(BIN)/python -m tests.stack

demo: venv java ## Tier a topic, read it straight from the object store, and land it in a Delta table
	@$(BIN)/python -m tests.demo

test: venv java ## Run the tests, those that start the broker, the S3 endpoint and Spark included
	$(PYTEST) $(TWO_AT_ONCE)

test-unit: venv ## Run the tests that start no service and need no network
	$(PYTEST) -m "not stack and not slow"

lint: venv ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-slow: venv java ## Run the tests that `make test` leaves out because they take long
	$(PYTEST) $(TWO_AT_ONCE) -m slow

soak: venv java ## Kill a landing query at random, 30 times, and count every record in the end
	@$(BIN)/python -m tests.delta.soak

race: venv java ## Let a table's writers race in S3, the driver killed in the midst, and count every record in the end
	@$(BIN)/python -m tests.delta.race --bare --kills 1

bench: venv java ## Measure throughput against Spark's own kafka source
	@$(BIN)/python -m tests.bench

clean: ## Remove what the other targets made in this folder (downloaded jars stay in the user's cache)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	rm -rf tiered_stream/records/kernel_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

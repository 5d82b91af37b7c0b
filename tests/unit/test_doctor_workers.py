"""What doctor says about the Python of Spark's workers; each test breaks one thing."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest

import spark_kafka_sink
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.spark import private_api
from spark_kafka_sink.tools.doctor import workers
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Outcome


class FakeSpark:
    """A session with only a configuration."""

    def __init__(self, **settings):
        self.settings = settings
        self.conf = self

    def get(self, name, default=None):
        return self.settings.get(name, default)


@pytest.fixture
def context():
    return CheckContext({}, write_test_record=False, spark=None, deadline=Deadline(60))


@pytest.fixture
def choose(tmp_path, monkeypatch):
    """Make the shell script ``text`` the workers' Python; returns its path."""
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(private_api, "has_data_sources", lambda: True)

    def choose(text, variable="PYSPARK_PYTHON", name="chosen"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        monkeypatch.setenv(variable, str(program))
        return str(program)

    return choose


NEEDED = ("spark_kafka_sink", "pyspark_kafka_nb", "confluent_kafka", "numpy", "pyarrow")
NO_LIMITS = {"memory_mib": None, "has_small_pools": False, "threads": None}


def answering(tmp_path, python=sys.version_info[:2], limits=NO_LIMITS, **packages):
    """A script that answers like a Python of that version with those packages."""
    mine = dict.fromkeys(NEEDED, "") | {"spark_kafka_sink": spark_kafka_sink.__version__}
    versions = {name: version for name, version in (mine | packages).items() if version is not None}
    answer = {"host": "h", "path": "/p", "python": python, "packages": versions}
    (tmp_path / "answer.json").write_text(json.dumps(answer | NO_LIMITS | limits))
    return f"cat '{tmp_path / 'answer.json'}'"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"python3": ""}),
        ({"PYSPARK_PYTHON": "a"}, {"a": "PYSPARK_PYTHON"}),
        ({"PYSPARK_PYTHON": ""}, {"python3": ""}),
        (
            {"PYSPARK_PYTHON": "a", "PYSPARK_DRIVER_PYTHON": "b"},
            {"b": "PYSPARK_DRIVER_PYTHON", "a": "PYSPARK_PYTHON"},
        ),
    ],
)
def test_the_pythons_are_those_that_spark_starts(environment, expected):
    pythons = workers.workers_pythons(environment, None)
    assert {python.command: python.source for python in pythons} == expected


def test_a_sessions_own_setting_counts_too():
    spark = FakeSpark(**{"spark.pyspark.python": "c"})
    pythons = workers.workers_pythons({"PYSPARK_PYTHON": "a"}, spark)
    assert [python.command for python in pythons] == ["a", "c"]


def test_this_python_passes(context, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (python,) = workers.spark_python(context)
    assert python.outcome is Outcome.PASSED
    assert python.message == f"{sys.executable} (PYSPARK_PYTHON)"
    packages = workers.spark_packages(context)[0]
    assert packages.outcome is Outcome.PASSED
    assert "spark_kafka_sink 0." in packages.message
    assert f"pyspark {pyspark.__version__}" in packages.message


def test_a_spark_without_formats_passes_and_says_what_to_use(context, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(private_api, "has_data_sources", lambda: False)
    *_, finding = workers.spark_packages(context)
    assert finding.outcome is Outcome.PASSED
    assert "use foreach_batch" in finding.message


def test_a_spark_without_formats_needs_pandas(context, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(private_api, "has_data_sources", lambda: False)
    monkeypatch.setattr(
        workers, "find_spec", lambda name: None if name == "pandas" else find_spec(name)
    )
    *_, finding = workers.spark_packages(context)
    assert finding.outcome is Outcome.FAILED
    assert "pandas" in finding.advice


def test_a_pyspark_without_metadata_counts_too(context, choose, tmp_path, monkeypatch):
    """As in an unpacked Spark, whose driver imports it from pyspark.zip."""
    choose(answering(tmp_path, pyspark="4.0.9"))
    monkeypatch.setattr(Distribution, "discover", lambda **_: iter(()))
    with pytest.raises(PackageNotFoundError):
        version("pyspark")
    (python,) = workers.spark_python(context)
    assert python.outcome is Outcome.PASSED
    (packages,) = workers.spark_packages(context)
    assert re.search(PYSPARK, packages.message)


def test_without_the_variable_it_says_so(context, choose, monkeypatch, tmp_path):
    choose("", "IRRELEVANT", "python3")
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = workers.spark_python(context)
    assert finding.subject == "python3"
    assert finding.message == f"{tmp_path / 'python3'}: PYSPARK_PYTHON is not set"


def test_a_command_that_does_not_exist_fails(context, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")
    (finding,) = workers.spark_python(context)
    assert finding.outcome is Outcome.FAILED
    assert "PYSPARK_PYTHON names no program on PATH" in finding.message
    assert "export PYSPARK_PYTHON=" in finding.advice


def test_a_python_without_the_packages_fails(context, choose):
    command = choose(f'exec "{sys.executable}" -I -S "$@"')  # without site-packages
    (finding,) = workers.spark_packages(context)
    assert finding.outcome is Outcome.FAILED
    assert finding.subject == command
    assert "spark_kafka_sink, pyspark_kafka_nb, confluent_kafka" in finding.message
    assert "DATA_SOURCE_NOT_FOUND" in finding.message
    launcher = Path(sys.executable).with_name("kafka-nb-python")
    assert f"export PYSPARK_PYTHON={launcher}" in finding.advice


@pytest.mark.parametrize(("is_remote", "outcome"), [(False, "SKIPPED"), (True, "FAILED")])
def test_only_a_python_that_sends_needs_the_packages(
    context, choose, monkeypatch, is_remote, outcome
):
    choose("exit 3")
    context.parsed = parse({"kafka.bootstrap.servers": "host:9092", "send.from": "driver"})
    monkeypatch.setattr(private_api, "is_remote", lambda: is_remote)
    (finding,) = workers.spark_packages(context)
    assert finding.outcome is Outcome[outcome]


def test_a_setting_that_precedes_the_variable_has_to_go(context, choose, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    command = choose("exit 3", "PYSPARK_DRIVER_PYTHON")
    finding, _ = workers.spark_packages(context)
    assert ": unset PYSPARK_DRIVER_PYTHON, and export PYSPARK_PYTHON=" in finding.advice

    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    context.spark = FakeSpark(**{"spark.pyspark.python": command})
    _, finding = workers.spark_packages(context)
    assert ": remove spark.pyspark.python, and export PYSPARK_PYTHON=" in finding.advice

    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "no-such-python")
    finding, *_ = workers.spark_python(context)
    assert ": unset PYSPARK_DRIVER_PYTHON, and export PYSPARK_PYTHON=" in finding.advice


PYSPARK = rf"pyspark 4\.0\.9 \(driver: {re.escape(pyspark.__version__)}\)"
SMALLEST = {"memory_mib": 600, "has_small_pools": True, "threads": 256}


@pytest.mark.parametrize(
    ("answer", "outcome", "message", "advice"),
    [
        ({}, "passed", "", ""),  # without pyspark, which Spark brings
        ({"pyspark": ""}, "passed", r"^spark_kafka_sink 0\.\S+, pyspark$", ""),  # Spark's own
        ({"pyarrow": None}, "failed", "^pyarrow not installed in ", ""),
        ({"python": (3, 1)}, "failed",
         r"^is Python 3\.1, but the driver is Python 3\..*PYTHON_VERSION_MISMATCH", ""),
        ({"spark_kafka_sink": "0.0.1", "pyspark": "4.0.9"}, "warned",
         rf"has spark_kafka_sink 0\.0\.1 \(driver: 0\..*{PYSPARK}", "Install the same versions"),
        ({"limits": SMALLEST}, "passed", "", ""),
        ({"limits": SMALLEST | {"memory_mib": 599}}, "warned", "599 MiB",
         r"spark\.executor\.pyspark\.memory"),
        ({"limits": {"memory_mib": 2047}}, "warned", "2047 MiB", "kafka-nb-python needs 600 MiB"),
        ({"limits": {"threads": 100}}, "warned", "may start 100 processes and threads",
         r"ulimit -u .* pids\.max to 256"),
    ],
)  # fmt: skip
def test_a_python_needs_the_drivers_packages_and_enough_room(
    context, choose, tmp_path, answer, outcome, message, advice
):
    choose(answering(tmp_path, **answer))
    (finding,) = workers.spark_packages(context)
    assert finding.outcome.value == outcome
    assert re.search(message, finding.message)
    assert re.search(advice, finding.advice)


@pytest.mark.parametrize(
    ("limit", "message"),
    [("-v 1572864", "may reserve 1536 MiB"), ("-u 77", "may start 77 processes and threads")],
)
def test_the_limits_of_a_python_are_what_its_shell_sets(context, choose, limit, message):
    choose(f'exec bash -c \'ulimit {limit}; exec "{sys.executable}" "$@"\' bash "$@"')
    (finding,) = workers.spark_packages(context)
    assert finding.message.startswith(message)


def test_a_python_that_does_not_answer_fails_in_time(context, choose):
    choose("exec sleep 60")
    context.deadline = Deadline(0.5)
    (finding,) = workers.spark_packages(context)
    assert finding.outcome is Outcome.FAILED
    assert finding.message == "no answer in time"
    assert "Raise --timeout" in finding.advice


@pytest.mark.parametrize("script", ["exit 3", "echo hello"])
def test_what_is_no_python_fails(context, choose, script):
    choose(script)
    (finding,) = workers.spark_packages(context)
    assert finding.outcome is Outcome.FAILED
    assert finding.message.startswith("does not run as Python")


def test_a_package_in_the_current_folder_does_not_count(context, choose, tmp_path, monkeypatch):
    for name in NEEDED:
        (tmp_path / f"{name}.py").touch()
    monkeypatch.chdir(tmp_path)
    choose(f'exec "{sys.executable}" -S "$@"')
    (finding,) = workers.spark_packages(context)
    assert finding.outcome is Outcome.FAILED

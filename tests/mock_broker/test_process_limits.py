"""A process that may have no more memory or threads ends with an error that names the limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from another_python import run_python

from spark_kafka_sink import process_limits
from spark_kafka_sink.clients.session import explained
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.errors import LimitReached
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import BrokerError
from spark_kafka_sink.process_limits import explaining_memory_errors

WRITES = Path(__file__).parents[1] / "support" / "limited_writes.py"


def written(cluster, producers: int, *limit: str) -> str:
    done = run_python(WRITES, cluster.bootstrap_servers, str(producers), *limit, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_several_producers_need_little_address_space(cluster):
    assert written(cluster, 4, "memory", "300") == "1000 1000 1000 1000"


@pytest.mark.parametrize("mib", [0, 40, 80])
def test_a_task_without_memory_names_the_limit_and_does_not_abort(cluster, mib):
    outcome = written(cluster, 4, "memory", str(mib))
    assert outcome.startswith("LimitReached: this Python process may reserve no more memory")
    assert "MiB are reserved. Raise or remove the limit: " in outcome
    assert "spark.executor.pyspark.memory" in outcome


@pytest.mark.parametrize("producers", [0, 1], ids=["python", "librdkafka"])
def test_a_thread_that_does_not_start_names_the_limit(cluster, producers):
    outcome = written(cluster, producers, "threads")
    assert outcome.startswith("LimitReached: this Python process may start no more threads")
    assert "1 for its user (ulimit -u)" in outcome


def test_a_brokers_thread_that_does_not_start_names_the_limit():
    error = BrokerError(ErrorCode.CRIT_SYS_RESOURCE, "Unable to create broker thread")
    text = explained(error, ClientSettings(()))
    assert "no more threads (Unable to create broker thread). Raise the limit" in text


def test_the_limit_of_a_container_is_named(tmp_path, monkeypatch):
    (tmp_path / "none").write_text("max\n")
    (tmp_path / "some").write_text("100\n")
    paths = [tmp_path / name for name in ("missing", "none", "some")]
    monkeypatch.setattr(process_limits, "_PIDS_MAX", paths)
    text = str(process_limits.thread_limit_reached("no thread"))
    assert text.count("pids.max") == 1
    assert "100 for its container (pids.max)" in text


def test_memory_that_no_limit_forbids_is_pythons_error(monkeypatch):
    with pytest.raises(MemoryError), explaining_memory_errors():
        raise MemoryError
    with pytest.raises(ImportError), explaining_memory_errors():
        raise ImportError("x.so: failed to map segment from shared object")
    monkeypatch.setattr(process_limits, "free_address_space", lambda: 0)
    monkeypatch.setattr(process_limits.resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
    expected = r"\(MemoryError\): \d+ of 1024 MiB"
    with pytest.raises(LimitReached, match=expected), explaining_memory_errors():
        raise MemoryError

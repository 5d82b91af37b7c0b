"""How a job follows its query, as far as it needs no Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from job_output import Said
from pyspark.errors import PySparkException, StreamingQueryException

from spark_kafka_sink.tools.job.reports import Reports
from spark_kafka_sink.tools.job.restart import Failure
from spark_kafka_sink.tools.job.run import Progress, follow
from spark_kafka_sink.tools.job.stop import Stop


class FakeQuery:
    """Runs until it is stopped, if it lets itself be stopped."""

    recentProgress = ()  # noqa: N815 - Spark's name
    lastProgress = None  # noqa: N815 - Spark's name
    status = {"message": "Processing new data", "isTriggerActive": True}  # noqa: RUF012

    def __init__(self, error_of_stop: Exception | None = None) -> None:
        self.isActive = True
        self._error_of_stop = error_of_stop

    def stop(self) -> None:
        if self._error_of_stop is not None:
            raise self._error_of_stop
        self.isActive = False

    def exception(self):
        return None

    def awaitTermination(self, timeout):  # noqa: N802 - Spark's name
        raise StreamingQueryException("what exception() returns")


@pytest.fixture
def stopped_at_once():
    """A stop that a second signal has made urgent."""
    times = iter([0.0, 1.0])
    stop = Stop(60, lambda: next(times))
    stop.begin()
    stop.request()
    stop.request()
    return stop


def test_a_query_that_ends_in_time_ends_the_job_with_success(stopped_at_once):
    said = Said()
    query = FakeQuery()
    assert follow(query, stopped_at_once, Progress(query, Reports(), said), said) is None


def test_a_failure_has_the_sinks_own_error_and_its_name(stopped_at_once):
    said = Said()
    query = FakeQuery()
    query.isActive = False
    text = "[STREAM_FAILED] x\n  spark_kafka_sink.errors.DeliveryFailed: 2 records\n  at y"
    query.exception = lambda: PySparkException(text)
    failure = follow(query, stopped_at_once, Progress(query, Reports(), said), said)
    expected = Failure("the query failed: DeliveryFailed: 2 records", "DeliveryFailed")
    assert failure == expected
    query.recentProgress = [progress(0), progress(1)]
    query.lastProgress = query.recentProgress[-1]
    failure = follow(query, stopped_at_once, Progress(query, Reports(), said), said)
    assert failure == replace(expected, has_progressed=True)
    assert [micro_batch.batch_id for micro_batch in said.micro_batches] == [0, 1]


def progress(batch_id):
    return {
        "batchId": batch_id,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "durationMs": {"triggerExecution": 1, "addBatch": 1},
        "numInputRows": 1,
    }


def test_a_query_that_does_not_stop_in_time_ends_the_job_with_failure(stopped_at_once):
    said = Said()
    query = FakeQuery(PySparkException("the stream thread is still alive"))
    failure = follow(query, stopped_at_once, Progress(query, Reports(), said), said)
    assert failure.text == "Spark did not stop the query in time: the stream thread is still alive"

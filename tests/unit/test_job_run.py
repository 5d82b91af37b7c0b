"""How a job follows its query, as far as it needs no Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from spark_kafka_sink.job.reports import Reports
from spark_kafka_sink.job.run import DONE, FAILED, Progress, follow
from spark_kafka_sink.job.stop import Stop


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


class Said:
    """An output that keeps what it was told."""

    def __init__(self) -> None:
        self.micro_batches = []
        self.messages = []

    def ended(self, micro_batch):
        self.micro_batches.append(micro_batch)

    def waits_for(self, what):
        pass

    def say(self, message):
        self.messages.append(message)

    def sum_up(self, summary):
        raise AssertionError


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
    assert follow(query, stopped_at_once, Progress(query, Reports(), said), said) == DONE


def test_a_query_that_does_not_stop_in_time_ends_the_job_with_failure(stopped_at_once):
    said = Said()
    query = FakeQuery(PySparkException("the stream thread is still alive"))
    assert follow(query, stopped_at_once, Progress(query, Reports(), said), said) == FAILED
    assert said.messages[-1] == (
        "Spark did not stop the query in time: the stream thread is still alive"
    )

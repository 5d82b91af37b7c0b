"""What one of several queries needs before any of them starts, and what its failure means."""

from __future__ import annotations

import pytest
from job_output import Said

from spark_kafka_sink.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    InvalidConfiguration,
)
from spark_kafka_sink.tools.job import query_run
from spark_kafka_sink.tools.job.configuration import check
from spark_kafka_sink.tools.job.document import Document
from spark_kafka_sink.tools.job.query_run import QueryRun
from spark_kafka_sink.tools.job.reports import Reports
from spark_kafka_sink.tools.job.stop import Stop

FILE = """\
name: shop
source: {format: rate}
sinks:
  orders:
    options: {kafka.bootstrap.servers: "127.0.0.1:1", topic: t, preflight: false}
    checkpoint: /data/orders
"""
RESTART = "restart: {initial_backoff_seconds: 0.001, max_backoff_seconds: 0.001}\n"


class Run(QueryRun):
    """Needs no Spark: keeps what it would write."""

    def write(self, rows):
        self.written = rows


@pytest.fixture
def prepared(monkeypatch):
    """A query whose source gives one of the outcomes after the other."""

    def prepared(*outcomes, text=FILE, is_required):
        left = list(outcomes)

        def build(spark, configuration):
            outcome = left.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(query_run, "build", build)
        configuration = check(Document(text, "job.yaml"), {}).of_sink("orders")
        stop = Stop(60)
        run = Run(None, configuration, stop, Said(), Reports())
        run.prepare(is_required=is_required)
        stop.begin()
        return run

    return prepared


@pytest.mark.parametrize("is_required", [True, False])
def test_the_rows_that_were_prepared_are_those_of_the_first_attempt(prepared, is_required):
    run = prepared("rows", is_required=is_required)
    assert run.run() is None
    assert run.written == "rows"


@pytest.mark.parametrize("is_required", [True, False])
def test_a_mistake_in_the_file_is_one_for_all_queries(prepared, is_required):
    with pytest.raises(InvalidConfiguration):
        prepared(InvalidConfiguration("sql"), text=FILE + RESTART, is_required=is_required)


@pytest.mark.parametrize(
    ("error", "text"), [(BrokerUnavailable, FILE), (AuthenticationFailed, FILE + RESTART)]
)
def test_a_failure_for_good_is_raised_if_it_would_stop_all(prepared, error, text):
    with pytest.raises(error):
        prepared(error("x"), text=text, is_required=True)
    run = prepared(error("x"), text=text, is_required=False)
    with pytest.raises(error):
        run.run()


@pytest.mark.parametrize("is_required", [True, False])
def test_what_may_be_there_later_is_tried_again(prepared, is_required):
    away = BrokerUnavailable("nobody answers")
    run = prepared(away, "rows", text=FILE + RESTART, is_required=is_required)
    assert run.run() is None
    assert run.written == "rows"
    assert run.output.messages == [
        "the query cannot start: BrokerUnavailable: nobody answers",
        "restarting the query in 0.0 s, 1 of 10",
    ]

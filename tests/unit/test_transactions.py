"""What transactions decide and say without brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.config.producer_options import FROM_DRIVER
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded, InvalidOption, TransactionFailed
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.records.rejection import Origin
from spark_kafka_sink.spark.foreach_batch import _add_prefix, _query_id
from spark_kafka_sink.transactions.ledger import CommitEntry, Task, prefix_of
from spark_kafka_sink.transactions.offset_calls import BrokerWait
from spark_kafka_sink.transactions.partition import PartitionTransaction, exactly_once

OPTIONS = parse(
    {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "delivery.guarantee": "exactly-once",
        "exactly.once.partitions": "2",
    }
)
SETTINGS = OPTIONS.exactly_once


@pytest.fixture
def wait(clock) -> BrokerWait:
    return BrokerWait(Deadline(5.0, clock), "close.timeout.ms, 5 s", "micro-batch 1: committing")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Read on consumer groups"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Read on the topic of the ledger"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Write and Describe on transactional"),
    ],
)
def test_a_missing_right_ends_a_wait_at_once_and_says_what_to_grant(wait, code, advice):
    assert wait.is_over(code)
    error = wait.error(code)
    assert isinstance(error, TransactionFailed)
    assert error.code == code.name
    assert str(error).startswith("micro-batch 1: committing: ")
    assert advice in str(error)


def test_what_passes_is_waited_for_until_the_deadline(wait, clock):
    assert not wait.is_over(ErrorCode.REQUEST_TIMED_OUT)
    clock.now += 5.0
    assert wait.is_over(ErrorCode.REQUEST_TIMED_OUT)
    error = wait.error(ErrorCode.TIMED_OUT)
    assert isinstance(error, DeadlineExceeded)
    assert "(_TIMED_OUT), until the time-out (close.timeout.ms, 5 s)" in str(error)


def test_the_prefix_is_the_option_or_made_from_the_query():
    assert prefix_of(SETTINGS, "a-query") == "kafka-nb-a-query"
    assert prefix_of(replace(SETTINGS, prefix="orders"), "a-query") == "orders"
    assert prefix_of(replace(SETTINGS, prefix="orders"), None) == "orders"
    with pytest.raises(InvalidOption, match=r"needs transactional\.id\.prefix here"):
        prefix_of(SETTINGS, None)


def test_foreach_batch_under_spark_connect_needs_the_prefix():
    connect = object()  # its sessions have no Java session
    with pytest.raises(InvalidOption, match=r"needs transactional\.id\.prefix here"):
        _add_prefix(OPTIONS, _query_id(connect), is_batch=False)
    named = replace(OPTIONS, exactly_once=replace(SETTINGS, prefix="orders"))
    assert _add_prefix(named, _query_id(connect), is_batch=False) == named
    plain = replace(OPTIONS, exactly_once=None)
    assert _add_prefix(plain, _query_id(connect), is_batch=False) is plain


@pytest.mark.parametrize("origin", [Origin("a-query", None, 0), Origin("a-query", "1", None)])
def test_a_task_without_a_micro_batch_is_rejected(origin):
    with (
        pytest.raises(InvalidOption, match="passes no id of a micro-batch"),
        exactly_once(OPTIONS, SETTINGS, origin),
    ):
        pass


@pytest.mark.parametrize(
    ("is_batch", "is_committed", "needs_rows"),
    [(False, False, True), (False, True, True), (True, False, True), (True, True, False)],
)
def test_rows_are_read_unless_a_batch_was_committed(is_batch, is_committed, needs_rows):
    """A stream's state, and its watermark, are those of the rows that Spark has computed."""
    committed = CommitEntry(5, FROM_DRIVER, 3, "f") if is_committed else None
    task = Task(5, 0, FROM_DRIVER, is_batch=is_batch)
    sender = PartitionTransaction(None, "orders", "t", task, committed)
    assert sender.needs_rows is needs_rows

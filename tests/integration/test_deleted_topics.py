"""Exactly-once: the topic, or that of the ledger, is deleted while a transaction is open."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaException
from exactly_once_sink import SECONDS, Process

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LedgerLost

pytestmark = pytest.mark.slow


def create_again(topics, name):
    """Brokers reject the name until they have deleted the former topic."""
    deadline = Deadline(SECONDS)
    while True:
        try:
            topics.create(2, name=name)
        except KafkaException as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error) or deadline.expired:
                raise
            time.sleep(0.1)
        else:
            return


def delete(sink, topic, is_created_again):
    sink.topics.delete(topic)
    if is_created_again:
        create_again(sink.topics, topic)
    # With the topic, brokers delete the offsets that belong to it: the ledger.
    sink.wait_until_forgotten("0", "1", "driver")


def outcome(point, is_created_again):
    """How the task ends whose transaction is open meanwhile."""
    if point == "initialized":  # before it has read the ledger
        return "LedgerLost"
    if point == "flushed" and not is_created_again:  # its entry belongs to no topic
        return "DeadlineExceeded"
    return "written"


def stopped_task(sink, point, is_created_again):
    """A task of micro-batch 1 that is stopped at the point."""
    # Its time passes also while it is stopped.
    is_late = outcome(point, is_created_again) == "DeadlineExceeded"
    options = {"close_timeout_ms": "3000"} if is_late else {}
    return Process(sink, 1, 0, ["1-a", "1-b"], point, **options)


def check_that_tasks_notice(sink, *partitions):
    for partition in partitions:
        with pytest.raises(LedgerLost, match=r"exactly\.once\.first\.batch=1"):
            sink.write(1, partition, ["1-c"])


@pytest.mark.parametrize(
    ("point", "is_created_again"), [("initialized", True), ("flushed", False), ("committing", True)]
)
def test_the_topic_of_the_ledger(sink, point, is_created_again):
    """Nothing is lost, and nothing is sent until the user has answered."""
    ledger = sink.topics.create(1)
    sink.options["exactly.once.ledger.topic"] = ledger
    expected = sink.write_batch(0)
    task = stopped_task(sink, point, is_created_again)
    delete(sink, ledger, is_created_again)
    said = task.go_on()
    assert said.startswith(outcome(point, is_created_again))
    if said == "written":
        expected += ["1-a", "1-b"]
    if not is_created_again:
        create_again(sink.topics, ledger)
    check_that_tasks_notice(sink, 1)
    assert sink.committed() == sorted(expected)


@pytest.mark.parametrize(
    ("point", "is_created_again"),
    [("initialized", False), ("flushed", True), ("committing", False)],
)
def test_the_topic(sink, point, is_created_again):
    """Its records are gone, those of an open transaction too; the next task notices."""
    sink.write_batch(0)
    task = stopped_task(sink, point, is_created_again)
    delete(sink, sink.topic, is_created_again)
    assert task.go_on().startswith(outcome(point, is_created_again))
    if not is_created_again:
        create_again(sink.topics, sink.topic)
    check_that_tasks_notice(sink, 1)
    assert sink.committed() == []
    sink.options["exactly.once.first.batch"] = "1"
    expected = sink.write_batch(1) + sink.write_batch(2)
    if point == "flushed" and is_created_again:  # its entry was committed without its records
        expected = [value for value in expected if value not in ("1-a", "1-b")]
    assert sink.committed() == sorted(expected)

"""A transaction of which brokers reject a part."""

from __future__ import annotations

from contextlib import closing

import pytest
from mock_cluster import INIT_PRODUCER_ID, PRODUCE
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption, TransactionFailed
from spark_kafka_sink.librdkafka import transaction_calls as calls
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.transaction_calls import transaction_failure
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.rejection import Origin
from spark_kafka_sink.transactions import partition
from spark_kafka_sink.transactions.offset_calls import CLIENTS_AT_ONCE, BrokerWait
from spark_kafka_sink.transactions.transaction import Transaction, TransactionState, fence


@pytest.fixture
def wait():
    return BrokerWait(Deadline(20.0), "kafka.max.block.ms, 20 s", "a task")


def test_a_transaction_fails_if_brokers_reject_one_of_its_requests(options, records, cluster, wait):
    """As a new leader may do. Outside a transaction, librdkafka acknowledges all of them."""
    settings = options(kafka_enable_idempotence="true", kafka_batch_num_messages="1")
    transaction = Transaction(settings.producer, "an-id", 60_000)
    try:
        transaction.initialize(["t"], wait)
        transaction.begin()
        cluster.set_round_trip(1, 100)  # so that the three are in flight together
        cluster.push_errors(PRODUCE, [ErrorCode.NOT_LEADER_FOR_PARTITION])
        transaction.send(records(["a", "b", "c"]))
        with pytest.raises(TransactionFailed) as raised:
            transaction.flush(10)
    finally:
        transaction.close()
    assert raised.value.code == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert transaction.state is TransactionState.ENDED
    assert transaction.producer.collect_report().total_failed == 3


@pytest.fixture
def transaction(options, cluster, wait):
    """An open transaction with the topic ``dead`` for dead letters; closed at the end."""
    sink_options = options(
        kafka_enable_idempotence="true", on_record_error="dead-letter", dead_letter_topic="dead"
    )
    cluster.create_topic("dead")
    with closing(Transaction(sink_options.producer, "an-id", 60_000)) as transaction:
        transaction.initialize(["t", "dead"], wait)
        transaction.begin()
        yield transaction


def test_a_transactions_events_are_read_while_its_task_waits_for_rows(
    transaction, options, monkeypatch
):
    """librdkafka keeps them without any bound, and may need a token."""
    monkeypatch.setattr(partition, "_begin", lambda *_: (transaction, None))
    read = []
    monkeypatch.setattr(NonBlockingProducer, "read_events", lambda *one: read.extend(one))
    once = options(
        kafka_enable_idempotence="true",
        delivery_guarantee="exactly-once",
        exactly_once_partitions="1",
    )
    with partition.exactly_once(once, once.exactly_once, Origin("a-query", "0", 0)):
        wait_until(lambda: transaction.producer in read)


@pytest.mark.parametrize("topic", ["t", "dead"])
def test_a_record_that_only_brokers_reject_ends_a_transaction(transaction, records, cluster, topic):
    """Of the topic for dead letters, the advice for the record itself is enough."""
    cluster.push_errors(PRODUCE, [ErrorCode.INVALID_RECORD])
    transaction.send(records(["a", "b"], topic=topic))
    with pytest.raises(
        TransactionFailed, match="Give each record of a compacted topic a key"
    ) as raised:
        transaction.flush(10)
    transaction.close()
    assert raised.value.code == "INVALID_RECORD"
    has_advice = "with DescribeConfigs on the topic, the sink knows" in str(raised.value)
    assert has_advice == (topic == "t")
    assert not transaction.producer.collect_report().dead_letters


def test_a_thread_that_was_woken_up_still_aborts_its_transaction(
    transaction, records, cluster, monkeypatch
):
    """Also if it noticed that elsewhere, as while it waited for rows."""
    outcomes, abort = [], calls.abort_transaction

    def watched(client, seconds):
        outcomes.append(abort(client, seconds))
        return outcomes[-1]

    monkeypatch.setattr(calls, "abort_transaction", watched)
    transaction.send(records(["a"]))
    transaction.flush(20)
    cluster.set_round_trip(1, 400)  # more than one call waits
    transaction.producer.wakeup()
    transaction.close()
    assert len(outcomes) > 1
    assert outcomes[-1] is None


def has_failed(transaction: Transaction) -> bool:
    """Frees the client after each look: the records may still wait for the topic's metadata."""
    with transaction.producer.exclusive_client() as client:
        return transaction_failure(client) is not None


@pytest.mark.parametrize("topic", ["t", "dead"])
def test_the_advice_is_about_the_record_that_was_rejected_even_if_another_one_fails_first(
    transaction, records, cluster, wait, topic
):
    """The client accepts no record after that, before the sink has read why."""
    cluster.push_errors(PRODUCE, [ErrorCode.INVALID_RECORD])
    transaction.send(records(["a", "b"], topic=topic))
    while not has_failed(transaction):
        wait.pause()
        assert not wait.deadline.expired
    with pytest.raises(TransactionFailed, match=r"INVALID_RECORD") as raised:
        transaction.send(records(["c"], topic="dead" if topic == "t" else "t"))
    assert raised.value.code == "INVALID_RECORD"
    assert ("instead of sending a dead letter" in str(raised.value)) == (topic == "t")


def test_many_transactional_ids_are_taken_over_at_the_same_time(options, cluster):
    """One after another, they would need some 16 s."""
    cluster.set_round_trip(1, 250)
    wait = BrokerWait(Deadline(8.0), "kafka.max.block.ms, 8 s", "a task")
    ids = [f"an-id.{partition}" for partition in range(CLIENTS_AT_ONCE)]
    fence(options(kafka_enable_idempotence="true").producer, ids, 60_000, ["t"], wait)


def test_an_id_that_cannot_be_taken_over_is_an_error(options, cluster):
    cluster.push_errors(INIT_PRODUCER_ID, [ErrorCode.INVALID_TRANSACTION_TIMEOUT] * 3)
    wait = BrokerWait(Deadline(20.0), "kafka.max.block.ms, 20 s", "a task")
    with pytest.raises(InvalidOption, match=r"more than the brokers allow"):
        fence(
            options(kafka_enable_idempotence="true").producer, ["a", "b", "c"], 60_000, ["t"], wait
        )

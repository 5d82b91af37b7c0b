"""A transaction of which brokers reject a part."""

from __future__ import annotations

import pytest
from mock_cluster import PRODUCE

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import TransactionFailed
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.transactions.offset_calls import BrokerWait
from spark_kafka_sink.transactions.transaction import Transaction, TransactionState


@pytest.fixture
def wait():
    return BrokerWait(Deadline(20.0), "kafka.max.block.ms, 20 s", "a task")


def test_a_transaction_fails_if_brokers_reject_a_request_and_accept_those_behind_it(
    options, records, cluster, wait
):
    """As a new leader may do. Outside a transaction, librdkafka acknowledges all of them."""
    given = options(kafka_enable_idempotence="true", kafka_batch_size="1")
    transaction = Transaction(given.producer, "an-id", 60_000)
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

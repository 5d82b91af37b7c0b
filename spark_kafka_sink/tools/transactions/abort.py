"""Aborts a transaction as the next attempt of its task would: by fencing its id."""

from __future__ import annotations

from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.tools.transactions.state import TransactionalId
from spark_kafka_sink.transactions.offset_calls import BrokerWait
from spark_kafka_sink.transactions.transaction import fence


def abort(options: ProducerOptions, transaction: TransactionalId, wait: BrokerWait) -> None:
    """Fence the producer, and wait until the brokers have aborted its transaction.

    A transaction whose commit has begun is committed. Raises what
    ``transactions.transaction.fence`` raises.
    """
    topics = [each.topic for each in transaction.partitions if not each.is_internal]
    fence(options, [transaction.name], transaction.timeout_ms, topics[:1], wait)

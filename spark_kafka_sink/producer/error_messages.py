"""What the producer raises, in words: what happened, why, and what to look at."""

from __future__ import annotations

from spark_kafka_sink.config.producer_options import BlockBudget
from spark_kafka_sink.errors import (
    BufferExhausted,
    DeadlineExceeded,
    DeliveryFailed,
    MetadataTimeout,
    TopicUnavailable,
)
from spark_kafka_sink.librdkafka.error_texts import error_name, error_text
from spark_kafka_sink.producer.delivery import Delivery
from spark_kafka_sink.producer.topic_metadata import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)

BROKER_LOST = -195  # a connection broke

# Rows that failed with one of these went by metadata that is out of date: a topic, partition or
# leader that is not there (any more), by the brokers' word or the client's own.
METADATA_CHANGED = frozenset({UNKNOWN_TOPIC_OR_PARTITION, 5, 6, 9, 56, 74, 100, -188, -190})


def topic_unavailable(topic: str, code: int, budget: BlockBudget) -> TopicUnavailable:
    advice = {
        TOPIC_AUTHORIZATION_FAILED: "grant this user the right to write to it",
        UNKNOWN_TOPIC_OR_PARTITION: "create it; the brokers did not do so by themselves within "
        f"{budget.metadata_seconds:g} s ({budget.metadata_option})",
    }.get(code, "choose a name that the brokers allow")
    return TopicUnavailable(
        f"topic {topic}: {error_text(code)} ({error_name(code)}); {advice}",
        topic=topic,
        code=error_name(code),
    )


def metadata_timeout(topic: str, budget: BlockBudget, trouble: str) -> MetadataTimeout:
    return MetadataTimeout(
        f"no metadata for topic {topic} within {budget.metadata_seconds:g} s "
        f"({budget.metadata_option}){trouble}. See whether the brokers are reachable; "
        "kafka.max.block.ms.include.metadata=false gives metadata a time of its own, "
        "kafka.max.block.metadata.ms",
        topic=topic,
    )


def buffer_exhausted(delivery: Delivery, budget: BlockBudget, trouble: str) -> BufferExhausted:
    return BufferExhausted(
        f"the send buffer stayed full for {budget.buffer_seconds:g} s (kafka.max.block.ms) while "
        f"sending to {delivery.topic}{trouble}. See whether the brokers keep up; "
        "kafka.buffer.memory and kafka.max.block.ms give them more time",
        accepted_rows=delivery.rows,
    )


def deadline_exceeded(timeout_seconds: float, trouble: str) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the brokers had not acknowledged all rows within {timeout_seconds:g} s "
        f"(close.timeout.ms){trouble}. See whether they are reachable and keep up; "
        "close.timeout.ms gives them more time"
    )


def delivery_failed(delivery: Delivery, trouble: str) -> DeliveryFailed:
    """For the first row of the delivery that failed."""
    partition, code = next(iter(delivery.failed_rows))
    where = f"topic {delivery.topic}" + (f" partition {partition}" if partition >= 0 else "")
    return DeliveryFailed(
        f"{where}: {error_text(code)} ({error_name(code)}){trouble}",
        topic=delivery.topic,
        partition=partition,
        code=error_name(code),
    )

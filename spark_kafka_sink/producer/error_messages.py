"""The messages of the producer's errors: what happened, why, and what to do."""

from __future__ import annotations

from spark_kafka_sink.config.producer_options import MAX_REQUEST_SIZE, BlockBudget
from spark_kafka_sink.connection.topic_errors import GRANT_WRITE, topic_unavailable
from spark_kafka_sink.errors import (
    BufferExhausted,
    DeadlineExceeded,
    DeliveryFailed,
    KafkaSinkError,
    MetadataTimeout,
    TopicUnavailable,
)
from spark_kafka_sink.librdkafka.error_codes import NON_RETRIABLE_TOPIC_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.error_texts import error_name, error_text
from spark_kafka_sink.producer.deliveries import Delivery, IncompleteDeliveries
from spark_kafka_sink.producer.metadata_waits import MetadataWaits
from spark_kafka_sink.records.partitioner import UNASSIGNED
from spark_kafka_sink.report.delivery_report import ReportBuilder

_GRANT_IDEMPOTENT_WRITE = (
    "grant this user permission to write to a topic, or with brokers before Kafka 2.8 "
    "IdempotentWrite on the cluster; or set kafka.enable.idempotence=false"
)
_TIMESTAMP = (
    "a timestamp is further from the brokers' time than the topic allows "
    "(message.timestamp.before.max.ms, message.timestamp.after.max.ms): correct the column "
    "timestamp or, without it, the clock of the worker"
)
# Brokers delay their answers to clients that exceed a quota, and say so nowhere else.
_CHECK_BROKERS = (
    "Check that the brokers are reachable, keep up, and do not throttle this client (quotas)"
)


def first_failure(
    deliveries: IncompleteDeliveries,
    waits: MetadataWaits,
    budget: BlockBudget,
    topic: str | None = None,
) -> KafkaSinkError | None:
    """The error for the first failure since the last report, or None.

    With ``topic``, only its metadata counts: each delivery counts its own failed records.
    """
    if topic is None and deliveries.first_failed is not None:
        return delivery_failed(deliveries.first_failed, deliveries.report)
    failure = waits.first_failure(budget.metadata_seconds, topic)
    return None if failure is None else no_metadata(*failure, budget, deliveries.report)


def no_metadata(
    topic: str, code: int, budget: BlockBudget, report: ReportBuilder
) -> TopicUnavailable | MetadataTimeout:
    """For a topic whose records awaited metadata; ``code`` is that of the latest answer."""
    waited = f"{budget.metadata_seconds:g} s ({budget.metadata_option})"
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return _not_created(topic, waited)
    if code in NON_RETRIABLE_TOPIC_ERRORS:
        return topic_unavailable(topic, code)
    return MetadataTimeout(
        f"no metadata for topic {topic} within {waited}{_last_broker_error(report)}. Check that "
        f"the brokers are reachable{_more_time_for_metadata(budget)}",
        topic=topic,
    )


def _not_created(topic: str, waited: str) -> TopicUnavailable:
    return topic_unavailable(
        topic,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"create it, or correct its name; the brokers did not create it within {waited}",
    )


def _more_time_for_metadata(budget: BlockBudget) -> str:
    if not budget.is_shared:
        return f"; raise {budget.metadata_option} if they are only slow"
    return (
        "; kafka.max.block.ms.include.metadata=false gives metadata its own budget, "
        "kafka.max.block.metadata.ms"
    )


def buffer_exhausted(
    delivery: Delivery, budget: BlockBudget, report: ReportBuilder
) -> BufferExhausted:
    return BufferExhausted(
        f"the send buffer stayed full for {budget.buffer_seconds:g} s (kafka.max.block.ms) while "
        f"sending to {delivery.topic}{_last_broker_error(report)}. {_CHECK_BROKERS}; raise "
        "kafka.buffer.memory or kafka.max.block.ms if they are only slow",
        accepted_rows=delivery.accepted,
    )


def deadline_exceeded(
    timeout_seconds: float, report: ReportBuilder, waiting: tuple[str, int] | None
) -> DeadlineExceeded | TopicUnavailable:
    """``waiting``: a topic whose records await metadata, and the code of the latest answer."""
    waited = f"{timeout_seconds:g} s (close.timeout.ms)"
    topic, code = waiting or ("", ErrorCode.NO_ERROR)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return _not_created(topic, waited)
    lacking = f"; topic {topic} has no metadata yet" if topic else ""
    return DeadlineExceeded(
        f"the brokers did not acknowledge all records within {waited}{lacking}"
        f"{_last_broker_error(report)}. {_CHECK_BROKERS}; raise close.timeout.ms if they are only "
        "slow"
    )


def delivery_failed(delivery: Delivery, report: ReportBuilder) -> DeliveryFailed | TopicUnavailable:
    """For the first record of the delivery that failed."""
    partition, code = delivery.first_error
    if partition == UNASSIGNED and code in NON_RETRIABLE_TOPIC_ERRORS:
        # The client's own metadata showed this before our request was answered.
        return topic_unavailable(delivery.topic, code)
    broker_error = _last_broker_error(report)
    if code == ErrorCode.MSG_TIMED_OUT:
        reason = (
            f"{_place(delivery.topic, partition)}: not acknowledged within "
            f"kafka.delivery.timeout.ms ({error_name(code)}){broker_error}. {_CHECK_BROKERS}; "
            "raise that time if they are only slow"
        )
    elif code == ErrorCode.INCONSISTENT:
        reason = (
            f"{_place(delivery.topic, partition)}: the brokers acknowledged records, but not those "
            f"before them, as may happen when a leader changes ({error_name(code)}). Spark's next "
            "attempt of the task sends all of them again"
        )
    else:
        rejected = rejection_reason(delivery.topic, partition, code)
        reason = f"{rejected}{_missing_producer_id(report)}{broker_error}"
    return DeliveryFailed(reason, topic=delivery.topic, partition=partition, code=error_name(code))


def rejection_reason(topic: str, partition: int, code: int) -> str:
    """Why records were rejected; ``partition`` -1: before they had one."""
    text = error_text(code)
    if partition == UNASSIGNED and code == ErrorCode.MSG_SIZE_TOO_LARGE:
        text = text.removeprefix("Broker: ")  # no broker has seen it
    advice = rejection_advice(code, by_client=partition == UNASSIGNED)
    return f"{_place(topic, partition)}: {text} ({error_name(code)}){advice}"


def _place(topic: str, partition: int) -> str:
    return f"topic {topic}" + (f" partition {partition}" if partition >= 0 else "")


def _missing_producer_id(report: ReportBuilder) -> str:
    # Without a producer id the client drops all records, and their own code does not say why.
    if error_text(ErrorCode.CLUSTER_AUTHORIZATION_FAILED) in report.broker_error:
        return f"; {_GRANT_IDEMPOTENT_WRITE}"
    return ""


def rejection_advice(code: int, *, by_client: bool = False) -> str:
    """What to do about a rejected record, after a semicolon; empty if the code says it all."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"; {GRANT_WRITE}"
    if code == ErrorCode.INVALID_TIMESTAMP:
        return f"; {_TIMESTAMP}"
    if code == ErrorCode.INVALID_RECORD:  # librdkafka's, whatever the brokers' own code
        return f"; if the topic is compacted, a record lacks its key; otherwise {_TIMESTAMP}"
    if code != ErrorCode.MSG_SIZE_TOO_LARGE:
        return ""
    if by_client:
        return (
            f"; a record is larger than the client may send: raise {MAX_REQUEST_SIZE}, and the "
            "topic's max.message.bytes if that is smaller"
        )
    return "; a record is larger than the topic allows: raise its max.message.bytes"


def _last_broker_error(report: ReportBuilder) -> str:
    return f"; last broker error: {report.broker_error}" if report.broker_error else ""

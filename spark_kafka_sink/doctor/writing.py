"""Checks that write to Kafka; they run only if the user asks for a test record."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, Producer

from spark_kafka_sink.doctor.brokers import error_text
from spark_kafka_sink.doctor.examination import Examination
from spark_kafka_sink.doctor.result import Finding, failed, passed, skipped, warned

KEY = "spark-kafka-sink doctor"
_SKEW_SECONDS = 5.0
_POLL_SECONDS = 0.1
_ASK = "writes nothing without --write-test-record"

_quiet = logging.getLogger("spark_kafka_sink.doctor.librdkafka")


def test_record(examination: Examination) -> list[Finding]:
    """A record reaches the topic, with the sink's settings."""
    name = examination.topic_name
    if not examination.write_test_record:
        return [skipped(_ASK)]
    reports: list[tuple[Any, Any]] = []
    producer = _producer(examination)
    sent_at = time.time()
    producer.produce(
        name,
        key=KEY,
        value=f"test record {uuid.uuid4()}",
        on_delivery=lambda error, message: reports.append((error, message)),
    )
    while not reports and not examination.deadline.expired:
        producer.poll(examination.deadline.slice(_POLL_SECONDS))
    acknowledged_at = time.time()
    if not reports:
        producer.purge()
        return [failed("not acknowledged in time", "See the lines above, or raise --timeout", name)]
    ((error, message),) = reports
    if error is not None:
        return [failed(f"refused: {error.str()}", "See the lines above for the reason", name)]
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_LOG_APPEND_TIME:
        examination.broker_clock = (sent_at, milliseconds / 1000, acknowledged_at)
    return [
        passed(
            f"written to partition {message.partition()} at offset {message.offset()}, with the "
            f"key {KEY!r}",
            name,
        )
    ]


def clock_skew(examination: Examination) -> list[Finding]:
    """The brokers' clocks agree with this machine's."""
    if not examination.write_test_record:
        return [skipped(f"only a record's time of arrival shows it; {_ASK}")]
    if examination.broker_clock is None:
        return [skipped("brokers show their clock only with message.timestamp.type=LogAppendTime")]
    sent_at, arrived_at, acknowledged_at = examination.broker_clock
    # The record arrived in between, so only a time outside shows a difference.
    skew = min(0.0, arrived_at - sent_at) or max(0.0, arrived_at - acknowledged_at)
    if abs(skew) > _SKEW_SECONDS:
        return [
            warned(
                f"the broker's clock is {skew:+.1f} s off this machine's",
                "Synchronize both with NTP: retention and the column timestamp depend on them",
            )
        ]
    return [passed(f"less than {max(abs(skew), acknowledged_at - sent_at):.1f} s")]


def transaction(examination: Examination) -> list[Finding]:
    """The user may begin transactions. The sink does not use them yet, so a refusal only warns."""
    if not examination.write_test_record:
        return [skipped(f"a transactional producer leaves a trace in Kafka; {_ASK}")]
    # librdkafka requires that no record outlasts its transaction, whose timeout is 60 s.
    settings = {
        "transactional.id": f"spark-kafka-sink-doctor-{uuid.uuid4()}",
        "delivery.timeout.ms": "60000",
    }
    try:
        producer = _producer(examination, settings)
        producer.init_transactions(examination.deadline.remaining())
    except KafkaException as error:
        return [
            warned(
                f"not possible: {error_text(error)}. This sink does not use transactions yet",
                f"Nothing now. For later: kafka-acls.sh --add --allow-principal {examination.user} "
                "--operation Write --transactional-id '*'",
            )
        ]
    return [passed("a transactional producer was let in")]


def _producer(examination: Examination, more: dict[str, str] | None = None) -> Any:
    settings = {**examination.login, **(more or {}), "log_level": 0, "linger.ms": 0}
    return Producer(settings, logger=_quiet)

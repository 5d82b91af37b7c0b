"""Checks that write to Kafka; they run only with ``--write-test-record``."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Producer

from spark_kafka_sink.advice import Advice, advice_on
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.errors import DeadlineExceeded, KafkaSinkError, TransactionFailed
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.exactly_once import (
    allow_groups,
    allow_ids,
    doctor_transactional_id,
    with_exactly_once,
)
from spark_kafka_sink.tools.doctor.result import Finding, failed, passed, skipped, warned
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset
from spark_kafka_sink.transactions.transaction import Transaction

KEY = "spark-kafka-sink doctor"
_SKEW_SECONDS = 5.0
_POLL_SECONDS = 0.1
# Brokers that do not hold back an offset answer within a round trip.
_ANSWER_SECONDS = 1.0
_ASK = "needs --write-test-record"

_quiet = logging.getLogger("spark_kafka_sink.tools.doctor.librdkafka")


def test_record(context: CheckContext) -> list[Finding]:
    """A record reaches the topic, with the sink's settings."""
    name = context.topic_name
    if not context.write_test_record:
        return [skipped(_ASK)]
    reports: list[tuple[Any, Any]] = []
    producer = _producer(context)
    sent_at = time.time()
    producer.produce(
        name,
        key=KEY,
        value=f"test record {uuid.uuid4()}",
        on_delivery=lambda error, message: reports.append((error, message)),
    )
    while not reports and not context.deadline.expired:
        producer.poll(context.deadline.slice(_POLL_SECONDS))
    acknowledged_at = time.time()
    if not reports:
        producer.purge()
        return [
            failed("not acknowledged in time", "See the results above, or raise --timeout", name)
        ]
    ((error, message),) = reports
    if error is not None:
        advice = advice_on(error.code())
        remedy = advice.remedy if advice else "See the results above for the reason"
        return [failed(f"refused: {error.str()} ({error.name()})", remedy, name)]
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_LOG_APPEND_TIME:
        context.broker_clock = (sent_at, milliseconds / 1000, acknowledged_at)
    return [
        passed(
            f"written to partition {message.partition()} at offset {message.offset()}, with the "
            f"key {KEY!r}",
            name,
        )
    ]


def clock_skew(context: CheckContext) -> list[Finding]:
    """The brokers' clocks agree with this machine's."""
    if not context.write_test_record:
        return [skipped(f"only a record's time of arrival shows it; {_ASK}")]
    if context.broker_clock is None:
        return [skipped("brokers show their clock only with message.timestamp.type=LogAppendTime")]
    sent_at, arrived_at, acknowledged_at = context.broker_clock
    # The record arrived in between, so only a time outside shows a difference.
    skew = min(0.0, arrived_at - sent_at) or max(0.0, arrived_at - acknowledged_at)
    if abs(skew) > _SKEW_SECONDS:
        return [
            warned(
                f"the broker's clock differs by {skew:+.1f} s from this machine's",
                "Synchronize both with NTP: retention and the column timestamp depend on them",
            )
        ]
    return [passed(f"less than {max(abs(skew), acknowledged_at - sent_at):.1f} s")]


@with_exactly_once
def transaction(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """A transaction of doctor's own commits an offset, which brokers hold back until then."""
    if not context.write_test_record:
        return [skipped(_ASK)]
    name, topic = doctor_transactional_id(settings), settings.ledger_topic
    wait = BrokerWait(context.deadline, "--timeout", f"a transaction {name}")
    test_transaction = Transaction(context.sink.producer, name, settings.transaction_timeout_ms)
    offset = CommittedOffset(1, str(uuid.uuid4()))
    try:
        test_transaction.initialize([topic], wait)
        with GroupOffset(context.settings, topic, name) as group:
            # The former one: some brokers know no group whose first offset is not committed yet.
            group.write(CommittedOffset(0, KEY), wait)
            test_transaction.begin()
            test_transaction.send_offset(name, topic, offset, wait)
            is_held_back = _is_held_back(group, wait)
            test_transaction.commit(wait)
            committed = group.read(wait)
    except TransactionFailed as error:
        advice = {
            "GROUP_AUTHORIZATION_FAILED": allow_groups(context, settings),
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": allow_ids(context, settings),
        }
        return [failed(str(error), advice.get(error.code, "See the results above"), name)]
    except KafkaSinkError as error:
        return [failed(str(error), "See the results above, or raise --timeout", name)]
    finally:
        test_transaction.close()
    remedy = Advice.EXACTLY_ONCE_UNSUPPORTED.remedy
    if not is_held_back:
        what = "these brokers do not hold back the offset of an open transaction"
        return [failed(f"{what}, so exactly-once could store rows twice", remedy, name)]
    if committed != offset:
        what = "these brokers do not keep the metadata of offsets, which exactly-once needs"
        return [failed(what, remedy, name)]
    return [passed("committed an offset with metadata, which was held back until then", name)]


def _is_held_back(group: GroupOffset, wait: BrokerWait) -> bool:
    """Whether there is no answer about the group's offset."""
    try:
        group.read(wait.at_most(_ANSWER_SECONDS))
    except DeadlineExceeded:
        return True
    return False


def _producer(context: CheckContext) -> Any:
    settings = {**context.login, "log_level": 0, "linger.ms": 0}
    return Producer(settings, logger=_quiet)

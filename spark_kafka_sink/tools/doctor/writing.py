"""Checks that write to Kafka; they run only with ``--write-test-record``."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.errors import DeadlineExceeded, KafkaSinkError, TransactionFailed
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.exactly_once import (
    allow_groups,
    allow_ids,
    doctor_transactional_id,
    exactly_once_only,
)
from spark_kafka_sink.tools.doctor.result import Finding, failed, not_applicable, passed, skipped
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset
from spark_kafka_sink.transactions.transaction import Transaction

KEY = "spark-kafka-sink doctor"
# Brokers that do not hold an offset back answer within a round trip.
_ANSWER_SECONDS = 1.0
_NOT_REQUESTED = "needs --write-test-record"


def test_record(context: CheckContext) -> list[Finding]:
    """A record reaches the topic, through the sink's own producer."""
    name = context.topic_name
    if not context.write_test_record:
        return [skipped(_NOT_REQUESTED)]
    if context.sink.serialization is not None:
        return [not_applicable("readers of value.format or key.format could not read it")]
    batch = pa.record_batch({"key": [KEY], "value": [f"test record {uuid.uuid4()}"]})
    (records,) = split_by_topic(batch, name).records
    try:
        # Without dead letters, so that a rejected record is an error.
        producer = NonBlockingProducer(replace(context.sink.producer, dead_letter_topic=None))
        try:
            producer.send(records).result(context.deadline.remaining())
        finally:
            producer.close(0)
    except KafkaSinkError as error:
        return [failed(str(error), "See the results above, or raise --timeout", name)]
    return [passed(f"written, with the key {KEY!r}", name)]


@exactly_once_only
def transaction(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """A transaction of doctor's own commits an offset. Until then, brokers hold it back."""
    if not context.write_test_record:
        return [skipped(_NOT_REQUESTED)]
    name, topic = doctor_transactional_id(settings), settings.ledger_topic
    wait = BrokerWait(context.deadline, "--timeout", f"a transaction {name}")
    test_transaction = Transaction(context.sink.producer, name, settings.transaction_timeout_ms)
    offset = CommittedOffset(1, str(uuid.uuid4()))
    try:
        test_transaction.initialize([topic], wait)
        with closing(GroupOffset(context.settings, topic, name)) as group:
            # Some brokers do not know a group before its first offset is committed.
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
    """Whether brokers do not answer what the group's offset is."""
    try:
        group.read(wait.capped(_ANSWER_SECONDS))
    except DeadlineExceeded:
        return True
    return False

"""[both] The messages of the producer's errors: what happened, why, and what to do."""

from __future__ import annotations

from spark_kafka_sink.advice import (
    Advice,
    advice_on,
    advice_on_broker_error,
    describe,
    explain,
    lasting_advice_on,
)
from spark_kafka_sink.config.producer_options import BlockBudget
from spark_kafka_sink.errors import (
    BufferExhausted,
    DeadlineExceeded,
    DeliveryFailed,
    MetadataTimeout,
    TopicUnavailable,
    add_sentence,
)
from spark_kafka_sink.librdkafka.error_codes import (
    NON_RETRIABLE_TOPIC_ERRORS,
    ErrorCode,
    error_name,
    error_text,
)
from spark_kafka_sink.producer.sends import Send, TooLarge
from spark_kafka_sink.records.partitioner import UNASSIGNED
from spark_kafka_sink.report.delivery_report import DeliveryReport

_DEAD_LETTER_TOPIC = "This topic is that of the option dead.letter.topic"
#: what else brokers reject a dead letter for is as with other records
_DEAD_LETTER_ADVICE: dict[int, Advice] = {
    ErrorCode.MSG_SIZE_TOO_LARGE: Advice.DEAD_LETTER_IS_TOO_LARGE,
    ErrorCode.INVALID_RECORD: Advice.DEAD_LETTER_WITHOUT_KEY,
}
#: why brokers give no producer id
_NO_PRODUCER_ID = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,
)
_NO_IDEMPOTENCE = "Idempotent producer not supported"  # librdkafka's text


def no_metadata(
    topic: str,
    code: int,
    budget: BlockBudget,
    report: DeliveryReport,
    dead_letter_topic: str | None = None,
) -> TopicUnavailable | MetadataTimeout:
    """For a topic whose records awaited metadata; ``code`` is that of the latest answer."""
    error = _no_metadata(topic, code, budget, report)
    if topic == dead_letter_topic:
        add_sentence(error, _DEAD_LETTER_TOPIC)
    return error


def _no_metadata(
    topic: str, code: int, budget: BlockBudget, report: DeliveryReport
) -> TopicUnavailable | MetadataTimeout:
    waited = f"{budget.metadata_seconds:g} s ({budget.metadata_option})"
    if code in NON_RETRIABLE_TOPIC_ERRORS:
        return _topic_unavailable(topic, code)
    if lasting_advice_on(code) is not None:
        return _topic_unavailable(topic, code, f", still after {waited}")
    answer = f": {describe(code)}" if code else ""
    return MetadataTimeout(
        f"no metadata for topic {topic} within {waited}{answer}"
        f"{_last_and_advice(report, Advice.METADATA_IS_LATE)}",
        topic=topic,
    )


def _topic_unavailable(topic: str, code: int, note: str = "") -> TopicUnavailable:
    return TopicUnavailable(
        f"topic {topic}: {explain(code, note=note)}", topic=topic, code=error_name(code)
    )


def buffer_exhausted(topic: str, budget: BlockBudget, report: DeliveryReport) -> BufferExhausted:
    return BufferExhausted(
        f"the send buffer stayed full for {budget.buffer_seconds:g} s (kafka.max.block.ms) while "
        f"sending to {topic}{_last_and_advice(report, Advice.BUFFER_IS_FULL)}"
    )


def deadline_exceeded(
    timeout_seconds: float, report: DeliveryReport, waiting: tuple[str, int] | None
) -> DeadlineExceeded | TopicUnavailable:
    """``waiting``: a topic whose records await metadata, and the code of the latest answer."""
    waited = f"{timeout_seconds:g} s (close.timeout.ms)"
    lacking = ""
    if waiting is not None:
        topic, code = waiting
        if lasting_advice_on(code) is not None:
            return _topic_unavailable(topic, code, f", still after {waited}")
        answer = f": {describe(code)}" if code else ""
        lacking = f"; topic {topic} has no metadata yet{answer}"
    return DeadlineExceeded(
        f"the brokers did not acknowledge all records within {waited}{lacking}"
        f"{_last_and_advice(report, Advice.CLOSE_TIMED_OUT)}"
    )


def delivery_failed(
    send: Send, report: DeliveryReport, dead_letter_topic: str | None = None
) -> DeliveryFailed | TopicUnavailable:
    """For the first record of the send that failed."""
    partition, code = send.first_error
    if partition == UNASSIGNED and code in NON_RETRIABLE_TOPIC_ERRORS:
        # The client's own metadata showed this before our request was answered.
        return _topic_unavailable(send.topic, code)
    advice = _DEAD_LETTER_ADVICE.get(code) if send.dead_letter else None
    reason = rejection_reason(
        send.topic, partition, code, report.broker_error, send.too_large, advice
    )
    if send.dead_letter:
        reason = f"the dead letter of {send.dead_letter} was rejected too: {reason}"
    failed = DeliveryFailed(reason, topic=send.topic, partition=partition, code=error_name(code))
    if send.topic == dead_letter_topic:
        add_sentence(failed, _DEAD_LETTER_TOPIC)
    return failed


def rejection_reason(
    topic: str,
    partition: int,
    code: int,
    broker_error: str = "",
    too_large: TooLarge | None = None,
    advice: Advice | None = None,
) -> str:
    """Why records were rejected; ``partition`` -1: before they had one.

    ``advice``: None for what the table has.
    """
    place = f"topic {topic}" + (f" partition {partition}" if partition >= 0 else "")
    # Without a producer id the client drops all records, and their own code does not say why.
    refusal = next((c for c in _NO_PRODUCER_ID if error_text(c) in broker_error), None)
    if refusal is not None:
        advice = advice_on(refusal)
    elif _NO_IDEMPOTENCE in broker_error:
        advice = Advice.IDEMPOTENCE_UNSUPPORTED
    elif advice is None and partition == UNASSIGNED and code == ErrorCode.MSG_SIZE_TOO_LARGE:
        advice = Advice.TOO_LARGE_FOR_CLIENT
    elif code == ErrorCode.MSG_TIMED_OUT:
        advice = advice_on_broker_error(broker_error)
    elif advice is None and too_large is not None and too_large.is_batch:
        advice = Advice.TOO_LARGE_FOR_TRANSACTION
    # Only the advice on this code itself names the option.
    late = " after kafka.delivery.timeout.ms" if advice and code == ErrorCode.MSG_TIMED_OUT else ""
    explained = explain(code, advice, late + _sizes(too_large) + _last(broker_error))
    if partition == UNASSIGNED and code == ErrorCode.MSG_SIZE_TOO_LARGE:
        explained = explained.removeprefix("Broker: ")  # no broker has seen it
    return f"{place}: {explained}"


def _sizes(too_large: TooLarge | None) -> str:
    if too_large is None:
        return ""
    what = "the record makes"
    if too_large.count > 1:
        count = too_large.count
        what = f"{count} records make" if too_large.is_batch else f"the largest of {count} makes"
    text = f"; {what} a batch of {too_large.batch_bytes} bytes uncompressed"
    if too_large.limit_bytes is None:
        return text
    return f"{text}, and {too_large.limit} is {too_large.limit_bytes}"


def _last(broker_error: str) -> str:
    return f"; last broker error: {broker_error}" if broker_error else ""


def _last_and_advice(report: DeliveryReport, default: Advice) -> str:
    advice = advice_on_broker_error(report.broker_error) or default.remedy
    return f"{_last(report.broker_error)}. {advice}"

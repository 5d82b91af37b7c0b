"""The error for a topic that waiting does not make usable."""

from __future__ import annotations

from spark_kafka_sink.errors import TopicUnavailable
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.error_texts import error_name, error_text

GRANT_WRITE = "grant this user permission to write to it"


def topic_unavailable(topic: str, code: int, if_missing: str = "create it") -> TopicUnavailable:
    """For a code that waiting does not fix. ``if_missing``: what to do about a missing topic."""
    advice: dict[int, str] = {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: GRANT_WRITE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: if_missing,
        ErrorCode.INVALID_TOPIC: "choose a name that the brokers allow",
    }
    return TopicUnavailable(
        f"topic {topic}: {error_text(code)} ({error_name(code)}); {advice[code]}",
        topic=topic,
        code=error_name(code),
    )

"""librdkafka's names and sentences for error codes."""

from __future__ import annotations

from spark_kafka_sink.librdkafka import _prototypes as c


def error_name(code: int) -> str:
    """librdkafka's short name of an error code, e.g. ``_MSG_TIMED_OUT`` (``rd_kafka_err2name``)."""
    return str(c.err2name(code).decode())


def error_text(code: int) -> str:
    """librdkafka's sentence for an error code (``rd_kafka_err2str``)."""
    return str(c.err2str(code).decode())

"""[driver] What a topic's settings do to records with times of their own (``timestamp.column``).

Only the topic of the option is looked at, and nothing with ``preflight=false``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import cache

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.inquirer import CONFIGURATION_SECONDS, NoAnswer, asking
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.report.delivery_report import DeliveryReport

_MS_PER_DAY = 86_400_000


def log_append_time(settings: Mapping[str, str]) -> str:
    """A sentence if brokers replace the timestamps of a topic's records; otherwise empty."""
    if settings.get("message.timestamp.type") != "LogAppendTime":
        return ""
    return (
        f"message.timestamp.type=LogAppendTime: {table.TIMESTAMP_COLUMN.name} has no effect, as "
        "brokers replace the records' timestamps by the time of arrival"
    )


def retention_ms(settings: Mapping[str, str]) -> int | None:
    """At which age brokers delete a topic's records; None: not because of it, or not known."""
    policies = settings.get("cleanup.policy", "delete").split(",")
    text = settings.get("retention.ms", "")
    return int(text) if "delete" in policies and text.isdecimal() else None


def topic_settings(options: SinkOptions, *, from_cache: bool) -> Mapping[str, str]:
    """The settings of the option's topic; empty if the brokers do not or may not say in time.

    ``from_cache``: as this process has seen them before, if it has. Raises nothing.
    """
    if options.topic is None:
        return {}
    if not from_cache:
        _topic_settings.cache_clear()
    with suppress(NoAnswer, KafkaSinkError):
        return _topic_settings(options.producer.client, options.topic)
    return {}


@cache
def _topic_settings(settings: ClientSettings, topic: str) -> Mapping[str, str]:
    """Without an answer, and of a topic that does not exist yet, the next call asks again."""
    deadline = Deadline(CONFIGURATION_SECONDS)
    with asking(settings) as brokers:
        answer = brokers.topic_configuration(topic, deadline)
    if answer is None or answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NoAnswer
    return answer.settings


def ignored_timestamps(options: SinkOptions) -> str:
    """A sentence if the option's topic ignores the column; otherwise empty."""
    sentence = _is_checked(options) and log_append_time(topic_settings(options, from_cache=True))
    return f"topic {options.topic} has {sentence}" if sentence else ""


def old_records(report: DeliveryReport, options: SinkOptions) -> str:
    """A sentence if brokers are about to delete records for their age; otherwise empty.

    ``report``: of a batch or micro-batch.
    """
    oldest_ms = report.oldest_timestamp_ms
    if oldest_ms is None or not _is_checked(options):
        return ""
    limit_ms = _exceeded_retention_ms(report, oldest_ms, options, from_cache=True)
    if limit_ms is not None:
        # It may have been changed since, for instance because of a warning.
        limit_ms = _exceeded_retention_ms(report, oldest_ms, options, from_cache=False)
    if limit_ms is None:
        return ""
    oldest = datetime.fromtimestamp(oldest_ms / 1000, timezone.utc)
    return (
        f"topic {options.topic}: the oldest record that was written now has the time "
        f"{oldest:%Y-%m-%d %H:%M:%S} UTC, from the column {options.timestamp_column}, but the "
        f"topic has retention.ms={limit_ms} ({limit_ms / _MS_PER_DAY:.3g} days): brokers delete "
        "older records at their next check, which is minutes away. Raise retention.ms now; or "
        f"remove {table.TIMESTAMP_COLUMN.name}, and write the rows again, with the time of sending"
    )


def _exceeded_retention_ms(
    report: DeliveryReport, oldest_ms: int, options: SinkOptions, *, from_cache: bool
) -> int | None:
    settings = topic_settings(options, from_cache=from_cache)
    limit_ms = retention_ms(settings)
    if limit_ms is None or log_append_time(settings):
        return None
    age_ms = report.ended_at.timestamp() * 1000 - oldest_ms
    return limit_ms if age_ms > limit_ms else None


def _is_checked(options: SinkOptions) -> bool:
    return options.timestamp_column is not None and options.values[table.PREFLIGHT]

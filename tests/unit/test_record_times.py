"""What is said of a topic that does not keep records with timestamps of their own."""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.driver import record_times
from spark_kafka_sink.report.delivery_report import DeliveryReport, uncommitted
from spark_kafka_sink.spark import micro_batch

DAY_MS = 86_400_000
OPTIONS = {"kafka.bootstrap.servers": "b:9092", "topic": "orders", "timestamp.column": "at"}
ENDED_AT = datetime(2026, 1, 31, tzinfo=timezone.utc)
ENDED_MS = int(ENDED_AT.timestamp() * 1000)
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS)}


@pytest.fixture
def topic(monkeypatch):
    """The topic's settings, as brokers report them: now, and from the cache."""

    class Topic:
        settings = WEEK
        cached = WEEK

    def settings(options, *, from_cache):
        return Topic.cached if from_cache else Topic.settings

    monkeypatch.setattr(record_times, "topic_settings", settings)
    return Topic


def report(age_ms, query_id=None):
    return DeliveryReport(
        oldest_timestamp_ms=ENDED_MS - age_ms, ended_at=ENDED_AT, query_id=query_id
    )


def said(a_report, **options):
    """The UserWarnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        micro_batch.warn_of_old_records(a_report, parse({**OPTIONS, **options}))
    return [str(warning.message) for warning in caught]


def test_a_record_older_than_the_retention_is_named_with_what_to_do(topic, caplog):
    with caplog.at_level(logging.WARNING):
        (sentence,) = said(report(7 * DAY_MS + 1))
    assert sentence == (
        "topic orders: the oldest record that was written now has the time 2026-01-23 23:59:59 "
        "UTC, from the column at, but the topic has retention.ms=604800000 (7 days): brokers "
        "delete older records at their next check, which is minutes away. Raise retention.ms now; "
        "or remove timestamp.column, and write the rows again, with the time of sending"
    )
    assert [entry.getMessage() for entry in caplog.records] == [sentence]


@pytest.mark.parametrize(
    "settings",
    [
        {**WEEK, "retention.ms": "-1"},
        {**WEEK, "cleanup.policy": "compact"},
        {**WEEK, "message.timestamp.type": "LogAppendTime"},
        {},  # not known
    ],
)
def test_nothing_is_said_if_brokers_delete_nothing_for_its_age(topic, settings):
    topic.settings = topic.cached = settings
    assert said(report(1000 * DAY_MS)) == []


def test_a_topic_may_be_compacted_and_delete_too(topic):
    topic.settings = topic.cached = {**WEEK, "cleanup.policy": "compact,delete"}
    assert len(said(report(8 * DAY_MS))) == 1


def test_nothing_is_said_of_young_records_or_none(topic):
    assert said(report(7 * DAY_MS)) == []
    assert said(report(-DAY_MS)) == []
    assert said(DeliveryReport()) == []


def test_nothing_is_asked_without_preflight(monkeypatch):
    monkeypatch.setattr(record_times, "topic_settings", None)
    assert said(report(8 * DAY_MS), preflight="false") == []


def test_nothing_is_asked_without_a_column_of_timestamps(monkeypatch):
    monkeypatch.setattr(record_times, "topic_settings", None)
    del (options := dict(OPTIONS))["timestamp.column"]
    micro_batch.warn_of_log_append_time(parse(options))
    micro_batch.warn_of_old_records(report(8 * DAY_MS), parse(options))


def test_a_query_is_warned_once_and_a_batch_each_time(topic, monkeypatch):
    monkeypatch.setattr(micro_batch, "_warned_of_old_records", set())
    assert [len(said(report(8 * DAY_MS, query_id))) for query_id in "aab"] == [1, 0, 1]
    assert [len(said(report(8 * DAY_MS))) for _ in range(2)] == [1, 1]
    # Under Spark Connect, foreach_batch does not know the query.
    unnamed = [replace(report(8 * DAY_MS), batch_id=batch_id) for batch_id in range(2)]
    assert [len(said(batch)) for batch in unnamed] == [1, 0]


def test_retention_that_was_raised_since_is_no_reason_to_warn(topic):
    topic.settings = {**WEEK, "retention.ms": "-1"}
    assert said(report(8 * DAY_MS)) == []


@pytest.mark.parametrize("kind", ["LogAppendTime", "CreateTime"])
def test_a_topic_that_replaces_timestamps_is_named(topic, kind):
    topic.cached = {"message.timestamp.type": kind}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        micro_batch.warn_of_log_append_time(parse(OPTIONS))
    texts = [str(warning.message) for warning in caught]
    expected = "topic orders has message.timestamp.type=LogAppendTime: timestamp.column has no"
    assert bool(texts) == (kind == "LogAppendTime")
    assert all(re.match(expected, text) for text in texts)


def test_reports_add_up_to_the_oldest_timestamp_of_all_tasks():
    known = [DeliveryReport(oldest_timestamp_ms=ms) for ms in (7, 5)]
    assert (known[0] + known[1] + DeliveryReport()).oldest_timestamp_ms == 5
    assert (DeliveryReport() + DeliveryReport()).oldest_timestamp_ms is None


def test_a_transaction_that_did_not_commit_has_written_no_timestamp():
    written = replace(DeliveryReport(), oldest_timestamp_ms=5)
    assert uncommitted(written, is_aborted=True).oldest_timestamp_ms is None

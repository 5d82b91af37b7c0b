from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.producer.topic_limits import TopicLimits, limits_from
from spark_kafka_sink.records.arrow import split_by_topic

NOW_MS = 1_000_000


def rejected(limits, compressed=False, **columns):
    batch = pa.record_batch({"value": ["v"] * len(next(iter(columns.values()))), **columns})
    (records,) = split_by_topic(batch, "t").records
    sizes = np.array([100] * (len(records) - 1) + [101])
    return {
        (code.name, index)
        for code, mask in limits.rejected(records, sizes, NOW_MS, compressed=compressed)
        for index in np.flatnonzero(mask).tolist()
    }


def times(*milliseconds):
    return pa.array(milliseconds, pa.timestamp("ms"))


def test_an_unknown_configuration_rejects_nothing():
    assert rejected(TopicLimits(), key=["k", None], timestamp=times(1, 10**15)) == set()
    assert limits_from({}) == TopicLimits()


@pytest.mark.parametrize("text", ["", "-1", "none"])
@pytest.mark.parametrize(
    "name",
    [
        "max.message.bytes",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
    ],
)
def test_a_setting_that_is_not_set_or_no_number_limits_nothing(name, text):
    assert limits_from({name: text}) == TopicLimits()


def test_a_compacted_topic_rejects_records_without_a_key():
    limits = limits_from({"cleanup.policy": "delete,compact"})
    assert rejected(limits, key=["", None, "k"]) == {("INVALID_RECORD", 1)}
    assert rejected(limits, value=["a", "b"]) == {("INVALID_RECORD", 0), ("INVALID_RECORD", 1)}
    assert limits_from({"cleanup.policy": "delete"}) == TopicLimits()


def test_too_large_records_are_known_only_without_compression():
    limits = limits_from({"max.message.bytes": "100"})
    assert rejected(limits, key=["a", "b"]) == {("MSG_SIZE_TOO_LARGE", 1)}
    assert rejected(limits, key=["a", "b"], compressed=True) == set()


@pytest.mark.parametrize(
    ("name", "places"), [("before", {0}), ("after", {4}), ("difference", {0, 4})]
)
def test_timestamps_too_far_from_now(name, places):
    limits = limits_from({f"message.timestamp.{name}.max.ms": "1000"})
    near = times(NOW_MS - 1001, NOW_MS - 1000, None, NOW_MS + 1000, NOW_MS + 1001)
    assert rejected(limits, timestamp=near) == {
        (ErrorCode.INVALID_TIMESTAMP.name, i) for i in places
    }


def test_a_limit_of_its_own_counts_more_than_the_one_for_both():
    """As with Kafka 3.6 to 3.9, which report all three; a limit that is not set has the default."""
    settings = {
        "message.timestamp.difference.max.ms": "1000",
        "message.timestamp.before.max.ms": "2000",
        "message.timestamp.after.max.ms": str(2**63 - 1),
    }
    limits = limits_from(settings)
    assert (limits.timestamp_before_max_ms, limits.timestamp_after_max_ms) == (2000, 1000)


def test_the_time_of_appending_is_always_allowed():
    settings = {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1"}
    assert limits_from(settings) == TopicLimits()

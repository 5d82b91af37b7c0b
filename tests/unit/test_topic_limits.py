from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from fake_engine import DLQ, dead_letter_engine

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    ConfigurationDescription,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.topic_limits import TopicLimits, limits_from
from spark_kafka_sink.producer.topic_metadata import RECENT_SECONDS
from spark_kafka_sink.records.arrow import split_by_topic

NOW_MS = 1_000_000


def rejected(limits, compressed=False, **columns):
    batch = pa.record_batch({"value": ["v"] * len(next(iter(columns.values()))), **columns})
    (records,) = split_by_topic(batch, "t", timestamp_column="timestamp").records
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


# --- records that await the limits ----------------------------------------------------------------

MAX_AGE_MS = 300_000


@pytest.fixture
def engine():
    return dead_letter_engine()


def test_records_wait_for_the_topics_configuration(engine):
    delivery = engine.send_values("t", ["a"])
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    assert engine.sent(delivery) == []
    assert engine.client.asked_configurations == ["t"]
    engine.answer(ConfigurationDescription("t", 0, {}))
    assert engine.sent(delivery) == [0]


def test_a_configuration_that_may_not_be_read_limits_nothing(engine):
    delivery = engine.send_values("t", ["a"])
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    engine.answer(ConfigurationDescription("t", ErrorCode.REQUEST_TIMED_OUT, {}))
    assert engine.sent(delivery) == [0]


def test_a_configuration_without_an_answer_leaves_the_topics_of_other_requests_waiting(engine):
    first, second = engine.send_values("t", ["a"]), engine.send_values("u", ["b"])
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    engine.answer(TopicDescription("u", 0, 1, (0,)))
    engine.answer(ConfigurationDescription("t", ErrorCode.REQUEST_TIMED_OUT, {}))
    assert (engine.sent(first), engine.sent(second)) == ([0], [])


def test_records_that_the_brokers_would_reject_are_not_sent(engine):
    delivery = engine.send_values("t", ["a", "b", "c"], key=pa.array(["k", None, "l"]))
    engine.know("t", DLQ, cleanup_policy="compact")
    assert engine.sent(delivery) == [0, 2]
    assert engine.dead == {("t", "INVALID_RECORD"): 1}


def test_records_larger_than_the_client_may_send_are_not_sent():
    engine = dead_letter_engine(**{"kafka.max.request.size": "2000"})
    delivery = engine.send_values("t", ["a", "x" * 2000, "c"])
    engine.know("t", DLQ)
    assert engine.sent(delivery) == [0, 2]
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}


def asked_again(engine):
    """The topics whose limits were requested since the last call."""
    asked, engine.client.asked_configurations = engine.client.asked_configurations, []
    return asked


# As large as the client's batches: several may be in flight in one partition.
LIMIT = "1000000"
LARGE = ["x" * 1_010_000]


def test_limits_are_fetched_again_at_the_maximum_age_while_records_go_on():
    engine = dead_letter_engine()
    delivery = engine.send_values("t", ["a"])
    engine.know("t", max_message_bytes=LIMIT)
    engine.report(delivery, [0])
    assert asked_again(engine) == ["t"]
    engine.clock.now += MAX_AGE_MS / 1000 - 1
    assert engine.sent(engine.send_values("t", ["b"])) == [0]
    assert asked_again(engine) == []
    engine.clock.now += 1
    for value in "cd":
        engine.clock.now += 2
        assert engine.sent(engine.send_values("t", [value])) == [0]
    assert asked_again(engine) == ["t"]  # once, and nothing waited for the answer
    engine.answer(ConfigurationDescription("t", 0, {"max.message.bytes": "1100000"}))
    assert engine.sent(engine.send_values("t", LARGE)) == [0]
    assert engine.dead == {}


@pytest.fixture(params=["2000", LIMIT], ids=["one-batch-at-a-time", "many-batches"])
def old_limit(request):
    return request.param


@pytest.fixture
def engine_with_old_limits(old_limit):
    """A topic whose limits reject records of LARGE, and have been known for some time."""
    engine = dead_letter_engine()
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ, max_message_bytes=old_limit)
    engine.report(delivery, [0])
    engine.clock.now += RECENT_SECONDS + 1
    asked_again(engine)
    return engine


def test_a_record_that_old_limits_reject_is_sent_if_new_ones_allow_it(engine_with_old_limits):
    engine = engine_with_old_limits
    first, second = engine.send_values("t", LARGE), engine.send_values("t", ["b"])
    assert (engine.sent(first), engine.sent(second)) == ([], [])
    assert asked_again(engine) == ["t"]
    engine.answer(ConfigurationDescription("t", 0, {"max.message.bytes": "1100000"}))
    assert (engine.sent(first), engine.sent(second)) == ([0], [0])
    assert engine.dead == {}


def test_a_record_is_a_dead_letter_once_new_limits_reject_it_too_and_recent_ones_ask_nobody(
    engine_with_old_limits, old_limit
):
    engine = engine_with_old_limits
    first = engine.send_values("t", LARGE)
    engine.answer(ConfigurationDescription("t", 0, {"max.message.bytes": old_limit}))
    assert first.is_complete
    asked_again(engine)
    engine.clock.now += RECENT_SECONDS
    assert engine.send_values("t", LARGE).is_complete
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 2}
    assert "t" not in asked_again(engine)


def test_old_limits_hold_up_no_record_that_they_allow_and_no_other_topic(engine_with_old_limits):
    engine = engine_with_old_limits
    small = engine.send_values("t", ["b"])
    assert engine.sent(small) == [0]
    assert asked_again(engine) == []
    engine.report(small, [0])
    engine.send_values("t", LARGE)
    other = engine.send_values("u", ["c"])
    engine.know("u")
    assert engine.sent(other) == [0]


def test_old_limits_hold_up_no_topic_that_is_sendable_at_the_same_time(engine_with_old_limits):
    engine = engine_with_old_limits
    before = engine.send_values("u", ["a"])
    engine.know("u")
    engine.report(before, [0])
    for topic in "tu":
        engine.answer(TopicDescription(topic, ErrorCode.LEADER_NOT_AVAILABLE, 0, ()))
    large, other = engine.send_values("t", LARGE), engine.send_values("u", ["b"])
    engine.answer(*(TopicDescription(topic, 0, 1, (0,)) for topic in "tu"))
    assert (engine.sent(large), engine.sent(other)) == ([], [0])


def test_nobody_is_asked_about_records_that_the_client_may_not_send():
    engine = dead_letter_engine(**{"kafka.max.request.size": "2000"})
    engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.clock.now += RECENT_SECONDS + 1
    asked_again(engine)
    assert engine.send_values("t", LARGE).is_complete
    assert "t" not in asked_again(engine)


def test_old_limits_reject_no_record_of_a_delegated_topic(engine_with_old_limits):
    engine = engine_with_old_limits
    engine.answer(TopicDescription("t", ErrorCode.LEADER_NOT_AVAILABLE, 0, ()))
    large = engine.send_values("t", LARGE)
    engine.answer(RequestFailed(ErrorCode.TIMED_OUT, ("t",)))
    assert engine.sent(large) == [0]
    assert engine.dead == {}


@pytest.mark.parametrize("code", [ErrorCode.TIMED_OUT, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_the_brokers_decide_if_old_limits_are_not_confirmed(engine_with_old_limits, code):
    engine = engine_with_old_limits
    first = engine.send_values("t", LARGE)
    assert engine.sent(first) == []
    engine.answer(ConfigurationDescription("t", code, {}))
    assert engine.sent(first) == [0]
    assert engine.dead == {}
    engine.report(first, [0], ErrorCode.MSG_SIZE_TOO_LARGE)
    engine.answer(ConfigurationDescription("t", code, {}))
    assert engine.sent(first) == [0, 0]  # again, in a batch of its own
    engine.report(first, [0], ErrorCode.MSG_SIZE_TOO_LARGE)
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}


def test_the_wait_for_limits_is_not_at_the_expense_of_that_for_metadata(engine_with_old_limits):
    engine = engine_with_old_limits
    engine.send_values("t", LARGE)
    later = engine.send_values("t", ["b"])
    engine.clock.now += 1
    assert engine.topics.waits.first_failure(0.5) is None
    assert engine.sent(later) == []


def test_new_limits_are_asked_for_as_soon_as_the_topic_has_metadata_again(engine):
    delivery = engine.send_values("t", ["a", "b"])
    engine.know("t")
    asked_again(engine)
    engine.answer(TopicDescription("t", ErrorCode.LEADER_NOT_AVAILABLE, 0, ()))
    engine.report(delivery, [0, 1], ErrorCode.INVALID_DIFFERENT_RECORD)
    assert asked_again(engine) == []
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    assert asked_again(engine) == ["t"]
    engine.answer(ConfigurationDescription("t", 0, {}))
    assert engine.sent(delivery) == [0, 1, 0, 1]


def test_records_without_a_key_are_sent_when_a_topic_is_no_longer_compacted(engine):
    first = engine.send_values("t", ["a"])
    engine.know("t", cleanup_policy="compact")
    assert first.is_complete
    engine.clock.now += RECENT_SECONDS + 1
    second = engine.send_values("t", ["b", "c"])
    assert engine.sent(second) == []
    engine.answer(ConfigurationDescription("t", 0, {"cleanup.policy": "delete"}))
    assert engine.sent(second) == [0, 1]
    assert engine.dead == {("t", "INVALID_RECORD"): 1}


def test_in_a_transaction_records_that_limits_reject_become_dead_letters():
    engine = dead_letter_engine(transaction="an-id")
    engine.prefetch(["t", DLQ])
    engine.know(DLQ)
    engine.know("t", max_message_bytes="1000")
    delivery = engine.send_values("t", ["a", "v" * 2000, "b"])
    assert engine.sent(delivery) == [0, 2]
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}

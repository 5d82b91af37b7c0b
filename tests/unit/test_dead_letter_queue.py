"""What becomes of rejected records, on a fake client."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fake_engine import FakeEngine

from spark_kafka_sink.config.producer_options import MISSING_TOPIC_SECONDS
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    ConfigurationDescription,
    FailedRecords,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.topic_metadata import RECENT_SECONDS

DLQ = "dlq"
MAX_AGE_MS = 300_000


class Engine(FakeEngine):
    """With a topic for dead letters; ``send`` returns the delivery."""

    def __init__(self, **settings):
        super().__init__(**{"on.record.error": "dead-letter", "dead.letter.topic": DLQ, **settings})

    def send_values(self, topic, values, **columns):
        request = super().send_values(topic, values, **columns)
        self.send_due()
        return request.delivery

    def sent(self, delivery):
        """The positions of the delivery's records, in the order in which the client got them."""
        return [
            position for number, position in self.client.positions if number == delivery.delivery_id
        ]

    @property
    def dead(self):
        return dict(self.deliveries.report.dead_letters)


@pytest.fixture
def engine():
    return Engine()


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


def test_a_record_that_was_too_large_alone_says_nothing_about_larger_batches(engine):
    large = engine.send_values("t", ["v" * 600_000])
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    engine.answer(ConfigurationDescription("t", ErrorCode.REQUEST_TIMED_OUT, {}))
    engine.report(large, [0], ErrorCode.MSG_SIZE_TOO_LARGE)
    engine.know(DLQ)
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}
    batch, later = (
        engine.send_values("t", ["v" * 600_000]),
        engine.send_values("t", ["v" * 500_000]),
    )
    assert (engine.sent(batch), engine.sent(later)) == ([0], [])
    engine.report(batch, [0])
    assert engine.sent(later) == [0]


def test_a_configuration_without_an_answer_leaves_the_topics_of_other_requests_waiting(engine):
    first, second = engine.send_values("t", ["a"]), engine.send_values("u", ["b"])
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    engine.answer(TopicDescription("u", 0, 1, (0,)))
    engine.answer(ConfigurationDescription("t", ErrorCode.REQUEST_TIMED_OUT, {}))
    assert (engine.sent(first), engine.sent(second)) == ([0], [])


def test_a_rejected_record_becomes_a_dead_letter_and_the_delivery_is_complete(engine):
    engine.know("t", DLQ)
    delivery = engine.send_values("t", ["a", "b", "c"])
    engine.know("t", DLQ)
    engine.report(delivery, [1], ErrorCode.INVALID_RECORD)
    engine.know(DLQ)
    engine.report(delivery, [0, 2])
    assert delivery.is_complete
    assert engine.dead == {("t", "INVALID_RECORD"): 1}
    assert engine.deliveries.first_failed is None
    assert engine.deliveries.topics == {DLQ: 1}  # not acknowledged yet


def test_dead_letters_add_only_their_own_bytes_to_the_buffer(engine):
    letters, record_bytes = 20, 600_000
    delivery = engine.send_values("t", ["v" * record_bytes] * (letters + 1))
    engine.know("t", DLQ)
    for position in range(letters):  # each alone, as a broker reports them
        engine.report(delivery, [position], ErrorCode.INVALID_RECORD)
    peak = engine.deliveries.report.buffer_peak_bytes
    batch = (letters + 1) * record_bytes
    assert batch < peak < batch + 100_000
    engine.report(delivery, [letters])
    engine.know(DLQ)
    for number, position in engine.client.positions[letters + 1 :]:
        engine.report(engine.deliveries.find(number), [position])
    assert not engine.deliveries
    engine.send_values("t", ["v" * record_bytes] * letters)
    assert engine.deliveries.report.buffer_peak_bytes == peak  # all of it was given back


def test_the_good_records_of_a_rejected_batch_are_sent_again_before_later_ones(engine):
    first = engine.send_values("t", ["a", "b", "c"])
    engine.know("t", DLQ)
    engine.report(first, [1], ErrorCode.INVALID_RECORD)
    engine.report(first, [0, 2], ErrorCode.INVALID_DIFFERENT_RECORD)
    later = engine.send_values("t", ["d"])
    engine.know("t")  # its limits were requested again
    assert engine.sent(first) == [0, 1, 2, 0, 2]
    assert engine.sent(later) == []
    engine.report(first, [0, 2])
    assert engine.sent(later) == [0]
    assert engine.dead == {("t", "INVALID_RECORD"): 1}


def test_records_are_sent_again_in_the_order_of_their_sends(engine):
    first, second = engine.send_values("t", ["a", "b"]), engine.send_values("t", ["c"])
    engine.know("t", DLQ)
    # Two batches were in flight; the later one is reported first.
    engine.report(second, [0], ErrorCode.INVALID_DIFFERENT_RECORD)
    engine.report(first, [0, 1], ErrorCode.INVALID_DIFFERENT_RECORD)
    engine.client.positions.clear()
    engine.know("t")
    assert (engine.sent(first), engine.sent(second)) == ([0, 1], [])
    engine.report(first, [0, 1])
    assert engine.sent(second) == [0]


def test_a_batch_that_is_too_large_is_halved_until_the_record_is_found(engine):
    delivery = engine.send_values("t", ["a", "b", "c", "d"])
    engine.know("t", DLQ)
    engine.report(delivery, [0, 1, 2, 3], ErrorCode.MSG_SIZE_TOO_LARGE)
    for batch, code in (
        ([0, 1], 0),
        ([2, 3], ErrorCode.MSG_SIZE_TOO_LARGE),
        ([2], ErrorCode.MSG_SIZE_TOO_LARGE),
        ([3], 0),
    ):
        engine.know("t", DLQ)
        assert engine.sent(delivery)[-len(batch) :] == batch
        engine.report(delivery, batch, code)
    assert delivery.is_complete
    assert len(engine.sent(delivery)) == 4 + 2 + 2 + 1 + 1
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}


def test_one_batch_per_partition_is_in_flight_in_a_topic_of_small_batches(engine):
    numbers = pa.array([0, 1, 0, 1, 0], pa.int32())
    delivery = engine.send_values("t", ["x" * 100] * 5, partition=numbers)
    engine.know("t", DLQ, partitions=2, max_message_bytes="250")
    assert engine.sent(delivery) == [0, 1]
    engine.report(delivery, [0])
    assert engine.sent(delivery) == [0, 1]
    engine.report(delivery, [1], partition=1)
    assert engine.sent(delivery) == [0, 1, 2, 3]


def test_records_that_the_brokers_would_reject_are_not_sent(engine):
    delivery = engine.send_values("t", ["a", "b", "c"], key=pa.array(["k", None, "l"]))
    engine.know("t", DLQ, cleanup_policy="compact")
    assert engine.sent(delivery) == [0, 2]
    assert engine.dead == {("t", "INVALID_RECORD"): 1}


def test_records_larger_than_the_client_may_send_are_not_sent():
    engine = Engine(**{"kafka.max.request.size": "2000"})
    delivery = engine.send_values("t", ["a", "x" * 2000, "c"])
    engine.know("t", DLQ)
    assert engine.sent(delivery) == [0, 2]
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}


def asked_again(engine):
    """The topics whose limits were requested since the last call."""
    asked, engine.client.asked_configurations = engine.client.asked_configurations, []
    return asked


# The topic's limit is 2000: with smaller batches, several may be in flight in one partition.
SMALL_BATCHES = {"kafka.batch.size": "1000"}


def test_limits_are_fetched_again_at_the_maximum_age_while_records_go_on():
    engine = Engine(**SMALL_BATCHES)
    delivery = engine.send_values("t", ["a"])
    engine.know("t", max_message_bytes="2000")
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
    engine.answer(ConfigurationDescription("t", 0, {"max.message.bytes": "4000"}))
    assert engine.sent(engine.send_values("t", ["x" * 3000])) == [0]
    assert engine.dead == {}


LARGE = ["x" * 3000]


@pytest.fixture(params=[{}, SMALL_BATCHES], ids=["one-batch-at-a-time", "many-batches"])
def engine_with_old_limits(request):
    """A topic whose limits reject records of LARGE, and have been known for some time."""
    engine = Engine(**request.param)
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ, max_message_bytes="2000")
    engine.report(delivery, [0])
    engine.clock.now += RECENT_SECONDS + 1
    asked_again(engine)
    return engine


def test_a_record_that_old_limits_reject_waits_for_new_ones_and_is_sent_if_they_allow_it(
    engine_with_old_limits,
):
    engine = engine_with_old_limits
    first, second = engine.send_values("t", LARGE), engine.send_values("t", ["b"])
    assert (first.accepted, engine.sent(first), engine.sent(second)) == (1, [], [])
    assert asked_again(engine) == ["t"]
    engine.answer(ConfigurationDescription("t", 0, {"max.message.bytes": "1000000"}))
    assert (engine.sent(first), engine.sent(second)) == ([0], [0])
    assert engine.dead == {}


def test_a_record_is_a_dead_letter_once_new_limits_reject_it_too_and_recent_ones_ask_nobody(
    engine_with_old_limits,
):
    engine = engine_with_old_limits
    first = engine.send_values("t", LARGE)
    engine.answer(ConfigurationDescription("t", 0, {"max.message.bytes": "2000"}))
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


def test_old_limits_hold_up_no_other_topic_that_becomes_sendable_at_the_same_time(
    engine_with_old_limits,
):
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
    engine = Engine(**{"kafka.max.request.size": "2000"})
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
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}


def test_the_wait_for_new_limits_is_not_at_the_expense_of_the_wait_for_metadata(
    engine_with_old_limits,
):
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


def test_a_forbidden_topic_gives_dead_letters_at_once(engine):
    engine.send_values("t", ["a", "b"])
    engine.answer(TopicDescription("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, ()))
    assert engine.dead == {("t", "TOPIC_AUTHORIZATION_FAILED"): 2}


def test_a_topic_is_missing_only_after_a_while(engine):
    missing = TopicDescription("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ())
    engine.send_values("t", ["a"])
    engine.answer(missing)
    engine.clock.now += MISSING_TOPIC_SECONDS - 0.1
    engine.answer(missing)
    assert engine.dead == {}
    engine.clock.now += 0.1
    engine.answer(missing)
    assert engine.dead == {("t", "UNKNOWN_TOPIC_OR_PART"): 1}


def test_one_answer_and_then_silence_do_not_make_a_topic_missing_but_use_up_its_budget(engine):
    engine.send_values("t", ["a"])
    engine.answer(TopicDescription("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ()))
    engine.clock.now += 0.2
    engine.send_due()  # sends the next request
    engine.clock.now += MISSING_TOPIC_SECONDS
    engine.send_due()
    assert engine.dead == {}
    assert engine.topics.waits.first_failure(0.5) is None  # its answer is still due
    engine.answer(RequestFailed(ErrorCode.TIMED_OUT, ("t",)))
    assert engine.topics.waits.first_failure(0.5) == ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_topic_that_was_missing_long_enough_is_asked_for_once_more(engine):
    missing = TopicDescription("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ())
    engine.send_values("t", ["a"])
    engine.answer(missing)
    engine.clock.now += MISSING_TOPIC_SECONDS
    engine.answer(missing)
    second = engine.send_values("t", ["b"])
    assert not second.rejected
    engine.answer(missing)
    assert engine.dead == {("t", "UNKNOWN_TOPIC_OR_PART"): 2}
    third = engine.send_values("t", ["c"])
    engine.know("t")
    assert engine.sent(third) == [0]


def test_topics_that_become_dead_letters_are_no_failure_of_the_task(engine):
    engine.send_values("t", ["a"])
    engine.answer(TopicDescription("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ()))
    engine.clock.now += 1
    assert engine.topics.waits.first_failure(0.5) is None
    engine.send_values("silent", ["a"])
    engine.clock.now += 1
    assert engine.topics.waits.first_failure(0.5) == ("silent", 0)


def test_a_missing_topic_for_dead_letters_is_one(engine):
    engine.send_values("t", ["a"])
    engine.answer(TopicDescription("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, ()))
    engine.answer(TopicDescription(DLQ, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ()))
    engine.clock.now += 1
    assert engine.topics.waits.first_failure(0.5) == (DLQ, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_rejected_dead_letter_is_a_failure(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.report(delivery, [0], ErrorCode.INVALID_RECORD)
    engine.know(DLQ)
    (dead_letter,) = (
        number for number, _ in engine.client.positions if number != delivery.delivery_id
    )
    delivery_found = engine.deliveries.find(dead_letter)
    engine.report(delivery_found, [0], ErrorCode.MSG_SIZE_TOO_LARGE)
    assert engine.deliveries.first_failed is delivery_found


def test_other_errors_stay_failures(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.client.unreported["t"] -= 1
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    engine.answer(FailedRecords(delivery.delivery_id, 0, timed_out, True, 1))
    assert engine.deliveries.first_failed is delivery
    assert engine.dead == {}


# --- topics that are missing by one answer --------------------------------------------------------

MISSING = TopicDescription("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ())
DROPPED = [
    ErrorCode.UNKNOWN_PARTITION,
    ErrorCode.UNKNOWN_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]


@pytest.mark.parametrize("code", DROPPED)
def test_records_that_the_client_drops_for_one_answer_are_sent_again_before_later_ones(
    engine, code
):
    first, second = engine.send_values("t", ["a", "b", "c"]), engine.send_values("t", ["d"])
    engine.know("t", DLQ)
    engine.answer(MISSING)
    engine.report(second, [0], code)
    engine.report(first, [1, 2], code)
    later = engine.send_values("t", ["e"])
    engine.report(first, [0])  # was on its way to a broker
    engine.client.positions.clear()
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    for delivery, positions in ((first, [1, 2]), (second, [0]), (later, [0])):
        assert engine.sent(delivery) == positions
        engine.report(delivery, positions)
    assert [engine.deliveries.find(request.delivery_id) for request in (first, second, later)] == [
        None
    ] * 3
    assert engine.dead == {}


def test_records_that_the_client_drops_wait_for_an_answer_from_afterwards(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.client.positions.clear()
    engine.report(delivery, [0], ErrorCode.UNKNOWN_PARTITION)
    assert engine.sent(delivery) == []
    before = len(engine.client.requests)
    engine.clock.now += 1
    engine.send_due()
    assert engine.client.requests[before:] == [(["t"], 5.0)]
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    assert engine.sent(delivery) == [0]


def test_records_that_the_client_drops_become_dead_letters_once_the_topic_is_missing(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.report(delivery, [0], ErrorCode.UNKNOWN_PARTITION)
    engine.answer(MISSING)
    assert engine.dead == {}
    engine.clock.now += MISSING_TOPIC_SECONDS
    engine.answer(MISSING)
    assert engine.dead == {("t", "UNKNOWN_TOPIC_OR_PART"): 1}


def test_a_record_that_may_be_stored_neither_becomes_a_dead_letter_nor_is_sent_again(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.client.unreported["t"] -= 1
    engine.answer(
        FailedRecords(delivery.delivery_id, 0, ErrorCode.UNKNOWN_PARTITION, True, 1, (0,))
    )
    assert engine.deliveries.first_failed is delivery
    assert engine.dead == {}


@pytest.mark.parametrize("is_delegated", [True, False])
def test_records_that_the_client_rejects_for_one_answer_wait_for_the_next_one(engine, is_delegated):
    """The client calls a topic missing for some seconds after an answer that it is there."""
    delivery = engine.send_values("t", ["a"])
    engine.client.rejects[delivery.delivery_id] = ErrorCode.UNKNOWN_TOPIC
    if is_delegated:
        engine.answer(RequestFailed(ErrorCode.TIMED_OUT, ("t",)))
    else:
        engine.know("t", DLQ)
    engine.client.unreported["t"] -= 1  # the fake counts what it rejects
    engine.send_due()
    assert engine.sent(delivery) == [0]  # not again without an answer
    engine.client.rejects.clear()
    engine.know("t")
    assert engine.sent(delivery) == [0, 0]
    assert engine.dead == {}


def test_records_behind_those_that_the_client_rejects_wait_too(engine):
    """It may accept them a moment later."""
    first, second = engine.send_values("t", ["a"]), engine.send_values("t", ["b"])
    engine.client.rejects[first.delivery_id] = ErrorCode.UNKNOWN_TOPIC
    engine.know("t", DLQ)
    assert (engine.sent(first), engine.sent(second)) == ([0], [])


def test_a_chosen_partition_that_the_topic_does_not_have_gives_a_dead_letter_at_once(engine):
    delivery = engine.send_values("t", ["a"], partition=pa.array([9], pa.int32()))
    engine.client.rejects[delivery.delivery_id] = ErrorCode.UNKNOWN_PARTITION
    engine.know("t", DLQ)
    assert engine.dead == {("t", "_UNKNOWN_PARTITION"): 1}


def test_only_the_records_whose_partition_was_chosen_become_dead_letters(engine):
    partition = pa.array([None, 9, None, 9], pa.int32())
    delivery = engine.send_values("t", ["a", "b", "c", "d"], partition=partition)
    engine.client.rejects[delivery.delivery_id] = ErrorCode.UNKNOWN_PARTITION
    engine.client.rejects_all = True
    engine.know("t", DLQ)
    assert engine.dead == {("t", "_UNKNOWN_PARTITION"): 2}
    engine.client.rejects.clear()
    engine.client.unreported.clear()
    engine.client.positions.clear()
    engine.know("t")
    assert engine.sent(delivery) == [0, 2]
    engine.report(delivery, [0, 2])
    assert delivery.is_complete


@pytest.mark.parametrize("columns", [{}, {"partition": pa.array([None, 20], pa.int32())}])
def test_records_of_a_topic_that_has_fewer_partitions_now_are_sent_again(engine, columns):
    """Its metadata is from before it was created again."""
    delivery = engine.send_values("t", ["a", "b"], key=pa.array(["k", "k"]), **columns)
    engine.client.rejects[delivery.delivery_id] = ErrorCode.UNKNOWN_PARTITION
    engine.know("t", DLQ, partitions=12)
    engine.client.rejects.clear()
    engine.client.unreported.clear()  # the retry waits for the report on the other record
    engine.know("t", DLQ, partitions=6)
    assert (engine.sent(delivery), engine.dead) == ([0, 1, 0], {})
    engine.report(delivery, [0, 1])
    assert delivery.is_complete


def test_records_of_a_missing_topic_do_not_hold_up_those_of_others(engine):
    missing, other = engine.send_values("t", ["a", "b"]), engine.send_values("u", ["c"])
    engine.client.rejects[missing.delivery_id] = ErrorCode.UNKNOWN_TOPIC
    engine.client.ends_at_rejection = True  # as with headers
    engine.answer(
        *(TopicDescription(topic, 0, 1, (0,)) for topic in ("t", "u")),
        *(ConfigurationDescription(topic, 0, {}) for topic in ("t", "u")),
    )
    assert (engine.sent(missing), engine.sent(other)) == ([0], [0])


def test_bytes_of_dead_letters_and_of_records_that_were_not_accepted_do_not_count_as_sent(engine):
    engine.know("t", DLQ)
    delivery = engine.send_values("t", ["aaa", "bb", "c"])
    engine.know("t", DLQ)
    assert engine.deliveries.report.sent_bytes_by_topic["t"] == 6
    engine.report(delivery, [1], ErrorCode.INVALID_RECORD)
    assert engine.deliveries.report.sent_bytes_by_topic["t"] == 4
    engine.client.room = 1
    request = FakeEngine.send_values(engine, "t", ["dddd", "e"])
    with pytest.raises(TimeoutError), engine.closed_on_failure(request):
        raise TimeoutError
    assert engine.deliveries.report.sent_bytes_by_topic["t"] == 8


# --- in a transaction ----------------------------------------------------------------------------


@pytest.fixture
def transactional():
    engine = Engine(transaction="an-id")
    engine.prefetch(["t", DLQ])
    engine.know(DLQ)
    return engine


def test_in_a_transaction_records_that_limits_reject_become_dead_letters(transactional):
    engine = transactional
    engine.know("t", max_message_bytes="1000")
    delivery = engine.send_values("t", ["a", "v" * 2000, "b"])
    assert engine.sent(delivery) == [0, 2]
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_TOPIC])
def test_a_transaction_does_not_survive_what_is_rejected_later(transactional, code):
    engine = transactional
    engine.know("t")
    delivery = engine.send_values("t", ["a", "b"])
    assert engine.sent(delivery) == [0, 1]
    engine.report(delivery, [0, 1], code)
    assert delivery.failed == {(0, code): 2}
    assert engine.dead == {}

"""Counts of records accepted, acknowledged and failed, and the memory that they keep alive."""

from __future__ import annotations

import gc
import weakref

import pyarrow as pa
import pytest
from client_events import acknowledged
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.producer.deliveries import IncompleteDeliveries
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import UNASSIGNED
from spark_kafka_sink.records.rejection import RejectedRecords

LIMIT = 2**20


@pytest.fixture
def deliveries():
    return IncompleteDeliveries(LIMIT)


def records_of(batch):
    return split_by_topic(batch, None).records


def batch_of(size=0, topics=("t",)):
    return pa.record_batch({"value": ["v" * size for _ in topics], "topic": list(topics)})


def send(deliveries, records):
    """A delivery whose records were all accepted, and whose send is over."""
    delivery = deliveries.begin(records.topic)
    assert deliveries.admit(delivery, records)
    delivery.accepted = len(records)
    deliveries.close(delivery, records.total_bytes)
    return delivery


def acknowledge(deliveries, delivery, count=1):
    return deliveries.acknowledge(acknowledged((delivery.delivery_id, 0, count)))


def fail(deliveries, delivery, code, possibly_persisted=False, count=1):
    failed = FailedRecords(delivery.delivery_id, UNASSIGNED, code, possibly_persisted, count)
    deliveries.fail(delivery, failed)


def test_rejected_names_that_kafka_forbids_are_counted_together(deliveries):
    """They come from the data, so there may be as many as rows."""
    topics = [*(f"bad name {number}" for number in range(50)), "", None]
    batch = pa.record_batch({"value": ["v"] * len(topics), "topic": pa.array(topics, pa.string())})
    for rejected in split_by_topic(batch, None).rejected:
        deliveries.count_dead_letters(rejected)
    assert deliveries.report.dead_letters == {
        ("(forbidden names)", "INVALID_TOPIC"): 51,
        ("", "NULL_TOPIC"): 1,
    }


def timed(*milliseconds):
    times = pa.array(milliseconds, pa.timestamp("ms"))
    batch = pa.record_batch({"value": ["v"] * len(times), "at": times})
    (records,) = split_by_topic(batch, "t", timestamp_column="at").records
    return records


def test_the_oldest_timestamp_of_acknowledged_records_is_reported(deliveries):
    for times in ([3000, None, 2000], [None], [7000]):
        acknowledge(deliveries, send(deliveries, timed(*times)), len(times))
    send(deliveries, timed(1000))  # outstanding
    assert deliveries.collect_report().oldest_timestamp_ms == 2000
    assert deliveries.collect_report().oldest_timestamp_ms is None


def test_the_timestamps_of_failed_records_and_dead_letters_are_not_reported(deliveries):
    fail(deliveries, send(deliveries, timed(1000)), ErrorCode.INVALID_TIMESTAMP)
    delivery = send(deliveries, timed(1000, 5000, 2000))
    records = deliveries.records(
        FailedRecords(delivery.delivery_id, 0, ErrorCode.INVALID_TIMESTAMP, False, 2, (0, 2))
    )
    deliveries.reject(delivery, RejectedRecords(records, "INVALID_TIMESTAMP", "", b"t"))
    acknowledge(deliveries, delivery)
    assert deliveries.collect_report().oldest_timestamp_ms == 5000


def test_without_a_column_there_is_no_oldest_timestamp(deliveries):
    (records,) = records_of(batch_of())
    acknowledge(deliveries, send(deliveries, records))
    assert deliveries.collect_report().oldest_timestamp_ms is None


def test_a_delivery_is_complete_once_it_is_closed_and_nothing_is_outstanding(deliveries):
    (records,) = records_of(batch_of(topics="tt"))
    delivery = deliveries.begin("t")
    delivery.accepted = 2
    acknowledge(deliveries, delivery)
    assert (delivery.outstanding, delivery.is_complete) == (1, False)
    acknowledge(deliveries, delivery)
    assert (delivery.outstanding, delivery.is_complete) == (0, False)
    assert deliveries
    deliveries.close(delivery, records.total_bytes)
    assert delivery.is_complete
    assert not deliveries


def test_a_delivery_of_no_records_is_complete_when_it_is_closed(deliveries):
    delivery = deliveries.begin("t")
    deliveries.close(delivery)
    assert delivery.is_complete
    assert not deliveries


def test_a_topic_is_in_use_until_its_last_delivery_is_complete(deliveries):
    first, second = (send(deliveries, *records_of(batch_of())) for _ in range(2))
    acknowledge(deliveries, first)
    assert "t" in deliveries.topics
    acknowledge(deliveries, second)
    assert "t" not in deliveries.topics


def test_a_report_on_a_complete_delivery_changes_nothing(deliveries):
    delivery = send(deliveries, *records_of(batch_of()))
    acknowledge(deliveries, delivery)
    assert deliveries.find(delivery.delivery_id) is None
    assert not acknowledge(deliveries, delivery)
    assert delivery.acknowledged == deliveries.acknowledged == 1
    assert deliveries.report.acknowledged_records.total() == 1


def test_the_report_adds_up_what_became_of_all_records(deliveries):
    delivery = send(deliveries, *records_of(batch_of(size=5, topics="tttt")))
    acknowledge(deliveries, delivery)
    fail(deliveries, delivery, ErrorCode.MSG_SIZE_TOO_LARGE)
    fail(deliveries, delivery, ErrorCode.PURGE_QUEUE)
    fail(deliveries, delivery, ErrorCode.PURGE_INFLIGHT, possibly_persisted=True)
    report = deliveries.collect_report()
    assert (report.sent_records, report.sent_bytes) == ({"t": 4}, 20)
    assert report.delivered_records() == {"t": 1}
    assert (report.unsent_records, report.possibly_persisted_records) == (1, 1)
    assert deliveries.collect_report().total_sent == 0


def test_the_first_failure_is_kept_until_the_report_is_taken(deliveries):
    first, second = (send(deliveries, *records_of(batch_of())) for _ in range(2))
    fail(deliveries, second, ErrorCode.MSG_SIZE_TOO_LARGE)
    fail(deliveries, first, ErrorCode.REQUEST_TIMED_OUT)
    assert deliveries.first_failed is second
    assert second.first_error == (UNASSIGNED, ErrorCode.MSG_SIZE_TOO_LARGE)
    deliveries.collect_report()
    assert deliveries.first_failed is None


def test_purged_is_only_what_failed_for_no_other_reason(deliveries):
    delivery = send(deliveries, *records_of(batch_of(topics="tt")))
    assert not delivery.was_purged
    fail(deliveries, delivery, ErrorCode.PURGE_QUEUE)
    assert delivery.was_purged
    fail(deliveries, delivery, ErrorCode.MSG_SIZE_TOO_LARGE)
    assert not delivery.was_purged


def test_unreported_records_are_given_up_as_possibly_persisted(deliveries):
    delivery = send(deliveries, *records_of(batch_of(topics="ttt")))
    acknowledge(deliveries, delivery)
    (left,) = deliveries.outstanding()
    assert (left.count, left.code, left.possibly_persisted) == (2, ErrorCode.PURGE_INFLIGHT, True)
    deliveries.fail(delivery, left)
    assert delivery.is_complete


# --- memory ---------------------------------------------------------------------------------------


def test_batches_are_bounded_by_their_size_until_their_records_are_reported(deliveries):
    delivery = send(deliveries, *records_of(batch_of(600_000)))
    (more,) = records_of(batch_of(600_000))
    waiting = deliveries.begin("t")
    assert not deliveries.admit(waiting, more)
    acknowledge(deliveries, delivery)
    assert deliveries.admit(waiting, more)
    assert deliveries.admit(waiting, more)


def test_one_batch_always_fits_however_large_it_is(deliveries):
    for records in records_of(batch_of(LIMIT, topics="tu")):
        send(deliveries, records)


def test_a_batch_counts_once_whatever_number_of_deliveries_it_has(deliveries):
    first, second = (send(deliveries, r) for r in records_of(batch_of(300_000, topics="tu")))
    (other,) = records_of(batch_of(300_000))
    send(deliveries, other)
    acknowledge(deliveries, first)
    waiting = deliveries.begin("t")
    (more,) = records_of(batch_of(600_000))
    assert not deliveries.admit(waiting, more)
    acknowledge(deliveries, second)
    assert deliveries.admit(waiting, more)


def test_many_small_records_are_bounded_too(deliveries):
    fits = LIMIT // BYTES_PER_RECORD // 2
    send(deliveries, *records_of(batch_of(topics="t" * fits)))
    (more,) = records_of(batch_of(topics="t" * fits))
    assert not deliveries.admit(deliveries.begin("t"), more)


def test_a_complete_delivery_keeps_no_batch_alive(deliveries):
    batch = batch_of()
    (records,) = records_of(batch)
    delivery, kept = send(deliveries, records), weakref.ref(batch)
    del batch, records
    gc.collect()
    assert kept() is not None
    acknowledge(deliveries, delivery)
    gc.collect()
    assert kept() is None


@given(st.lists(st.integers(0, 3), max_size=40), st.data())
def test_all_memory_is_free_again_once_everything_is_reported(sizes, data):
    deliveries = IncompleteDeliveries(LIMIT)
    open_ones = []
    for size in sizes:
        open_ones += [send(deliveries, r) for r in records_of(batch_of(size, topics="tu"))]
    for delivery in data.draw(st.permutations(open_ones)):
        acknowledge(deliveries, delivery)
    assert deliveries._buffered_bytes == 0
    assert not deliveries._batches
    assert not deliveries.topics


def test_acknowledgements_that_arrive_together_count_for_their_own_sends_and_topics(deliveries):
    first, second = (records_of(batch_of(topics="ttt"))[0] for _ in range(2))
    (other,) = records_of(batch_of(topics="uu"))
    sent = [send(deliveries, records) for records in (first, second, other)]
    given_up = 99
    topics = deliveries.acknowledge(
        acknowledged(
            (sent[0].delivery_id, 0, 2),
            (sent[1].delivery_id, 1, 1),
            (given_up, 1, 5),
            (sent[2].delivery_id, 1, 2),
            (sent[0].delivery_id, 1, 1),
            (sent[1].delivery_id, 1, 1),
        )
    )
    assert set(topics) == {"t", "u"}
    assert [delivery.outstanding for delivery in sent] == [0, 1, 0]
    assert deliveries.acknowledged == 7
    assert deliveries.report.acknowledged_records == {("t", 0): 2, ("t", 1): 3, ("u", 1): 2}
    assert set(deliveries.topics) == {"t"}

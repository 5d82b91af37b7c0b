"""Counts of records sent, acknowledged and failed, and the memory that they keep alive."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
from client_events import acknowledged
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.producer.sends import IncompleteSends
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import UNASSIGNED
from spark_kafka_sink.records.rejection import RejectedRecords

LIMIT = 2**20


@pytest.fixture
def sends():
    return IncompleteSends(LIMIT)


def records_of(batch):
    return split_by_topic(batch, None).records


def batch_of(size=0, topics=("t",)):
    return pa.record_batch({"value": ["v" * size for _ in topics], "topic": list(topics)})


def admit(sends, records):
    """A send of records for which there is room."""
    send = sends.admit(records)
    assert send is not None
    return send


def acknowledge(sends, send, count=1):
    return sends.acknowledge(acknowledged((send.send_id, 0, count)))


def fail(sends, send, code, possibly_persisted=False, count=1):
    failed = FailedRecords(send.send_id, UNASSIGNED, code, possibly_persisted, count)
    sends.fail(send, failed)


def test_rejected_names_that_kafka_forbids_are_counted_together(sends):
    """They come from the data, so there may be as many as rows."""
    topics = [*(f"bad name {number}" for number in range(50)), "", None]
    batch = pa.record_batch({"value": ["v"] * len(topics), "topic": pa.array(topics, pa.string())})
    for rejected in split_by_topic(batch, None).rejected:
        sends.count_dead_letters(rejected)
    assert sends.report.dead_letters == {
        ("(forbidden names)", "INVALID_TOPIC"): 51,
        ("", "NULL_TOPIC"): 1,
    }


def timed(*milliseconds):
    times = pa.array(milliseconds, pa.timestamp("ms"))
    batch = pa.record_batch({"value": ["v"] * len(times), "at": times})
    (records,) = split_by_topic(batch, "t", timestamp_column="at").records
    return records


def test_the_oldest_timestamp_of_acknowledged_records_is_reported(sends):
    for times in ([3000, None, 2000], [None], [7000]):
        acknowledge(sends, admit(sends, timed(*times)), len(times))
    admit(sends, timed(1000))  # outstanding
    assert sends.collect_report().oldest_timestamp_ms == 2000
    assert sends.collect_report().oldest_timestamp_ms is None


def test_the_timestamps_of_failed_records_and_dead_letters_are_not_reported(sends):
    fail(sends, admit(sends, timed(1000)), ErrorCode.INVALID_TIMESTAMP)
    send = admit(sends, timed(1000, 5000, 2000))
    records = sends.records(
        FailedRecords(send.send_id, 0, ErrorCode.INVALID_TIMESTAMP, False, 2, (0, 2))
    )
    sends.replace_by_dead_letters(send, RejectedRecords(records, "INVALID_TIMESTAMP", "", b"t"))
    acknowledge(sends, send)
    assert sends.collect_report().oldest_timestamp_ms == 5000


def test_without_a_column_there_is_no_oldest_timestamp(sends):
    (records,) = records_of(batch_of())
    acknowledge(sends, admit(sends, records))
    assert sends.collect_report().oldest_timestamp_ms is None


def test_a_send_is_complete_once_nothing_is_outstanding(sends):
    send = admit(sends, *records_of(batch_of(topics="tt")))
    acknowledge(sends, send)
    assert (send.outstanding, send.is_complete) == (1, False)
    assert sends
    acknowledge(sends, send)
    assert (send.outstanding, send.is_complete) == (0, True)
    assert not sends


def test_a_send_of_no_records_is_complete_at_once(sends):
    (records,) = records_of(batch_of())
    assert admit(sends, records.take(np.array([], dtype=np.int64))).is_complete
    assert not sends


def test_a_topic_is_in_use_until_its_last_send_is_complete(sends):
    first, second = (admit(sends, *records_of(batch_of())) for _ in range(2))
    acknowledge(sends, first)
    assert "t" in sends.topics
    acknowledge(sends, second)
    assert "t" not in sends.topics


def test_a_report_on_a_complete_send_changes_nothing(sends):
    send = admit(sends, *records_of(batch_of()))
    acknowledge(sends, send)
    assert sends.find(send.send_id) is None
    assert not acknowledge(sends, send)
    assert send.acknowledged == sends.acknowledged == 1
    assert sends.report.acknowledged_records.total() == 1


def test_the_report_adds_up_what_became_of_all_records(sends):
    send = admit(sends, *records_of(batch_of(size=5, topics="tttt")))
    acknowledge(sends, send)
    fail(sends, send, ErrorCode.MSG_SIZE_TOO_LARGE)
    fail(sends, send, ErrorCode.PURGE_QUEUE)
    fail(sends, send, ErrorCode.PURGE_INFLIGHT, possibly_persisted=True)
    report = sends.collect_report()
    assert (report.sent_records, report.sent_bytes) == ({"t": 4}, 20)
    assert report.delivered_records() == {"t": 1}
    assert (report.unsent_records, report.possibly_persisted_records) == (1, 1)
    assert sends.collect_report().total_sent == 0


def test_the_first_failure_is_kept_until_the_report_is_taken(sends):
    first, second = (admit(sends, *records_of(batch_of())) for _ in range(2))
    fail(sends, second, ErrorCode.MSG_SIZE_TOO_LARGE)
    fail(sends, first, ErrorCode.REQUEST_TIMED_OUT)
    assert sends.first_failed is second
    assert second.first_error == (UNASSIGNED, ErrorCode.MSG_SIZE_TOO_LARGE)
    sends.collect_report()
    assert sends.first_failed is None


def test_purged_is_only_what_failed_for_no_other_reason(sends):
    send = admit(sends, *records_of(batch_of(topics="tt")))
    assert not send.was_purged
    fail(sends, send, ErrorCode.PURGE_QUEUE)
    assert send.was_purged
    fail(sends, send, ErrorCode.MSG_SIZE_TOO_LARGE)
    assert not send.was_purged


def test_unreported_records_are_given_up_as_possibly_persisted(sends):
    send = admit(sends, *records_of(batch_of(topics="ttt")))
    acknowledge(sends, send)
    (left,) = sends.outstanding()
    assert (left.count, left.code, left.possibly_persisted) == (2, ErrorCode.PURGE_INFLIGHT, True)
    sends.fail(send, left)
    assert send.is_complete


# --- memory ---------------------------------------------------------------------------------------


def test_batches_are_bounded_by_their_size_until_their_records_are_reported(sends):
    send = admit(sends, *records_of(batch_of(600_000)))
    (more,) = records_of(batch_of(600_000))
    assert sends.admit(more) is None
    acknowledge(sends, send)
    assert sends.admit(more) is not None


def test_one_batch_always_fits_however_large_it_is(sends):
    for records in records_of(batch_of(LIMIT, topics="tu")):
        admit(sends, records)


def test_a_batch_counts_once_whatever_number_of_sends_it_has(sends):
    first, second = (admit(sends, r) for r in records_of(batch_of(300_000, topics="tu")))
    (other,) = records_of(batch_of(300_000))
    admit(sends, other)
    acknowledge(sends, first)
    (more,) = records_of(batch_of(600_000))
    assert sends.admit(more) is None
    acknowledge(sends, second)
    assert sends.admit(more) is not None


def test_many_small_records_are_bounded_too(sends):
    fits = LIMIT // BYTES_PER_RECORD // 2
    admit(sends, *records_of(batch_of(topics="t" * fits)))
    (more,) = records_of(batch_of(topics="t" * fits))
    assert sends.admit(more) is None


def test_a_complete_send_keeps_no_batch_alive(sends):
    batch = batch_of()
    (records,) = records_of(batch)
    send, kept = admit(sends, records), weakref.ref(batch)
    del batch, records
    gc.collect()
    assert kept() is not None
    acknowledge(sends, send)
    gc.collect()
    assert kept() is None


@given(st.lists(st.integers(0, 3), max_size=40), st.data())
def test_all_memory_is_free_again_once_everything_is_reported(sizes, data):
    sends = IncompleteSends(LIMIT)
    open_ones = []
    for size in sizes:
        open_ones += [admit(sends, r) for r in records_of(batch_of(size, topics="tu"))]
    for send in data.draw(st.permutations(open_ones)):
        acknowledge(sends, send)
    assert sends._buffered_bytes == 0
    assert not sends._sends_by_arrow_batch
    assert not sends.topics


def test_acknowledgements_that_arrive_together_count_for_their_own_sends_and_topics(sends):
    first, second = (records_of(batch_of(topics="ttt"))[0] for _ in range(2))
    (other,) = records_of(batch_of(topics="uu"))
    sent = [admit(sends, records) for records in (first, second, other)]
    given_up = 99
    topics = sends.acknowledge(
        acknowledged(
            (sent[0].send_id, 0, 2),
            (sent[1].send_id, 1, 1),
            (given_up, 1, 5),
            (sent[2].send_id, 1, 2),
            (sent[0].send_id, 1, 1),
            (sent[1].send_id, 1, 1),
        )
    )
    assert set(topics) == {"t", "u"}
    assert [send.outstanding for send in sent] == [0, 1, 0]
    assert sends.acknowledged == 7
    assert sends.report.acknowledged_records == {("t", 0): 2, ("t", 1): 3, ("u", 1): 2}
    assert set(sends.topics) == {"t"}

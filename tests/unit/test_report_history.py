"""Adding reports up, and thinning long histories."""

from __future__ import annotations

import pytest
from report_lines import report

from spark_kafka_sink.tools.report.history import History


def history(*reports, **keywords):
    first, *others = reports
    history_read = History(first, **keywords)
    for other in others:
        history_read.add(other)
    return history_read


def test_sums_maxima_and_counts():
    total = history(
        report(0, records=3, longest_task_ms=700, dead_letters_by_topic={"a": {"X": 1, "Y": 2}}),
        report(1, records=4, longest_task_ms=900, dead_letters_by_topic={"": {"X": 5}}),
    ).total
    assert (total.micro_batches, total.records) == (2, 7)
    assert (total.longest_task_ms, total.longest_tasks_ms) == (900, 1600)
    assert total.total_dead_letters_by_topic() == {"a": 3, "": 5}
    assert total.dead_letters_by_error() == {"X": 6, "Y": 2}
    assert total.dead_letters == 8


def test_what_is_not_known_spoils_nothing():
    unknown = {"retried_requests": None, "round_trip_p99_ms": None}
    assert history(report(0, **unknown), report(1, **unknown)).total.retried_requests is None
    total = history(report(0, **unknown), report(1, retried_requests=2), report(2)).total
    assert (total.retried_requests, total.round_trip_p99_ms) == (2, 4.5)


def test_the_latest_error_of_a_broker_stays():
    reports = [report(n, broker_error=text) for n, text in enumerate(("first", "second", ""))]
    assert history(*reports).total.broker_error == "second"


def test_rates_count_the_time_since_the_micro_batch_before():
    read = history(report(0), report(1))
    assert [sample.records_per_second for sample in read.latest] == [10_000, 5_000]
    assert read.latest[1].records_per_task_second == 10_000


def test_a_clock_that_was_set_back_makes_no_negative_time():
    assert history(report(10), report(0)).latest[1].elapsed_ms == 1_000


def test_no_time_is_no_rate():
    total = history(report(0, longest_task_ms=0, task_ms=0, tasks=0)).total
    assert (total.records_per_second, total.records_per_task_second) == (None, None)
    assert total.shares() == {}


def test_time_in_which_no_task_can_have_run():
    assert history(report(0), report(1)).latest[1].idle_ms == 0
    assert history(report(0), report(4)).latest[1].idle_ms == 4_000


def test_the_rest_of_the_time_is_the_sinks_own_and_never_negative():
    total = history(report(0, rows_wait_ms=3_000, buffer_wait_ms=400)).total
    assert total.own_ms == 600
    assert total.shares()["rows_wait_ms"] == 0.75
    rounded = history(report(0, task_ms=10, rows_wait_ms=11)).total
    assert (rounded.own_ms, rounded.shares()["rows_wait_ms"]) == (0, 1)


@pytest.mark.parametrize("number", [1, 3, 4, 5, 8, 9, 17, 100])
def test_thinning_drops_nothing(number):
    failed_at = number // 2
    reports = [
        report(batch_id, failed_records_by_topic={"a": 7}, outcome="failed")
        if batch_id == failed_at
        else report(batch_id, buffer_peak_bytes=batch_id)
        for batch_id in range(number)
    ]
    read = history(*reports, max_samples=4)
    assert len(read.samples) <= 4
    assert sum(sample.micro_batches for sample in read.samples) == number
    assert sum(sample.failed_records for sample in read.samples) == 7
    assert sum(sample.failed_micro_batches for sample in read.samples) == 1
    assert sum(sample.records for sample in read.samples) == read.total.records
    assert sum(sample.elapsed_ms for sample in read.samples) == read.total.elapsed_ms
    assert max(sample.buffer_peak_bytes for sample in read.samples) == read.total.buffer_peak_bytes
    assert [sample.first.batch_id for sample in read.samples] == list(
        range(0, number, read.micro_batches_per_sample)
    )
    assert {sample.micro_batches for sample in read.samples[:-1]} <= {read.micro_batches_per_sample}


def test_short_histories_are_not_thinned():
    read = history(*map(report, range(240)))
    assert (len(read.samples), read.micro_batches_per_sample) == (240, 1)
    read.add(report(240))
    assert (len(read.samples), read.micro_batches_per_sample) == (121, 2)


def test_only_the_latest_micro_batches_are_kept():
    read = history(*map(report, range(10)), latest=3)
    assert [sample.last.batch_id for sample in read.latest] == [7, 8, 9]


def test_queries_are_known_in_the_order_of_their_latest_report():
    reports = [report(n, query_id=query_id) for n, query_id in enumerate(("a", "b", None, "a"))]
    assert list(history(*reports).query_ids) == ["b", None, "a"]

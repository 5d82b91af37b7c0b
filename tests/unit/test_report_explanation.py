"""What takes a micro-batch's time, in words."""

from __future__ import annotations

import pytest
from report_lines import report

from spark_kafka_sink.tools.report.explanation import (
    dominant_component,
    explain,
    idle_sentence,
    slowest,
)
from spark_kafka_sink.tools.report.history import History, Interval


def interval(**changed):
    return Interval.from_report(report(**changed), None)


TWO_TOPICS = {"sent_bytes_by_topic": {"orders": 900, "returns": 100}}

# The tasks' time is 4,000 ms: what is found, and what is advised.
TABLE = {
    "rows": (
        {"rows_wait_ms": 3_320},
        (
            "Waiting for rows from Spark takes 83 % of the tasks' time: for the source or the "
            "query, not for Kafka."
        ),
        "Spark's UI",
    ),
    "metadata of new producers": (
        {"metadata_wait_ms": 2_800, "producers_created": 3, "producers_reused": 1},
        "Waiting for metadata takes 70 % of the tasks' time",
        "3 producers were created for 4 tasks: call warm_up",
    ),
    "metadata of topics": (
        {"metadata_wait_ms": 2_800},
        "Waiting for metadata takes 70 % of the tasks' time",
        "The brokers answer slowly, or topics are missing or new",
    ),
    "buffer": (
        {"buffer_wait_ms": 2_000, "rows_wait_ms": 1_900},
        (
            "Waiting for room in the buffer takes 50 % of the tasks' time: the brokers acknowledge "
            "more slowly than rows arrive."
        ),
        "Look at the brokers' load",
    ),
    "buffer, retries": (
        {"buffer_wait_ms": 3_000, "retried_requests": 7, "broker_error": "b1: Disconnected"},
        "Waiting for room in the buffer takes 75 %",
        "7 requests had to be repeated (b1: Disconnected)",
    ),
    "buffer, one topic": (
        {"buffer_wait_ms": 3_000, **TWO_TOPICS},
        "Waiting for room in the buffer takes 75 %",
        "90 % of the bytes go to the topic orders",
    ),
    "buffer, slow broker": (
        {"buffer_wait_ms": 3_000, "round_trip_p99_ms": 480.0},
        "Waiting for room in the buffer takes 75 %",
        "The slowest broker answers in up to 480 ms (p99)",
    ),
    "acknowledgements": (
        {"acknowledgement_wait_ms": 2_200, "retried_requests": None, "round_trip_p99_ms": None},
        (
            "Waiting for acknowledgements takes 55 % of the tasks' time: the tasks have no more "
            "rows, but the brokers have not acknowledged all records."
        ),
        "Look at the brokers' load",
    ),
    "no broker": (
        {"acknowledgement_wait_ms": 2_200, "records": 0, "broker_error": "b1: Connection refused"},
        "Waiting for the brokers takes 55 % of the tasks' time, and they acknowledged no record.",
        "Check that they run and are reachable: b1: Connection refused",
    ),
    "no broker knows the topic": (
        {"metadata_wait_ms": 2_800, "records": 0, "broker_error": "b1: Timed out"},
        "Waiting for the brokers takes 70 %",
        "Check that they run and are reachable: b1: Timed out",
    ),
    "one partition": (
        {"buffer_wait_ms": 2_200, "busiest_partition_records": 9_000, "sent_bytes_by_topic": {}},
        "Waiting for room in the buffer takes 55 %",
        "90 % of the records go to the partition orders-1",
    ),
    "one partition, few records": (
        {"buffer_wait_ms": 2_200, "records": 9, "busiest_partition_records": 9},
        "Waiting for room in the buffer takes 55 %",
        "Look at the brokers' load",
    ),
    "Kafka in both ways": (
        {"acknowledgement_wait_ms": 1_200, "buffer_wait_ms": 1_600},
        (
            "Waiting for Kafka takes 70 % of the tasks' time: 40 % for room in the buffer, 30 % "
            "for acknowledgements at the end."
        ),
        "Look at the brokers' load",
    ),
    "the sink": (
        {"rows_wait_ms": 400},
        "The sink itself takes 90 % of the tasks' time: it waits neither for Spark nor for Kafka.",
        "More cores",
    ),
    "nothing in particular": (
        {"rows_wait_ms": 1_600, "metadata_wait_ms": 800},
        (
            "Nothing dominates. Waiting for rows from Spark takes 40 % of the tasks' time, the "
            "sink itself 40 %."
        ),
        "both",
    ),
    "one task": (
        {"task_ms": 4_000, "longest_task_ms": 3_600, "tasks": 8, "rows_wait_ms": 3_000},
        (
            "One task delays the others: it takes 7.2 times as long as the average. Waiting for "
            "rows from Spark takes 75 %"
        ),
        "repartition",
    ),
    "short tasks": (
        {"task_ms": 320, "longest_task_ms": 90, "rows_wait_ms": 300},
        "Waiting for rows from Spark takes 94 %",
        "No task took longer than 90 ms",
    ),
    "nothing known": ({"task_ms": 0, "tasks": 0, "longest_task_ms": 0}, "No task has reported", ""),
}


@pytest.mark.parametrize(("changed", "finding", "advice"), TABLE.values(), ids=TABLE)
def test_what_takes_the_time_is_named_with_what_to_do(changed, finding, advice):
    sentences = explain(interval(**changed))
    assert sentences.finding.startswith(finding)
    assert advice in sentences.advice
    assert str(sentences).strip() == str(sentences)


def test_one_retry_in_a_long_history_is_no_explanation():
    history = History(report(0, buffer_wait_ms=4_000, retried_requests=1))
    history.add(report(1, buffer_wait_ms=4_000))
    assert "Look at the brokers' load" in explain(history.total).advice


def test_a_history_is_explained_by_its_sums():
    history = History(report(0, rows_wait_ms=4_000))
    for number in range(1, 4):
        history.add(report(number, buffer_wait_ms=4_000))
    assert explain(history.total).finding.startswith("Waiting for room in the buffer takes 75 %")


def test_a_stream_that_has_delivered_nothing_is_explained():
    nothing = {"records": 0, "busiest_partition": None, "busiest_partition_records": 0}
    nothing["sent_bytes_by_topic"] = {"orders": 0, "returns": 0}
    history = History(report(0, acknowledgement_wait_ms=3_000, **nothing))
    assert "Look at the brokers' load" in explain(history.total).advice
    history.add(report(1, acknowledgement_wait_ms=3_000, **nothing))
    assert "Look at the brokers' load" in explain(history.total).advice


def test_a_failed_micro_batch_shows_no_straggler_because_not_all_of_its_tasks_ran():
    failed = {"outcome": "failed", "tasks": 200, "task_ms": 8_000, "buffer_wait_ms": 6_000}
    history = History(report(0, **failed))
    assert explain(history.total).finding.startswith("Waiting for room in the buffer takes 75 %")
    history.add(report(1, tasks=20))
    assert explain(history.total).finding.startswith("One task delays the others: it takes 5.0")


def test_the_dominant_part_in_a_few_words():
    assert dominant_component(interval(rows_wait_ms=3_320)) == "waiting for rows from Spark: 83 %"
    assert dominant_component(interval(task_ms=0)) == ""


def test_a_stream_that_stood_still_most_of_the_time():
    history = History(report(0))
    history.add(report(1))
    assert idle_sentence(history.total) == ""
    history.add(report(20))
    assert idle_sentence(history.total).startswith("For at least 83 % of the time no task ran")


def test_a_stream_that_stood_still_if_all_its_tasks_ran_at_once():
    history = History(report(0, task_ms=100_000))
    history.add(report(20, task_ms=100_000))
    sentence = idle_sentence(history.total)
    assert sentence.startswith("Unless tasks waited for cores, no task ran for 95 % of the time: ")


def test_a_slow_phase_is_found_in_a_long_history():
    history = History(report(0))
    for number in range(1, 20):
        slow = {"task_ms": 9_000, "buffer_wait_ms": 6_000} if number == 7 else {}
        history.add(report(number, **slow))
    samples = slowest(history.samples)
    assert samples is history.samples[7]
    assert explain(samples).finding.startswith("Waiting for room in the buffer takes 67 %")


def test_where_all_take_about_the_same_time_none_is_the_slowest():
    history = History(report(0))
    assert slowest(history.samples) is None
    history.add(report(1, task_ms=6_000))
    assert slowest(history.samples) is None
    assert slowest([interval(task_ms=0), interval(task_ms=0)]) is None


def test_one_micro_batch_tells_no_standstill():
    assert idle_sentence(interval(task_ms=0)) == ""


def test_no_time_is_no_standstill():
    history = History(report(0, task_ms=0, longest_task_ms=0))
    history.add(report(0, task_ms=0, longest_task_ms=0))
    assert idle_sentence(history.total) == ""

"""KafkaSinkListener: what it knows from Spark's events and the sink's reports."""

from __future__ import annotations

import json
import logging
import os
import pickle
import threading

import pytest
from listener_events import (
    QUERY_ID,
    RUN_ID,
    MadeUpReport,
    failed_report,
    progressed,
    started,
    terminated,
)

from spark_kafka_sink import KafkaSinkError, KafkaSinkListener
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark import listener as module
from spark_kafka_sink.spark.warm_up import QUERY_NAME

OTHER_ID = "99999999-2222-3333-4444-555555555555"


@pytest.fixture
def listener():
    listener = KafkaSinkListener()
    listener.onQueryStarted(started())
    return listener


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "reports"


def write(folder, *reports, number=1):
    folder.mkdir(exist_ok=True)
    with (folder / f"report-{number:09}.jsonl").open("a") as file:
        file.writelines(report.to_json() + "\n" for report in reports)


RECORDS = "kafka_producer_record_send_total"
ROWS = "spark_streaming_input_rows_total"
OUTCOMES = "spark_kafka_sink_micro_batches_total"
ACTIVE = "spark_streaming_query_active"
FAILURES = "spark_streaming_query_failures_total"
LAG = "spark_streaming_max_offsets_behind_latest"


def known_queries(listener):
    """What is exported, by the query's name and id."""
    return listener._values()


def metric(listener, name):
    """By the query's name, its values by their labels; without queries of which it is unknown."""
    return {
        query: values
        for (query, _), known in known_queries(listener).items()
        for metric, values in known.by_metric.items()
        if metric.name == name and values
    }


def total(listener, name):
    return {query: sum(values.values()) for query, values in metric(listener, name).items()}


# --- joining --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_report_first", [True, False])
def test_progress_and_reports_are_counted_in_either_order(listener, is_report_first):
    if is_report_first:
        listener.on_report(MadeUpReport())
    listener.onQueryProgress(progressed(behind=17))
    if not is_report_first:
        listener.on_report(MadeUpReport())
    assert metric(listener, RECORDS) == {"orders": {("a",): 4, ("b",): 3}}
    assert total(listener, ROWS) == {"orders": 8}
    assert total(listener, LAG) == {"orders": 17}


def test_queries_are_kept_apart(listener):
    listener.onQueryStarted(started("other", OTHER_ID))
    listener.on_report(MadeUpReport(query_id=OTHER_ID, records=5))
    listener.on_report(MadeUpReport())
    listener.onQueryProgress(progressed())
    assert total(listener, ROWS) == {"orders": 8}
    assert total(listener, RECORDS).keys() == {"orders", "other"}


def test_a_repeated_micro_batch_counts_again(listener):
    listener.on_report(failed_report())
    listener.onQueryTerminated(terminated("TopicUnavailable: no topic a\n\tat java"))
    listener.onQueryStarted(started())
    listener.on_report(MadeUpReport())
    assert metric(listener, OUTCOMES) == {"orders": {("delivered",): 1, ("failed",): 1}}


def test_a_listener_that_is_added_late_learns_the_name_from_the_progress():
    listener = KafkaSinkListener()
    listener.on_report(MadeUpReport())
    assert total(listener, RECORDS) == {QUERY_ID: 7}
    listener.onQueryProgress(progressed())
    assert total(listener, RECORDS) == {"orders": 7}


def test_a_batch_write_is_counted_without_a_query(listener):
    listener.on_report(MadeUpReport(query_id=None, batch_id=None))
    listener.on_report(MadeUpReport(query_id=None, batch_id=None))
    assert total(listener, RECORDS) == {"": 14}


def test_a_report_that_does_not_name_its_query_is_of_the_only_one_that_runs(listener):
    listener.on_report(failed_report(query_id=None))
    listener.onQueryStarted(started("other", OTHER_ID))
    listener.on_report(failed_report(query_id=None))
    assert metric(listener, OUTCOMES).keys() == {"orders", ""}


def test_whether_a_query_runs_follows_sparks_events(listener):
    def state():
        return total(listener, ACTIVE)["orders"], total(listener, FAILURES)["orders"]

    assert state() == (1, 0)
    listener.onQueryTerminated(terminated("DeliveryFailed: 2 records\n\tat java"))
    assert state() == (0, 1)
    listener.onQueryStarted(started())
    assert state() == (1, 1)
    listener.onQueryTerminated(terminated())
    assert state() == (0, 1)


def test_the_end_of_a_run_may_be_told_after_the_next_start(listener):
    next_run = RUN_ID.replace("6", "5")
    listener.onQueryStarted(started(run_id=next_run))
    listener.onQueryTerminated(terminated("TopicUnavailable: no topic a"))
    assert (total(listener, ACTIVE), total(listener, FAILURES)) == ({"orders": 1}, {"orders": 1})
    listener.onQueryTerminated(terminated(run_id=next_run))
    assert (total(listener, ACTIVE), total(listener, FAILURES)) == ({"orders": 0}, {"orders": 1})


def test_warm_up_is_no_query_of_the_user():
    listener = KafkaSinkListener()
    listener.onQueryStarted(started(QUERY_NAME))
    listener.onQueryProgress(progressed(name=QUERY_NAME))
    listener.onQueryTerminated(terminated())
    assert known_queries(listener) == {}


def test_ended_queries_are_forgotten_before_running_ones(monkeypatch):
    monkeypatch.setattr(module, "_MAX_QUERIES", 2)
    listener = KafkaSinkListener()
    first, second, third = (f"{n}{QUERY_ID[1:]}" for n in (7, 8, 9))
    listener.onQueryStarted(started("runs", first))
    listener.onQueryStarted(started("ended", second))
    listener.onQueryTerminated(terminated(query_id=second))
    listener.onQueryStarted(started("new", third))
    assert [query for query, _ in known_queries(listener)] == ["runs", "new"]


# --- gaps -----------------------------------------------------------------------------------------


def test_on_report_never_fails_the_query(listener, caplog):
    class Broken(DeliveryReport):
        def to_json(self):
            return json.dumps({"version": 2})

    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        listener.on_report(Broken())
    assert "could not read a report" in caplog.text
    assert "update spark-kafka-sink" in caplog.text


def test_a_listener_cannot_be_sent_to_another_process(listener):
    with pytest.raises(pickle.PicklingError, match=r"set the option report\.path"):
        pickle.dumps(listener.on_report)


# --- folders --------------------------------------------------------------------------------------


def test_reports_are_read_from_the_folder_that_the_first_one_creates(folder):
    listener = KafkaSinkListener(folder)
    listener.onQueryStarted(started())
    write(folder, MadeUpReport())
    listener.onQueryProgress(progressed())
    assert total(listener, RECORDS) == {"orders": 7}
    write(folder, MadeUpReport(batch_id=1), number=2)
    assert total(listener, RECORDS) == {"orders": 14}


def test_reports_of_earlier_runs_are_not_counted(folder):
    write(folder, MadeUpReport())
    listener = KafkaSinkListener(str(folder))
    write(folder, MadeUpReport(batch_id=1))
    assert total(listener, RECORDS) == {QUERY_ID: 7}


def test_reports_of_earlier_runs_are_parsed_only_where_the_query_changes(folder, monkeypatch):
    """There may be millions of them."""
    earlier = [MadeUpReport(batch_id=number) for number in range(9)]
    write(folder, MadeUpReport(query_id=OTHER_ID), *earlier)
    parsed = []
    parse = module.parse
    monkeypatch.setattr(module, "parse", lambda line: parsed.append(line) or parse(line))
    listener = KafkaSinkListener(folder)
    assert len(parsed) == 2
    write(folder, failed_report(query_id=None))
    assert metric(listener, OUTCOMES) == {QUERY_ID: {("delivered",): 0, ("failed",): 1}}


def test_a_line_that_is_being_written_is_read_when_it_is_whole(folder):
    listener = KafkaSinkListener(folder)
    whole = MadeUpReport().to_json() + "\n"
    folder.mkdir()
    file = folder / "report-000000001.jsonl"
    file.write_text(whole[:100])
    assert total(listener, RECORDS) == {}
    file.write_text(whole)
    assert total(listener, RECORDS) == {QUERY_ID: 7}


def test_each_query_may_have_a_folder(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    listener = KafkaSinkListener(folders)
    write(folders[0], MadeUpReport())
    write(folders[1], MadeUpReport(query_id=OTHER_ID))
    # A failure that names no query is of the query of its folder.
    write(folders[0], failed_report(query_id=None, batch_id=1))
    assert metric(listener, OUTCOMES) == {
        QUERY_ID: {("delivered",): 1, ("failed",): 1},
        OTHER_ID: {("delivered",): 1, ("failed",): 0},
    }


def test_the_last_report_of_a_query_that_fails_is_of_the_query(folder):
    listener = KafkaSinkListener(folder)
    listener.onQueryStarted(started())
    write(folder, failed_report(query_id=None))
    listener.onQueryTerminated(terminated("DeliveryFailed: 2 records"))
    assert metric(listener, OUTCOMES) == {"orders": {("delivered",): 0, ("failed",): 1}}


@pytest.mark.parametrize("is_folder_first", [True, False])
def test_reports_that_arrive_in_both_ways_count_once(folder, is_folder_first):
    listener = KafkaSinkListener(folder)
    for batch_id in range(2):
        report = MadeUpReport(batch_id=batch_id)
        if not is_folder_first:
            listener.on_report(report)
        write(folder, report)
        listener.onQueryProgress(progressed(batch_id))
        if is_folder_first:
            listener.on_report(report)
    assert total(listener, RECORDS) == {"orders": 14}


def test_the_next_run_may_report_in_the_other_way(folder):
    listener = KafkaSinkListener(folder)
    listener.onQueryStarted(started())
    listener.on_report(MadeUpReport())
    listener.onQueryTerminated(terminated())
    listener.onQueryStarted(started())
    write(folder, MadeUpReport(batch_id=1))
    assert total(listener, RECORDS) == {"orders": 14}


def test_reports_of_a_run_that_are_read_after_the_next_start_count_once(folder):
    listener = KafkaSinkListener(folder)
    listener.onQueryStarted(started())
    listener.on_report(MadeUpReport())
    write(folder, MadeUpReport())
    listener.onQueryStarted(started())
    write(folder, MadeUpReport(batch_id=1))
    listener.onQueryProgress(progressed(1))
    listener.on_report(MadeUpReport(batch_id=1))
    assert total(listener, RECORDS) == {"orders": 14}


def test_a_line_that_is_no_report_is_logged_once(folder, caplog):
    listener = KafkaSinkListener(folder)
    write(folder, MadeUpReport(version=2), MadeUpReport())
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        assert total(listener, RECORDS) == {QUERY_ID: 7}
        assert total(listener, RECORDS) == {QUERY_ID: 7}
    assert caplog.text.count("line 1, was skipped: a report of version 2") == 1


def test_a_folder_that_may_not_be_read_is_rejected(folder, monkeypatch):
    def rejected(path):
        raise PermissionError(13, "Permission denied", str(path))

    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(os, "scandir", rejected)
    with pytest.raises(KafkaSinkError, match=r"reports cannot be read: .*Permission denied"):
        KafkaSinkListener(folder)


def test_a_folder_that_cannot_be_read_is_logged_once(folder, monkeypatch, caplog):
    listener = KafkaSinkListener(folder)

    def rejected(_):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(module.ReportFiles, "new", rejected)
    for _ in range(2):
        assert known_queries(listener) == {}
    assert caplog.text.count("reports cannot be read") == 1
    assert str(folder) in caplog.text


def test_health_does_not_wait_for_files(folder, monkeypatch):
    listener = KafkaSinkListener(folder)
    is_reading, goes_on = threading.Event(), threading.Event()

    def slow(_):
        is_reading.set()
        goes_on.wait(60)
        return iter(())

    monkeypatch.setattr(module.ReportFiles, "new", slow)
    scrape = threading.Thread(target=listener._values)
    scrape.start()
    assert is_reading.wait(60)
    assert listener._problems() == ["no query runs"]
    assert scrape.is_alive()
    goes_on.set()
    scrape.join()


def test_a_file_uri_is_a_folder_of_this_machine(folder):
    listener = KafkaSinkListener(f"file://{folder}")
    write(folder, MadeUpReport())
    assert total(listener, RECORDS) == {QUERY_ID: 7}


def test_a_folder_of_another_machine_is_rejected():
    with pytest.raises(KafkaSinkError, match="only folders of this machine, not s3://bucket/a"):
        KafkaSinkListener("s3://bucket/a")

"""KafkaSinkListener: what it knows from Spark's events and the sink's reports."""

from __future__ import annotations

import json
import logging
import os
import pickle

import pytest
from listener_events import (
    QUERY_ID,
    RUN_ID,
    MadeUpReport,
    failed_report,
    idle,
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


def rows(listener, *names):
    return [tuple(row[name] for name in names) for row in listener.snapshot().micro_batches]


def query_values(listener):
    (values,) = listener._values().values()
    return values


# --- joining --------------------------------------------------------------------------------------


def test_progress_and_report_of_a_micro_batch_are_one_row(listener):
    listener.on_report(MadeUpReport())
    listener.onQueryProgress(progressed(behind=17))
    (row,) = listener.snapshot().micro_batches
    assert row["query"] == "orders"
    assert (row["query_id"], row["batch_id"]) == (QUERY_ID, 0)
    assert (row["input_rows"], row["duration_ms"], row["offsets_behind_latest"]) == (8, 2000, 17)
    assert row["durations_ms"] == {"addBatch": 1500, "triggerExecution": 2000}
    assert (row["outcome"], row["records"]) == ("delivered", 7)
    assert row["records_by_topic"] == {"a": 4, "b": 3}
    assert row["started_at"] < row["ended_at"]


def test_a_report_may_arrive_after_the_progress(listener):
    listener.onQueryProgress(progressed())
    listener.on_report(MadeUpReport())
    assert rows(listener, "input_rows", "records") == [(8, 7)]


def test_queries_with_the_same_micro_batch_are_kept_apart(listener):
    listener.onQueryStarted(started("other", OTHER_ID))
    listener.on_report(MadeUpReport(query_id=OTHER_ID, records=5))
    listener.on_report(MadeUpReport())
    listener.onQueryProgress(progressed())
    listener.onQueryProgress(progressed(name="other", query_id=OTHER_ID))
    known = rows(listener, "query", "batch_id", "records", "input_rows")
    assert known == [("other", 0, 5, 8), ("orders", 0, 7, 8)]


def test_a_repeated_micro_batch_is_another_row(listener):
    listener.on_report(failed_report())
    listener.onQueryTerminated(terminated("TopicUnavailable: no topic a\n\tat java"))
    listener.onQueryStarted(started())
    listener.on_report(MadeUpReport())
    listener.onQueryProgress(progressed())
    assert rows(listener, "outcome", "input_rows") == [("failed", None), ("delivered", 8)]


def test_progress_of_an_idle_query_is_no_micro_batch(listener):
    listener.onQueryProgress(progressed(behind=17))
    listener.onQueryProgress(idle(behind=3))
    assert rows(listener, "batch_id", "offsets_behind_latest") == [(0, 17)]


def test_only_the_latest_micro_batches_are_kept():
    listener = KafkaSinkListener(keep_micro_batches=3)
    for batch_id in range(10):
        listener.onQueryProgress(progressed(batch_id))
    assert rows(listener, "batch_id") == [(7,), (8,), (9,)]
    assert listener.snapshot().queries[0].micro_batches == 10


def test_a_listener_that_is_added_late_learns_the_name_from_the_progress():
    listener = KafkaSinkListener()
    listener.on_report(MadeUpReport())
    assert rows(listener, "query") == [(QUERY_ID,)]
    listener.onQueryProgress(progressed())
    assert rows(listener, "query", "records") == [("orders", 7)]


def test_a_batch_write_has_a_row_without_query(listener):
    listener.on_report(MadeUpReport(query_id=None, batch_id=None))
    listener.on_report(MadeUpReport(query_id=None, batch_id=None))
    assert rows(listener, "query", "batch_id", "records") == [("", None, 7)] * 2


def test_a_report_that_does_not_name_its_query_is_of_the_only_one_that_runs(listener):
    listener.on_report(failed_report(query_id=None))
    listener.onQueryStarted(started("other", OTHER_ID))
    listener.on_report(failed_report(query_id=None))
    assert rows(listener, "query") == [("orders",), ("",)]


def test_the_state_of_a_query_follows_sparks_events(listener):
    def state():
        (query,) = listener.snapshot().queries
        return query.state, query.error

    assert state() == ("running", "")
    listener.onQueryTerminated(terminated("DeliveryFailed: 2 records\n\tat java"))
    assert state() == ("failed", "DeliveryFailed: 2 records")
    listener.onQueryStarted(started())
    assert state() == ("running", "")
    listener.onQueryTerminated(terminated())
    assert state() == ("ended", "")


def test_the_end_of_a_run_may_be_told_after_the_next_start(listener):
    next_run = RUN_ID.replace("6", "5")
    listener.onQueryStarted(started(run_id=next_run))
    listener.onQueryTerminated(terminated("TopicUnavailable: no topic a"))
    (query,) = listener.snapshot().queries
    assert (query.state, query.error) == ("running", "")
    values = {metric.name: each for metric, each in query_values(listener).of.items()}
    assert values["spark_streaming_query_active"] == {(): 1}
    assert values["spark_streaming_query_failures_total"] == {(): 1}
    listener.onQueryTerminated(terminated(run_id=next_run))
    (query,) = listener.snapshot().queries
    assert query.state == "ended"


def test_warm_up_is_no_query_of_the_user():
    listener = KafkaSinkListener()
    listener.onQueryStarted(started(QUERY_NAME))
    listener.onQueryProgress(progressed(name=QUERY_NAME))
    listener.onQueryTerminated(terminated())
    assert listener.snapshot().queries == ()


def test_ended_queries_are_forgotten_before_running_ones(monkeypatch):
    monkeypatch.setattr(module, "_MOST_QUERIES", 2)
    listener = KafkaSinkListener()
    first, second, third = (f"{n}{QUERY_ID[1:]}" for n in (7, 8, 9))
    listener.onQueryStarted(started("runs", first))
    listener.onQueryStarted(started("ended", second))
    listener.onQueryTerminated(terminated(query_id=second))
    listener.onQueryStarted(started("new", third))
    assert [query.name for query in listener.snapshot().queries] == ["runs", "new"]


# --- gaps -----------------------------------------------------------------------------------------


def test_without_reports_nothing_is_claimed_about_deliveries(listener):
    listener.onQueryProgress(progressed())
    snapshot = listener.snapshot()
    (row,) = snapshot.micro_batches
    assert (row["input_rows"], row["records"], row["records_by_topic"]) == (8, None, None)
    assert "orders: what was delivered is not known" in repr(snapshot)
    assert "on_report=listener.on_report" in snapshot._repr_html_()


def test_nothing_is_missing_before_the_first_micro_batch(listener):
    assert repr(listener.snapshot()) == "Snapshot of queries: 1, latest micro-batches: 0"


def test_a_snapshot_does_not_change(listener):
    listener.on_report(MadeUpReport())
    before = listener.snapshot()
    kept = pickle.dumps(before.micro_batches)
    listener.onQueryProgress(progressed())
    listener.on_report(MadeUpReport(batch_id=1))
    assert pickle.dumps(before.micro_batches) == kept


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
    write(folder, MadeUpReport(batch_id=1), number=2)
    assert rows(listener, "batch_id", "records", "input_rows") == [(0, 7, 8), (1, 7, None)]


def test_reports_of_earlier_runs_are_passed_over(folder):
    write(folder, MadeUpReport())
    listener = KafkaSinkListener(str(folder))
    write(folder, MadeUpReport(batch_id=1))
    assert rows(listener, "batch_id") == [(1,)]


def test_a_line_that_is_being_written_is_read_when_it_is_whole(folder):
    listener = KafkaSinkListener(folder)
    whole = MadeUpReport().to_json() + "\n"
    folder.mkdir()
    file = folder / "report-000000001.jsonl"
    file.write_text(whole[:100])
    assert rows(listener, "batch_id") == []
    file.write_text(whole)
    assert rows(listener, "batch_id") == [(0,)]


def test_each_query_may_have_a_folder(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    listener = KafkaSinkListener(folders)
    write(folders[0], MadeUpReport())
    write(folders[1], MadeUpReport(query_id=OTHER_ID))
    # A failure that names no query is of the query of its folder.
    write(folders[0], failed_report(query_id=None, batch_id=1))
    assert rows(listener, "query_id", "outcome") == [
        (QUERY_ID, "delivered"),
        (QUERY_ID, "failed"),
        (OTHER_ID, "delivered"),
    ]


def test_the_last_report_of_a_query_that_fails_is_of_the_query(folder):
    listener = KafkaSinkListener(folder)
    listener.onQueryStarted(started())
    write(folder, failed_report(query_id=None))
    listener.onQueryTerminated(terminated("DeliveryFailed: 2 records"))
    assert rows(listener, "query", "outcome") == [("orders", "failed")]


def test_a_report_that_arrives_in_both_ways_counts_once(folder):
    listener = KafkaSinkListener(folder)
    for batch_id in range(2):
        report = MadeUpReport(batch_id=batch_id)
        write(folder, report)
        listener.on_report(report)
        listener.onQueryProgress(progressed(batch_id))
    assert rows(listener, "batch_id", "records") == [(0, 7), (1, 7)]
    assert listener.snapshot().queries[0].reports == 2


def test_a_line_that_is_no_report_is_noted_once(folder, caplog):
    listener = KafkaSinkListener(folder)
    write(folder, MadeUpReport(version=2), MadeUpReport())
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        assert rows(listener, "records") == [(7,)]
    (note,) = listener.snapshot().notes
    assert "line 1, was skipped: a report of version 2" in note
    assert caplog.text.count("line 1") == 1


def test_a_folder_that_may_not_be_read_is_refused(folder, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(KafkaSinkError, match=r"reports cannot be read: .*Permission denied"):
        KafkaSinkListener(folder)


def test_a_folder_that_cannot_be_read_is_noted(folder, monkeypatch):
    listener = KafkaSinkListener(folder)

    def refused(_):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(module.ReportFiles, "new", refused)
    (note,) = listener.snapshot().notes
    assert "reports cannot be read" in note
    assert str(folder) in note


def test_a_file_uri_is_a_folder_of_this_machine(folder):
    listener = KafkaSinkListener(f"file://{folder}")
    write(folder, MadeUpReport())
    assert rows(listener, "batch_id") == [(0,)]


def test_a_folder_of_another_machine_is_refused():
    with pytest.raises(KafkaSinkError, match="only folders of this machine, not s3://bucket/a"):
        KafkaSinkListener("s3://bucket/a")


# --- pandas and HTML ------------------------------------------------------------------------------


def test_a_frame_has_the_same_columns_whatever_is_known(listener):
    empty = listener.snapshot().to_pandas()
    listener.onQueryProgress(progressed())
    without = listener.snapshot().to_pandas()
    listener.on_report(MadeUpReport())
    joined = listener.snapshot().to_pandas()
    assert list(empty.columns) == list(without.columns) == list(joined.columns)
    assert without["records"].isna().all()
    assert str(joined["records"].dtype) == "Int64"
    assert joined["records"].sum() == 7
    assert str(joined["ended_at"].dtype).startswith("datetime64")


def test_html_shows_failures_and_escapes_what_users_name(listener):
    listener.onQueryStarted(started("<b>", OTHER_ID))
    listener.on_report(failed_report(query_id=OTHER_ID))
    listener.onQueryTerminated(terminated("x < y", query_id=OTHER_ID))
    html = listener._repr_html_()
    assert "&lt;b&gt;" in html
    assert "x &lt; y" in html
    assert "<b>" not in html
    assert "failed" in html


def test_html_shows_the_latest_micro_batches_first_and_counts_the_others(listener):
    for batch_id in range(30):
        listener.onQueryProgress(progressed(batch_id, numInputRows=1000 + batch_id))
    html = listener.snapshot()._repr_html_()
    assert "1,029" in html
    assert "1,009" not in html
    assert html.index("1,029") < html.index("1,010")
    assert "and 10 earlier ones" in html

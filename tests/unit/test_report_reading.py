"""Reading reports, and what is done with lines that are none."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_lines import fields, line, report, write

from spark_kafka_sink.report.batch_figures import FIGURES, BatchFigures
from spark_kafka_sink.report.reading import ReportFiles, SkippedLine, parse


def batch_ids(files):
    return [report.batch_id for report in files.new()]


def test_files_are_read_in_the_order_of_their_numbers(tmp_path):
    for number, file in ((3, 10), (1, 2), (2, 9)):
        write(tmp_path, number, file=file)
    (tmp_path / "notes.txt").write_text("no report")
    assert batch_ids(ReportFiles(tmp_path)) == [1, 2, 3]


def test_one_file_can_be_read(tmp_path):
    file = write(tmp_path, 1, 2)
    write(tmp_path, 3, file=1)
    assert batch_ids(ReportFiles(file)) == [1, 2]


def test_what_is_new_is_read_once_also_in_new_files(tmp_path):
    files = ReportFiles(tmp_path)
    assert batch_ids(files) == []
    write(tmp_path, 1)
    assert batch_ids(files) == [1]
    write(tmp_path, 2)
    write(tmp_path, 3, file=1)
    assert batch_ids(files) == [2, 3]
    assert batch_ids(files) == []


def test_old_files_are_not_opened_again(tmp_path, monkeypatch):
    write(tmp_path, 1, file=1)
    cut = write(tmp_path, 2, file=2)
    cut.write_bytes(cut.read_bytes() + line(3)[:100])  # its writer may still be at it
    write(tmp_path, 4, file=3)
    write(tmp_path, 9, file=99).rename(tmp_path / "copied-99.jsonl")  # of another writer
    files, opened, open_file = ReportFiles(tmp_path), [], Path.open

    def open_and_count(file, *arguments):
        opened.append(file.stem)
        return open_file(file, *arguments)

    assert batch_ids(files) == [1, 2, 4, 9]
    write(tmp_path, 5, file=3)
    monkeypatch.setattr(Path, "open", open_and_count)
    assert batch_ids(files) == [5]
    assert opened == ["report-2", "report-3", "copied-99"]


def test_a_file_that_gets_the_name_of_a_deleted_one_is_read(tmp_path):
    files = ReportFiles(tmp_path)
    for numbers in ((1, 2, 3), (4, 5)):
        for file, number in enumerate(numbers):
            write(tmp_path, number, file=file)
        assert batch_ids(files) == [*numbers]
        for path in tmp_path.iterdir():
            path.unlink()
        assert batch_ids(files) == []


def test_a_file_that_is_deleted_while_others_are_read_is_left_out(tmp_path):
    first, deleted, _ = (write(tmp_path, number, file=number) for number in (1, 2, 3))
    reports = ReportFiles(tmp_path).new()
    assert next(reports).batch_id == 1
    deleted.unlink()
    assert [report.batch_id for report in reports] == [3]
    files = ReportFiles(first)
    first.unlink()
    with pytest.raises(FileNotFoundError):
        batch_ids(files)


def test_a_last_line_that_is_cut_off_is_read_when_it_is_complete(tmp_path):
    file = write(tmp_path, 1)
    whole = line(2)
    files = ReportFiles(tmp_path)
    with file.open("ab") as stream:
        stream.write(whole[:100])
        stream.flush()
        assert batch_ids(files) == [1]
        stream.write(whole[100:])
    assert batch_ids(files) == [2]


def test_a_last_line_may_lack_its_end_of_line(tmp_path):
    file = tmp_path / "reports.jsonl"
    file.write_bytes(line(1) + line(2).rstrip())
    assert batch_ids(ReportFiles(file)) == [1, 2]


def test_lines_that_are_no_reports_are_skipped_with_their_place(tmp_path):
    file = write(tmp_path, 1)
    with file.open("ab") as stream:
        stream.write(line(2)[:100] + b"\n\n" + line(3, version=2) + line(4))
    read = list(ReportFiles(tmp_path).new())
    assert [item.batch_id for item in read if isinstance(item, BatchFigures)] == [1, 4]
    cut, newer = (item for item in read if isinstance(item, SkippedLine))
    assert (cut.file, cut.number, cut.reason) == (file, 2, "not JSON, or truncated")
    assert newer.number == 4
    assert "version 2" in newer.reason
    assert "update spark-kafka-sink" in newer.reason


def test_a_path_that_does_not_exist_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(ReportFiles(tmp_path / "missing").new())


def test_values_arrive_with_their_types():
    read = report(
        ended_at="2026-11-22T09:00:00.123+01:00",
        dead_letters_by_topic={"a": {"NULL_TOPIC": 2}},
        retried_requests=None,
        query_id=None,
    )
    assert read.ended_at == datetime(2026, 11, 22, 8, 0, 0, 123_000, tzinfo=timezone.utc)
    assert read.dead_letters_by_topic["a"]["NULL_TOPIC"] == 2
    assert (read.retried_requests, read.query_id) == (None, None)


def test_unknown_fields_are_ignored():
    assert report(new_field=1) == report()


NEW = {name for name, figure in FIGURES.items() if figure.is_new}


def test_a_report_of_an_earlier_release_lacks_what_is_new():
    known = fields(cross_rack_records=3)
    assert parse(json.dumps(known).encode()).cross_rack_records == 3
    del known["cross_rack_records"]
    assert parse(json.dumps(known).encode()).cross_rack_records is None


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in NEW])
def test_a_missing_field_is_named(name):
    known = fields()
    del known[name]
    with pytest.raises(ValueError, match=rf"a report without {name}$"):
        parse(json.dumps(known).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tasks", -1),
        ("tasks", True),
        ("tasks", 1.5),
        ("tasks", None),
        ("task_ms", 10**400),
        ("records_by_topic", {"a": "1"}),
        ("records_by_topic", []),
        ("dead_letters_by_topic", {"a": 1}),
        ("round_trip_p99_ms", math.nan),
        ("round_trip_p99_ms", "1"),
        ("ended_at", "2026-11-22T08:00:00"),
        ("ended_at", "0001-01-01T00:00:00+14:00"),
        ("ended_at", 1),
        ("broker_error", None),
    ],
)
def test_a_wrong_field_is_named(name, value):
    with pytest.raises(ValueError, match=rf"a report with a wrong {name}$"):
        report(**{name: value})


@pytest.mark.parametrize("text", [b"[1]", b"{}", b"1", b'{"version": "1"}', b'{"version": 0}'])
def test_other_json_is_no_report(text):
    with pytest.raises(ValueError, match="not a report of a micro-batch"):
        parse(text)


@given(st.binary())
def test_any_bytes_are_a_report_or_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse(text)


def test_deep_nesting_is_no_crash():
    with pytest.raises(ValueError, match="not JSON"):
        parse(b"[" * 1_000_000)


def test_texts_from_users_data_have_no_control_characters():
    read = report(broker_error="a\x1b[31m\nb\ud800", records_by_topic={"\x07t": 1})
    assert read.broker_error == "a�[31m b�"
    assert read.records_by_topic == {"�t": 1}

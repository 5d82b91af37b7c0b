"""The report's JSON, its JSON Schema and its page say the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from spark_kafka_sink.report.delivery_report import VERSION, DeliveryReport, Wait

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "report_schema.json").read_text(encoding="utf-8"))

FULL = DeliveryReport(
    Counter(a=5, b=1),
    Counter(a=50),
    Counter({("a", 0, -192): 2, ("a", -1, -152): 1}),
    acknowledged_records=Counter({("a", 0): 2, ("b", 3): 1}),
    unsent_records=1,
    possibly_persisted_records=2,
    dead_letters=Counter({("", "NULL_TOPIC"): 3}),
    broker_error="connection refused",
    tasks=3,
    failed_tasks=1,
    task_seconds=1.5,
    longest_task_seconds=1.0,
    wait_us=Counter({Wait.ROWS: 2_000, Wait.BUFFER: 600}),
    first_acknowledgement_seconds=0.25,
    metadata_requests=2,
    buffer_peak_bytes=1000,
    buffer_memory_bytes=2000,
    producers_created=1,
    producers_reused=2,
    retried_requests=4,
    cross_rack_records=2,
    round_trip_ms=(0.5, 7.25),
    batch_id=7,
    query_id="q",
    outcome="failed",
)


@pytest.mark.parametrize("report", [DeliveryReport(), FULL], ids=["empty", "full"])
def test_a_report_fits_the_schema(report):
    line = json.loads(report.to_json())
    Draft202012Validator(SCHEMA).validate(line)
    assert list(line) == SCHEMA["required"] == list(SCHEMA["properties"])
    assert line["version"] == VERSION


def test_the_page_lists_the_schemas_names_and_meanings():
    page = (DOCS / "report_format.md").read_text(encoding="utf-8")
    for name, of in SCHEMA["properties"].items():
        assert f"| `{name}` | {of['description']} |" in page


def test_what_a_report_says():
    line = json.loads(FULL.to_json())
    assert line["outcome"] == "failed"
    assert line["records_by_topic"] == {"a": 2, "b": 1}
    assert (line["busiest_partition"], line["busiest_partition_records"]) == ("a-0", 2)
    assert line["failed_records_by_error"] == {"_MSG_TIMED_OUT": 2, "_PURGE_QUEUE": 1}
    assert (line["task_ms"], line["rows_wait_ms"], line["buffer_wait_ms"]) == (1500, 2, 1)
    assert (line["round_trip_p50_ms"], line["round_trip_p99_ms"]) == (0.5, 7.25)


def test_reports_of_tasks_add_up():
    other = DeliveryReport(
        Counter(a=1),
        tasks=1,
        task_seconds=2.0,
        longest_task_seconds=2.0,
        wait_us=Counter({Wait.ROWS: 1_000}),
        buffer_peak_bytes=10,
        round_trip_ms=(0.75, 1.0),
    )
    both = FULL + other
    assert (both.tasks, both.failed_tasks, both.query_id) == (4, 1, "q")
    assert (both.task_seconds, both.longest_task_seconds) == (3.5, 2.0)
    assert both.wait_us == {Wait.ROWS: 3_000, Wait.BUFFER: 600}
    assert both.first_acknowledgement_seconds == 0.25
    assert (both.buffer_peak_bytes, both.retried_requests) == (1000, 4)
    assert both.round_trip_ms == (0.75, 1.0)


def test_a_report_passes_through_json():
    assert DeliveryReport.from_plain(json.loads(json.dumps(FULL.to_plain()))) == FULL

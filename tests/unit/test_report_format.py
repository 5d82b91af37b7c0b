"""The report's JSON, its JSON Schema and its page follow from the table of figures."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from report_lines import first_release, line

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.report.batch_figures import FIGURES, VERSION, BatchFigures
from spark_kafka_sink.report.delivery_report import DeliveryReport, Wait, uncommitted
from spark_kafka_sink.report.figures import Kind
from spark_kafka_sink.report.reading import parse

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "report_schema.json").read_text(encoding="utf-8"))

FULL = DeliveryReport(
    Counter(a=5, b=1),
    Counter(a=50),
    Counter({("a", 0, -192): 2, ("a", -1, -152): 1}),
    acknowledged_records=Counter({("b", 3): 1, ("a", 0): 1, ("a", 1): 2}),
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
    parsed = json.loads(report.to_json())
    Draft202012Validator(SCHEMA).validate(parsed)
    assert list(parsed) == SCHEMA["required"] == list(SCHEMA["properties"])
    assert parsed["version"] == VERSION


def test_pages_and_schema_are_current():
    pages = runpy.run_path(str(DOCS / "figures.py"))["pages"]()
    assert len(pages) == 7
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, "run `make figures`"


def test_the_page_lists_the_schemas_names_and_meanings():
    page = (DOCS / "report_format.md").read_text(encoding="utf-8")
    for name, of in SCHEMA["properties"].items():
        assert f"| `{name}` | {of['description']} |" in page


def test_only_figures_that_reports_of_the_first_release_have_must_be_in_a_line():
    assert {name for name, figure in FIGURES.items() if not figure.is_new} == first_release() - {
        "version"
    }
    assert parse(line()).cross_rack_records is None


def test_the_type_of_each_figure_is_that_of_its_kind():
    types = {kind: kind.value.__name__ for kind in Kind} | {
        Kind.INTEGERS_BY_NAME: "Counter[str]",
        Kind.INTEGERS_BY_TOPIC_AND_ERROR: "Mapping[str, Counter[str]]",
    }
    assert {field.name: field.type for field in fields(BatchFigures)} == {
        name: types[figure.kind] + " | None" * figure.nullable for name, figure in FIGURES.items()
    }


def test_only_numbers_and_texts_have_a_line_of_their_own():
    shown = {figure.kind for figure in FIGURES.values() if figure.line}
    assert shown <= {Kind.INTEGER, Kind.NUMBER, Kind.TEXT}


def test_what_a_report_says():
    line = FULL.to_json()
    assert "\n" not in line
    assert '"records": 4, "sent_bytes": 50, "records_by_topic": {"a": 3, "b": 1}' in line
    parsed = json.loads(line)
    assert parsed["outcome"] == "failed"
    assert (parsed["busiest_partition"], parsed["busiest_partition_records"]) == ("a-1", 2)
    assert parsed["failed_records_by_error"] == {"_MSG_TIMED_OUT": 2, "DROPPED_BEFORE_SEND": 1}
    assert (parsed["task_ms"], parsed["rows_wait_ms"], parsed["buffer_wait_ms"]) == (1500, 2, 1)
    assert (parsed["round_trip_p50_ms"], parsed["round_trip_p99_ms"]) == (0.5, 7.25)


def test_reports_of_tasks_add_up():
    other = DeliveryReport(
        Counter(a=1),
        failed_records=Counter({("a", 0, -192): 1}),
        broker_error="timed out",
        tasks=1,
        task_seconds=2.0,
        longest_task_seconds=2.0,
        wait_us=Counter({Wait.ROWS: 1_000}),
        buffer_peak_bytes=10,
        round_trip_ms=(0.75, 1.0),
    )
    both = FULL + other
    assert (both.sent_records, FULL.sent_records) == ({"a": 6, "b": 1}, {"a": 5, "b": 1})
    assert both.failed_records == {("a", 0, -192): 3, ("a", -1, -152): 1}
    assert (both.broker_error, (other + FULL).broker_error) == ("timed out", "connection refused")
    assert (other + DeliveryReport()).broker_error == "timed out"
    assert (both.tasks, both.failed_tasks, both.query_id) == (4, 1, "q")
    assert (both.task_seconds, both.longest_task_seconds) == (3.5, 2.0)
    assert both.wait_us == {Wait.ROWS: 3_000, Wait.BUFFER: 600}
    assert both.first_acknowledgement_seconds == 0.25
    assert (both.buffer_peak_bytes, both.retried_requests) == (1000, 4)
    assert both.round_trip_ms == (0.75, 1.0)


def test_every_field_of_a_report_passes_through_json():
    empty = vars(DeliveryReport())
    unset = [name for name, value in vars(FULL).items() if value == empty[name]]
    full = replace(FULL, **dict.fromkeys(unset, 7))
    assert DeliveryReport.from_plain(json.loads(json.dumps(full.to_plain()))) == full


def test_only_the_topics_with_the_most_rejected_records_are_named():
    """Rows may name any number of topics that do not exist."""
    report = DeliveryReport()
    for number in range(2_000):
        report.dead_letters[f"missing-{number:04d}", "UNKNOWN_TOPIC_OR_PART"] = 1
    report.dead_letters["orders", "MSG_SIZE_TOO_LARGE"] = 7
    report.dead_letters["orders", "INVALID_TIMESTAMP"] = 1
    by_topic = report.dead_letters_by_topic()
    assert len(by_topic) == 101
    assert by_topic["orders"] == {"INVALID_TIMESTAMP": 1, "MSG_SIZE_TOO_LARGE": 7}
    assert by_topic["(other topics)"] == {"UNKNOWN_TOPIC_OR_PART": 1_901}
    assert len(report.to_json()) < 8_000


def test_records_that_the_sink_gave_up_have_names_of_their_own():
    sent = DeliveryReport(
        acknowledged_records=Counter({("a", 0): 2, ("b", 1): 3}),
        failed_records=Counter(
            {("a", 0, ErrorCode.PURGE_QUEUE): 4, ("a", 1, ErrorCode.PURGE_INFLIGHT): 1}
        ),
        possibly_persisted_records=1,
    )
    dropped = {"DROPPED_BEFORE_SEND": 4, "DROPPED_IN_FLIGHT": 1}
    aborted = uncommitted(sent, is_aborted=True).to_dict()
    assert aborted["failed_records_by_error"] == dropped | {"TRANSACTION_ABORTED": 5}
    assert (aborted["records"], aborted["possibly_persisted_records"]) == (0, 1)
    in_doubt = uncommitted(sent, is_aborted=False).to_dict()
    assert in_doubt["failed_records_by_error"] == dropped | {"COMMIT_NOT_CONFIRMED": 5}
    assert (in_doubt["records"], in_doubt["possibly_persisted_records"]) == (0, 6)
    page = (DOCS / "report_format.md").read_text(encoding="utf-8")
    for name in {**aborted["failed_records_by_error"], **in_doubt["failed_records_by_error"]}:
        assert f"| `{name}` |" in page

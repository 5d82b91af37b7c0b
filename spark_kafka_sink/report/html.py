"""A report as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spark_kafka_sink.report.figures import FIGURES
from spark_kafka_sink.report.notebook import Highlighted, box, highlighted_line, line, table

_NO_TOPIC = "(null)"
_MOST_TOPICS = 50


def report_html(report: Mapping[str, Any]) -> str:
    """From the names and values of ``DeliveryReport.to_json``; unknown figures are omitted."""
    parts = [_topics(report), table([], _facts(report))]
    if report.get("broker_error"):
        parts.append(highlighted_line(f"latest error of the brokers: {report['broker_error']}"))
    return box(_title(report), *parts)


def _title(report: Mapping[str, Any]) -> str:
    batch_id = report.get("batch_id")
    what = "Delivery report" if batch_id is None else f"Micro-batch {batch_id}"
    outcome = f", {report['outcome']}" if report.get("outcome") else ""
    return f"{what}{outcome}: {report['records']:,} records acknowledged"


def _topics(report: Mapping[str, Any]) -> str:
    delivered = report["records_by_topic"]
    sent_bytes = report.get("sent_bytes_by_topic", {})
    failed = report.get("failed_records_by_topic", {})
    rejected = {name: sum(each.values()) for name, each in report["dead_letters_by_topic"].items()}
    names = sorted({*delivered, *failed, *rejected}, key=lambda name: -delivered.get(name, 0))
    if not names:
        return line("no records")
    rows = [
        (
            name or _NO_TOPIC,
            delivered.get(name, 0),
            sent_bytes.get(name),
            Highlighted(failed.get(name, 0)),
            Highlighted(rejected.get(name, 0)),
        )
        for name in names[:_MOST_TOPICS]
    ]
    header = ["topic", "acknowledged", "bytes", "failed", "dead letters"]
    others = len(names) - len(rows)
    return table(header, rows) + (line(f"and {others:,} other topics") if others else "")


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, figure in FIGURES.items():
        value = report.get(name)
        if figure.notebook and value is not None:
            yield figure.notebook, Highlighted(value) if figure.is_highlighted else value

"""A history on a terminal, or as plain text."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_kafka_sink.tools.report.explanation import dominant_component, summary
from spark_kafka_sink.tools.report.formatting import mebibytes, rate, rows, time_range, topics, utc
from spark_kafka_sink.tools.report.history import History, Interval

_MAX_TOPICS = 15


def render(history: History) -> RenderableType:
    """The whole history and the latest micro-batch."""
    total, latest = history.total, history.latest[-1]
    return Group(
        Text(time_range(total), "bold"),
        *(Text(line, "dim") for line in queries(history)),
        Text(),
        _explanations(history),
        Text(),
        _figures(total, latest),
        Text(),
        _topics(total),
    )


def _explanations(history: History) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, text in summary(history):
        table.add_row(Text(name, "bold"), Text(text))
    return table


def queries(history: History) -> list[str]:
    """A line on the queries that have written the reports."""
    known = [query_id for query_id in history.query_ids if query_id]
    if not known:
        return ["batch writes, or queries none of whose tasks began"]
    others = f" and {len(known) - 1:,} more: all are added up" if known[1:] else ""
    return [f"query {known[-1]}{others}"]


def line(micro_batch: Interval) -> str:
    """A micro-batch in one line of text."""
    report = micro_batch.last
    parts = (
        utc(report.ended_at),
        f"micro-batch {'-' if report.batch_id is None else report.batch_id}",
        report.outcome,
        f"{micro_batch.records:,} records",
        rate(micro_batch.records_per_second),
        f"{micro_batch.failed_records:,} failed",
        f"{micro_batch.dead_letters:,} dead letters",
        dominant_component(micro_batch),
    )
    return "  ".join(filter(None, parts))


def _figures(total: Interval, latest: Interval) -> Table:
    # Text: what comes from a report is not rich's markup.
    table = Table("", "latest micro-batch", "all")
    for row in rows(latest, total):
        table.add_row(*map(Text, row))
    return table


def _topics(total: Interval) -> Table:
    table = Table("topic", "records", "sent", "failed", "dead letters")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, records, sent_bytes, failed, dead in topics(total, _MAX_TOPICS):
        bad = (Text(f"{number:,}", "red" if number else "") for number in (failed, dead))
        table.add_row(Text(name), f"{records:,}", mebibytes(sent_bytes), *bad)
    return table

"""Figures as text: the same on a terminal and on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from spark_kafka_sink.report.batch_figures import FIGURES
from spark_kafka_sink.tools.report.history import COMPONENTS, Interval

_MAX_NAMES = 5
_NOT_KNOWN = "not known"
NO_TOPIC = "(null)"


def share(part: float) -> str:
    """A fraction of 1, in per cent."""
    return "below 1 %" if 0 < part < 0.01 else f"{100 * part:.0f} %"


def milliseconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:,.2f} s"


def mebibytes(size_bytes: int) -> str:
    mib = size_bytes / 2**20
    return f"{mib:,.1f} MiB" if size_bytes == 0 or mib >= 0.1 else f"{size_bytes:,} bytes"


def rate(records_per_second: float | None) -> str:
    return "-" if records_per_second is None else f"{records_per_second:,.0f}/s"


def utc(time: datetime) -> str:
    """The time without its zone, which is written once beside all times."""
    return f"{time:%Y-%m-%d %H:%M:%S}"


def time_range(interval: Interval) -> str:
    """How many micro-batches, and the ends of the first and the last one."""
    first, last = utc(interval.first.ended_at), utc(interval.last.ended_at)
    if interval.micro_batches == 1:
        return f"1 micro-batch, ended {last} UTC"
    return f"{interval.micro_batches:,} micro-batches, ended {first} to {last} UTC"


def rows(latest: Interval, total: Interval) -> Iterator[tuple[str, str, str]]:
    """The rows of the table of figures: name, latest micro-batch, all micro-batches."""
    latest_values = dict(_named_values(latest))
    for name, value in _named_values(total):
        yield name, latest_values.get(name, _NOT_KNOWN), value


def _named_values(interval: Interval) -> Iterator[tuple[str, str]]:
    yield "records", f"{interval.records:,}"
    yield "records per second", rate(interval.records_per_second)
    yield "while the longest task ran", rate(interval.records_per_task_second)
    yield "sent", mebibytes(interval.sent_bytes)
    yield "tasks", _tasks(interval)
    yield "longest task", milliseconds(interval.longest_task_ms)
    yield "all tasks' time", milliseconds(interval.task_ms)
    shares = interval.shares()
    for name, label in COMPONENTS.items():
        part = f"{share(shares[name])}, {milliseconds(getattr(interval, name))}" if shares else "-"
        yield f"- {label}", part
    yield "most in a task's buffer", _buffer(interval)
    created, reused = interval.producers_created, interval.producers_reused
    yield "producers", f"{created:,} created, {reused:,} reused"
    yield "failed micro-batches", f"{interval.failed_micro_batches:,}"
    yield "dead letters", _total(interval.dead_letters, interval.dead_letters_by_error())
    yield "failed records", _total(interval.failed_records, interval.failed_records_by_error)
    for name, figure in FIGURES.items():
        value = getattr(interval, name)
        # A new figure that is null for all micro-batches may belong to an option that is not used.
        if figure.line and (value is not None or not figure.is_new):
            yield figure.line, _figure(name, value)


def topics(interval: Interval, most: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Topic, acknowledged records, sent bytes, failed records and dead letters; largest first.

    Topics beyond the first ``most`` come last, as one.
    """
    columns = (
        interval.records_by_topic,
        interval.sent_bytes_by_topic,
        interval.failed_records_by_topic,
        interval.total_dead_letters_by_topic(),
    )
    names = {name for column in columns for name in column}
    ordered = sorted(names, key=lambda name: (-columns[0][name], -columns[1][name], name))
    for name in ordered[:most]:
        yield name or NO_TOPIC, *_sums(columns, [name])
    if ordered[most:]:
        yield f"{len(ordered[most:]):,} other topics", *_sums(columns, ordered[most:])


def _sums(columns: tuple[Counter[str], ...], names: list[str]) -> tuple[int, int, int, int]:
    records, sent_bytes, failed, dead = (sum(column[name] for name in names) for column in columns)
    return records, sent_bytes, failed, dead


def _tasks(interval: Interval) -> str:
    failed = f", {interval.failed_tasks:,} failed" if interval.failed_tasks else ""
    return f"{interval.tasks:,}{failed}"


def _total(total: int, by_name: Mapping[str, int]) -> str:
    """``12 (NULL_TOPIC 7, MSG_SIZE_TOO_LARGE 5)``"""
    names = [f"{name} {count:,}" for name, count in Counter(by_name).most_common(_MAX_NAMES)]
    if len(by_name) > _MAX_NAMES:
        names.append("others")
    return f"{total:,} ({', '.join(names)})" if names else f"{total:,}"


def _figure(name: str, value: float | str | None) -> str:
    """A figure, in the unit that its name ends with."""
    if value is None:
        return _NOT_KNOWN
    if isinstance(value, str):
        return value or "none"
    if name.endswith("_ms"):
        return milliseconds(value)
    return mebibytes(int(value)) if name.endswith("_bytes") else f"{value:,}"


def _buffer(interval: Interval) -> str:
    peak, limit = interval.buffer_peak_bytes, interval.buffer_memory_bytes
    if not limit:  # no task has reported
        return _NOT_KNOWN
    return f"{mebibytes(peak)} of {mebibytes(limit)} ({share(peak / limit)})"

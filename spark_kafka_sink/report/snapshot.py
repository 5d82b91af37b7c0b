"""Snapshot: the state of a listener at one moment, as rows, pandas DataFrame or HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.report.figures import FIGURES
from spark_kafka_sink.report.notebook import Highlighted, box, line, table
from spark_kafka_sink.report.progress import offsets_behind_latest, rows_per_second
from spark_kafka_sink.report.reading import Report

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS_SHOWN = 20

_OF_REPORT = tuple(name for name in FIGURES if not name.endswith("_id"))
_OF_PROGRESS = (
    "started_at",
    "duration_ms",
    "durations_ms",
    "input_rows",
    "rows_per_second",
    "offsets_behind_latest",
)
COLUMNS = ("query", "query_id", "batch_id", *_OF_PROGRESS, *_OF_REPORT)


@dataclass(frozen=True)
class QueryState:
    """A query, and what is known about it.

    ``state``: running, ended, failed, or "" if Spark has not reported it. ``error``: why it failed,
    or "". ``micro_batches``: reported by Spark. ``reports``: by the sink.
    """

    query_id: str | None
    name: str | None
    state: str
    error: str
    micro_batches: int
    reports: int

    @property
    def label(self) -> str:
        """Its name, or its id if it has none."""
        return self.name or self.query_id or ""


@dataclass(frozen=True, repr=False)
class Snapshot:
    """``micro_batches``: dictionaries with the keys ``COLUMNS``, oldest first; None: not known.

    ``notes``: what the reader should know about gaps.
    """

    queries: tuple[QueryState, ...]
    micro_batches: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def to_pandas(self) -> pd.DataFrame:
        """A row for each micro-batch; the columns are always the same, and NA means not known."""
        import pandas as pd

        return pd.DataFrame(list(self.micro_batches), columns=list(COLUMNS)).convert_dtypes()

    def __repr__(self) -> str:
        lines = [f"Snapshot of {self._sizes()}", *self._gaps()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        queries = [
            (each.label, each.state, each.micro_batches, each.reports, Highlighted(each.error))
            for each in self.queries
        ]
        header = ["query", "state", "micro-batches", "reports", "error"]
        parts = [table(header, queries) if queries else ""]
        parts += [line(gap) for gap in self._gaps()]
        shown = self.micro_batches[-_MOST_ROWS_SHOWN:]
        if shown:
            parts.append(table(_HEADER, map(_cells, reversed(shown))))
        if len(self.micro_batches) > len(shown):
            others = len(self.micro_batches) - len(shown)
            parts.append(line(f"and {others} earlier ones: to_pandas()"))
        return box(f"KafkaSinkListener: {self._sizes()}", *parts)

    def _sizes(self) -> str:
        return f"queries: {len(self.queries)}, latest micro-batches: {len(self.micro_batches)}"

    def _gaps(self) -> Iterator[str]:
        for query in self.queries:
            if query.micro_batches and not query.reports:
                yield (
                    f"{query.label}: what was delivered is not known, because no reports of the "
                    "sink arrive here. If the query writes with the sink, pass "
                    "on_report=listener.on_report to foreach_batch, or set the option report.path "
                    "and create KafkaSinkListener(report_path=...)."
                )
        yield from self.notes


# --- micro-batches --------------------------------------------------------------------------------


def of_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The columns from Spark's progress."""
    durations_ms = progress["durationMs"]
    values = (
        # Python 3.10 does not know the Z.
        datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")),
        durations_ms["triggerExecution"],
        dict(durations_ms),
        progress["numInputRows"],
        rows_per_second(progress),
        max(offsets_behind_latest(progress).values(), default=None),
    )
    return dict(zip(_OF_PROGRESS, values, strict=True))


def of_report(report: Report) -> dict[str, Any]:
    """The columns from a report of the sink."""
    return {name: _plain(getattr(report, name)) for name in _OF_REPORT}


def _plain(value: Any) -> Any:
    """With dictionaries instead of counters."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value


_HEADER = [
    "query",
    "batch",
    "outcome",
    "rows in",
    "acknowledged",
    "bytes",
    "failed",
    "dead letters",
    "duration, ms",
    "behind latest",
]


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    failed, rejected = row["failed_records_by_topic"], row["dead_letters_by_topic"]
    dead_letters = (
        None if rejected is None else sum(sum(each.values()) for each in rejected.values())
    )
    outcome = row["outcome"]
    return (
        row["query"],
        row["batch_id"],
        Highlighted(outcome) if outcome == "failed" else outcome,
        row["input_rows"],
        row["records"],
        row["sent_bytes"],
        Highlighted(None if failed is None else sum(failed.values())),
        Highlighted(dead_letters),
        row["duration_ms"],
        row["offsets_behind_latest"],
    )

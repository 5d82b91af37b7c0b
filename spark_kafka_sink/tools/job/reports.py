"""What a job reports about a micro-batch: Spark's progress and the sink's report."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spark_kafka_sink.config.option_table import REPORT_PATH
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.reading import ReportFiles
from spark_kafka_sink.report.reading import parse as parse_report
from spark_kafka_sink.report.storage import local_path
from spark_kafka_sink.tools.job.configuration import Configuration


@dataclass(frozen=True)
class MicroBatch:
    """Figures of Spark's progress, and the sink's report.

    ``report``: as ``DeliveryReport.to_dict``, or None if there is none, so that it is not known
    what was delivered.
    """

    batch_id: int
    started_at: str
    duration_ms: int
    input_rows: int
    rows_per_second: float | None
    report: Mapping[str, Any] | None

    @classmethod
    def from_progress(
        cls, progress: Mapping[str, Any], report: Mapping[str, Any] | None
    ) -> MicroBatch:
        """``progress``: an entry of ``StreamingQuery.recentProgress``."""
        return cls(
            batch_id=progress["batchId"],
            started_at=progress["timestamp"],
            duration_ms=progress["durationMs"]["triggerExecution"],
            input_rows=progress["numInputRows"],
            rows_per_second=_rows_per_second(progress),
            report=report,
        )

    def delivered_records(self) -> Counter[str] | None:
        """Delivered records by topic; None if that is not known."""
        return None if self.report is None else Counter(self.report["records_by_topic"])

    def failed_records(self) -> Counter[str] | None:
        """Failed records by topic; None if that is not known."""
        return None if self.report is None else Counter(self.report["failed_records_by_topic"])

    def dead_letters(self) -> Counter[str] | None:
        """Rejected records by the topic that they were meant for; None if that is not known."""
        if self.report is None:
            return None
        by_topic = self.report["dead_letters_by_topic"]
        return Counter({topic: sum(by_error.values()) for topic, by_error in by_topic.items()})

    def to_json(self) -> str:
        """One line with Spark's progress and the figures of ``DeliveryReport.to_json``.

        A figure that is not known is null.
        """
        report = self.report
        if report is None:
            report = dict.fromkeys(DeliveryReport().to_dict())
        return json.dumps(
            {
                **report,  # first, so that every line begins with {"version"
                "batch_id": self.batch_id,
                "started_at": self.started_at,
                "duration_ms": self.duration_ms,
                "input_rows": self.input_rows,
                "rows_per_second": _rounded(self.rows_per_second),
            }
        )


def _rows_per_second(progress: Mapping[str, Any]) -> float | None:
    """Rows that Spark processed per second; None if unknown, as in the first micro-batches."""
    rate: float | None = progress.get("processedRowsPerSecond")
    return rate if rate is not None and math.isfinite(rate) else None


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


class Reports:
    """The sink's report of each micro-batch, from ``keep`` or from a folder of reports."""

    def __init__(self, folder: Path | None = None) -> None:
        self._files = None if folder is None else ReportFiles(folder)
        self._by_batch_id: dict[int | None, Mapping[str, Any]] = {}
        for _ in self._lines():
            pass  # of earlier runs

    def keep(self, report: DeliveryReport) -> None:
        """Keep a report; for ``on_report`` of ``foreach_batch``."""
        self._by_batch_id[report.batch_id] = report.to_dict()

    def take(self, batch_id: int) -> Mapping[str, Any] | None:
        """The latest report of a micro-batch that has ended, as ``DeliveryReport.to_dict``."""
        for line in self._lines():
            with suppress(ValueError):  # for instance, it has another version
                parse_report(line)
                report = json.loads(line)
                self._by_batch_id[report["batch_id"]] = report
        return self._by_batch_id.pop(batch_id, None)

    def _lines(self) -> Iterator[bytes]:
        """The lines since the last call."""
        if self._files is None:
            return
        with suppress(OSError):  # there is no folder, so there are no reports
            for line, _, _ in self._files.lines():
                yield line


@contextmanager
def collected_reports(configuration: Configuration) -> Iterator[tuple[Configuration, Reports]]:
    """The reports of a job, and the configuration that makes the sink write them.

    With ``mode: format`` Spark writes and commits in processes of its own, which do not report to
    the one that started the query. So the sink writes its reports to a folder: ``report.path``,
    which is read if it is on this machine, or else a temporary one.
    """
    path = configuration.sink_options.values[REPORT_PATH]
    if configuration.job.sink.mode == "foreach_batch":
        yield configuration, Reports()
    elif path is not None:
        yield configuration, Reports(local_path(path))
    else:
        with tempfile.TemporaryDirectory(
            prefix="spark-kafka-sink-reports-", ignore_cleanup_errors=True
        ) as folder:
            yield _set_report_path(configuration, folder), Reports(Path(folder))


def _set_report_path(configuration: Configuration, folder: str) -> Configuration:
    sink = configuration.job.sink
    options = {**sink.options, REPORT_PATH.name: folder}
    job = configuration.job.model_copy(
        update={"sink": sink.model_copy(update={"options": options})}
    )
    sink_options = configuration.sink_options.replace_value(REPORT_PATH, folder)
    return replace(configuration, job=job, sink_options=sink_options)

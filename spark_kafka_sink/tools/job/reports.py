"""The sink's reports of a job's micro-batches, in either mode."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_kafka_sink.config.option_table import REPORT_PATH
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.reading import ReportFiles
from spark_kafka_sink.report.reading import parse as parse_report
from spark_kafka_sink.report.storage import local_path
from spark_kafka_sink.tools.job.configuration import Configuration


class Reports:
    """The sink's report of each micro-batch, from ``keep`` or from a folder of reports."""

    def __init__(self, folder: Path | None = None) -> None:
        self._files = None if folder is None else ReportFiles(folder)
        self._by_batch_id: dict[int | None, Mapping[str, Any]] = {}
        self._read()
        self._by_batch_id.clear()  # of earlier runs

    def keep(self, report: DeliveryReport) -> None:
        """As ``on_report`` of ``foreach_batch``."""
        self._by_batch_id[report.batch_id] = report.to_dict()

    def take(self, batch_id: int) -> Mapping[str, Any] | None:
        """The latest report of a micro-batch that has ended, as ``DeliveryReport.to_dict``."""
        self._read()
        return self._by_batch_id.pop(batch_id, None)

    def _read(self) -> None:
        if self._files is None:
            return
        with suppress(OSError):  # without the folder, there are none
            for line, _, _ in self._files.lines():
                with suppress(ValueError):  # of another version, say
                    parse_report(line)
                    report = json.loads(line)
                    self._by_batch_id[report["batch_id"]] = report


@contextmanager
def collected_reports(configuration: Configuration) -> Iterator[tuple[Configuration, Reports]]:
    """The reports of a job, and the configuration that makes the sink write them.

    With ``mode: format`` Spark writes and commits in processes of its own, which do not report
    to the one that started the query. So the sink keeps its reports in a folder of this machine: in
    ``report.path``, or else in one that is deleted at the end. What is elsewhere is not read.
    """
    path = configuration.sink_options.report_path
    if configuration.job.sink.mode == "foreach_batch":
        yield configuration, Reports()
    elif path is not None:
        yield configuration, Reports(local_path(path))
    else:
        with tempfile.TemporaryDirectory(
            prefix="spark-kafka-sink-reports-", ignore_cleanup_errors=True
        ) as folder:
            yield _with_report_path(configuration, folder), Reports(Path(folder))


def _with_report_path(configuration: Configuration, folder: str) -> Configuration:
    sink = configuration.job.sink
    options = {**sink.options, REPORT_PATH.name: folder}
    job = configuration.job.model_copy(
        update={"sink": sink.model_copy(update={"options": options})}
    )
    return replace(configuration, job=job, sink_options=parse(options))

"""Serves the metrics and the health of a job's queries, if the configuration says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spark_kafka_sink.report.storage import local_path
from spark_kafka_sink.spark.listener import KafkaSinkListener
from spark_kafka_sink.tools.job.configuration import QueryConfiguration
from spark_kafka_sink.tools.job.output import Output


@contextmanager
def served(
    queries: Sequence[QueryConfiguration], output: Output
) -> Iterator[KafkaSinkListener | None]:
    """The listener whose metrics are served until the end of the job, or None.

    It has to be added to the session; with foreach_batch it needs the reports too. Raises
    KafkaSinkError.
    """
    metrics = queries[0].job.metrics  # the same for all
    if metrics is None:
        yield None
        return
    paths = [path for each in queries for path in _report_paths(each)]
    names = [each.job.name for each in queries]
    listener = KafkaSinkListener(paths, expected_queries=names)
    with listener.serve_metrics(metrics.port, metrics.address) as server:
        output.say(f"metrics: {server.url}")
        yield listener


def _report_paths(configuration: QueryConfiguration) -> list[str]:
    """The folder in which the listener reads the reports, if it does not get them directly."""
    folder = configuration.sink_options.report_path
    has_reports = configuration.job.sink.mode == "foreach_batch"
    return [] if has_reports or folder is None or local_path(folder) is None else [folder]

"""[driver] KafkaSinkListener: Spark's progress of the queries, joined with the sink's reports."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_kafka_sink.errors import KafkaSinkError, sink_error
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.report.batch_figures import BatchFigures
from spark_kafka_sink.report.metrics import (
    PROGRESS_METRICS,
    QUERY_METRICS,
    REPORT_METRICS,
    QueryEvent,
    QueryValues,
    is_micro_batch,
)
from spark_kafka_sink.report.reading import ReportFiles, SkippedLine, parse
from spark_kafka_sink.report.storage import local_path
from spark_kafka_sink.spark.private_api import progress_values
from spark_kafka_sink.spark.warm_up import QUERY_NAME as WARM_UP

if TYPE_CHECKING:
    from uuid import UUID

    from spark_kafka_sink.report.delivery_report import DeliveryReport
    from spark_kafka_sink.report.metrics_server import MetricsServer

_log = logging.getLogger("spark_kafka_sink")

_MAX_QUERIES = 200  # ended ones are forgotten first
_MAX_LOGGED = 10
_RUNNING, _ENDED = "running", "ended"
_ON_REPORT = object()


class KafkaSinkListener(StreamingQueryListener):
    """Collects what Spark and the sink report about a session's streaming queries.

    Add it before the queries start: ``spark.streams.addListener(listener)``. The sink's reports
    arrive in one of two ways; without them, its figures are absent from the metrics, not 0:

    - ``foreach_batch(options, on_report=listener.on_report)``, in classic sessions;
    - ``report_path``: the folder of the option ``report.path`` on this machine, or a list of them;
      the listener reads what is appended from now on.

    ``expected_queries``: names of queries that have to start; ``/health`` answers 503 until all of
    them have. Raises KafkaSinkError if a path cannot be read or is a URI of other storage.
    """

    def __init__(
        self,
        report_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        *,
        expected_queries: Sequence[str] = (),
    ) -> None:
        paths = [report_path] if isinstance(report_path, str | os.PathLike) else report_path
        self._expected_queries = tuple(expected_queries)
        self._lock = threading.Lock()  # guards the queries
        self._queries: dict[str | None, _Query] = {}
        # Guards what follows, so that ``/health`` does not wait for files. Taken before the other.
        self._reading = threading.Lock()
        self._logged: deque[str] = deque(maxlen=_MAX_LOGGED)
        self._folders = [_ReportFolder(_local(os.fspath(path))) for path in paths]
        for folder in self._folders:
            folder.skip_existing()

    def on_report(self, report: DeliveryReport) -> None:
        """Add a report: pass this method to ``foreach_batch`` as ``on_report``. Never raises."""
        try:
            parsed = parse(report.to_json().encode())
            with self._lock:
                self._add_report(parsed, None)
        except Exception:  # noqa: BLE001 - it would fail the query, which would then send all records again
            _log.warning("KafkaSinkListener could not read a report", exc_info=True)

    def serve_metrics(self, port: int, address: str = "127.0.0.1") -> MetricsServer:
        """Serve the metrics to Prometheus by HTTP, without encryption or authentication.

        The path ``/health`` answers 200 while micro-batches succeed, otherwise 503 and the reasons,
        which docs/metrics.md lists.

        Returns the server, which has ``url`` and ``close()``; with port 0, the system chooses one.
        Raises KafkaSinkError if the port is in use, the address is not one of this machine, or the
        extra ``[metrics]`` is not installed.
        """
        with importing(extra="metrics"):
            from spark_kafka_sink.report.metrics_server import MetricsServer
        return MetricsServer(self._values, self._problems, port, address)

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            "a KafkaSinkListener works only in its own process. Under Spark Connect, on_report "
            "runs on the server: set the option report.path, and create the listener with "
            "report_path"
        )

    # --- events of Spark --------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if event.name == WARM_UP:
            return
        # Late reports of the run before, before this run chooses another source.
        self._read_folders()
        with self._lock:
            query = self._query(str(event.id))
            query.start(event.name, event.runId)
            query.reports_from = None
            for other in self._namesakes(query):
                other.pass_failure_to(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        name, run_id = event.progress.name, event.progress.runId
        if name == WARM_UP:
            return
        progress = progress_values(event.progress)
        with self._lock:
            query = self._query(str(progress["id"]))
            if not query.run_state:
                query.start(name, run_id)
        self._read_folders()
        with self._lock:
            query.values.add(PROGRESS_METRICS, progress)
            if is_micro_batch(progress):
                query.latest_failure = ""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is not None:
                query.latest_failure = ""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._read_folders()  # while the query still counts as running
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is None:
                return
            query.end(event.exception, event.runId)
            for other in self._namesakes(query):
                if other.run_state == _RUNNING:
                    query.pass_failure_to(other)

    # --- reports ----------------------------------------------------------------------------------

    def _read_folders(self) -> None:
        with self._reading:
            for folder in self._folders:
                self._read_folder(folder)

    def _read_folder(self, folder: _ReportFolder) -> None:
        try:
            for entry in folder.files.new():
                if isinstance(entry, SkippedLine):
                    self._warn(f"{entry.file}, line {entry.number}, was skipped: {entry.reason}")
                else:
                    with self._lock:
                        self._add_report(entry, folder)
        except FileNotFoundError:
            pass  # no report yet
        except OSError as error:
            self._warn(f"reports cannot be read: {error}")

    def _add_report(self, report: BatchFigures, folder: _ReportFolder | None) -> None:
        query = self._query(self._query_id(report, folder))
        source = folder or _ON_REPORT
        query.reports_from = query.reports_from or source
        if query.reports_from is source:  # the same reports may come both ways
            query.values.add(REPORT_METRICS, report)

    def _query_id(self, report: BatchFigures, folder: _ReportFolder | None) -> str | None:
        """The id of the report's query; None for a batch write.

        A report without a successful task does not name its query, so it is inferred.
        """
        if folder is not None and report.query_id is not None:
            folder.query_id = report.query_id
        if report.query_id is not None or report.batch_id is None:
            return report.query_id
        if folder is not None and folder.query_id is not None:
            return folder.query_id
        running = [key for key, query in self._queries.items() if query.run_state == _RUNNING]
        return running[0] if len(running) == 1 else None

    # --- state ------------------------------------------------------------------------------------

    def _query(self, query_id: str | None) -> _Query:
        if query_id not in self._queries:
            over = [key for key, query in self._queries.items() if query.run_state != _RUNNING]
            if len(self._queries) >= _MAX_QUERIES and over:
                del self._queries[over[0]]
            self._queries[query_id] = _Query(query_id)
        return self._queries[query_id]

    def _namesakes(self, query: _Query) -> list[_Query]:
        """The same query with another checkpoint: Spark runs only one of a name at a time."""
        others = [other for other in self._queries.values() if other is not query]
        return [other for other in others if other.name and other.name == query.name]

    def _warn(self, text: str) -> None:
        if text not in self._logged:
            self._logged.append(text)
            _log.warning("KafkaSinkListener: %s", text)

    def _values(self) -> dict[tuple[str, str], QueryValues]:
        self._read_folders()
        with self._lock:
            return {
                (query.label, query.query_id or ""): query.values.copy()
                for query in self._queries.values()
            }

    def _problems(self) -> list[str]:
        """Why the queries are not healthy; none if they are."""
        with self._lock:
            queries = list(self._queries.values())
            problems = [query.problem() for query in queries if query.latest_failure]
            is_running = any(query.run_state == _RUNNING for query in queries)
            started = {query.name for query in queries}
        if queries:
            expected = self._expected_queries
            problems += [f"{name} has not started" for name in expected if name not in started]
        return problems if problems or is_running else ["no query runs"]


@dataclass(eq=False)
class _Query:
    query_id: str | None
    name: str | None = None
    run_id: UUID | None = None
    #: "": unknown, because a report came first, or the listener was added later
    run_state: str = ""
    #: where the first report of its run came from
    reports_from: object = None
    #: error of the latest failure; "" after the next micro-batch, or once it waits for data
    latest_failure: str = ""
    values: QueryValues = field(default_factory=QueryValues)

    @property
    def label(self) -> str:
        """Its name, or its id if it has none."""
        return self.name or self.query_id or ""

    def start(self, name: str | None, run_id: UUID) -> None:
        self.name, self.run_id, self.run_state = name, run_id, _RUNNING
        self.values.add(QUERY_METRICS, QueryEvent(is_active=1, failures=0))

    def end(self, exception: str | None, run_id: UUID) -> None:
        # Spark reports a start at once, but an end later: a restart may come first.
        is_last_run = run_id == self.run_id
        if exception:
            self.latest_failure = sink_error(exception)
        if is_last_run:
            self.run_state = _ENDED
        self.values.add(QUERY_METRICS, QueryEvent(not is_last_run, failures=bool(exception)))

    def pass_failure_to(self, other: _Query) -> None:
        """Of two queries of one name, only the running one is judged: it inherits the failure."""
        other.latest_failure = self.latest_failure or other.latest_failure
        self.latest_failure = ""

    def problem(self) -> str:
        """A sentence on the latest failure."""
        is_running = self.run_state == _RUNNING
        again = " and runs again, but has completed no micro-batch since" if is_running else ""
        return f"{self.label} has failed{again}: {self.latest_failure}"


class _ReportFolder:
    """A folder of reports; each query has its own. ``query_id``: named by the latest report."""

    def __init__(self, path: Path) -> None:
        self.files = ReportFiles(path)
        self.query_id: str | None = None

    def skip_existing(self) -> None:
        """Skip the reports of earlier runs; otherwise counters would seem to jump."""
        try:
            for line, _, _ in self.files.lines():
                # Parsing would take many times as long, and few lines have another id.
                if self.query_id is None or self.query_id.encode() not in line:
                    with suppress(ValueError):  # for instance, it has another version
                        self.query_id = parse(line).query_id or self.query_id
        except FileNotFoundError:
            pass  # the first report creates it
        except OSError as error:
            raise KafkaSinkError(f"reports cannot be read: {error}") from error


def _local(path: str) -> Path:
    folder = local_path(path)
    if folder is None:
        raise KafkaSinkError(
            f"KafkaSinkListener reads only folders of this machine, not {path}; "
            "with foreach_batch, use on_report instead"
        )
    return folder

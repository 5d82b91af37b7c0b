"""[driver] Serves a listener's metrics to Prometheus, and its health; needs the extra [metrics]."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.report.metrics import METRICS, QUERY_LABELS, QueryValues

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_CLOSE_SECONDS = 5.0
_LAST_PORT = 65_535

#: the values of each query, by the labels ``QUERY_LABELS``
ReadValues = Callable[[], Mapping[tuple[str, str], QueryValues]]
#: why the queries are not healthy, a sentence each; none if they are
ReadProblems = Callable[[], Sequence[str]]


class MetricsServer:
    """Answers HTTP requests with the metrics and the health of that moment, until it is closed."""

    def __init__(
        self, read: ReadValues, read_problems: ReadProblems, port: int, address: str
    ) -> None:
        registry = CollectorRegistry()
        registry.register(MetricsCollector(read))
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError, UnicodeError) as error:
            remedy = "choose another port" if _is_of_port(error, port) else "correct the address"
            raise KafkaSinkError(
                f"cannot serve metrics on {address}:{port}: {error}; {remedy}"
            ) from error
        self._server.set_app(_add_health(make_wsgi_app(registry), read_problems))
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_SECONDS)

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _is_of_port(error: Exception, port: int) -> bool:
    """Whether the port is wrong; otherwise the address is malformed, unknown, or of others."""
    is_taken = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
    return is_taken or not 0 <= port <= _LAST_PORT


def _add_health(metrics: WSGIApplication, read_problems: ReadProblems) -> WSGIApplication:
    """The application of prometheus_client, which serves metrics at any path, and /health."""

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/health":
            return metrics(environ, start_response)
        problems = read_problems()
        status = "503 Service Unavailable" if problems else "200 OK"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return ["\n".join([*(problems or ["ok"]), ""]).encode()]

    return application


class MetricsCollector(Collector):
    """The metrics as prometheus_client asks for them."""

    def __init__(self, read: ReadValues) -> None:
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        queries = self._read()
        for metric in METRICS:
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            exported = family(metric.name, metric.help, labels=[*QUERY_LABELS, *metric.labels])
            for query, values in queries.items():
                for labels, value in values.by_metric.get(metric, {}).items():
                    exported.add_metric([*query, *labels], value)
            yield exported

"""Serves a listener's metrics to Prometheus; needs the extra [metrics]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.spark.metrics import METRICS, QUERY_LABELS, QueryValues

_CLOSE_SECONDS = 5.0

#: the values of each query, by the labels ``QUERY_LABELS``
ReadValues = Callable[[], Mapping[tuple[str, str], QueryValues]]


class MetricsServer:
    """Answers HTTP requests with the metrics of that moment, until it is closed."""

    def __init__(self, read: ReadValues, port: int, address: str) -> None:
        registry = CollectorRegistry()
        registry.register(MetricsCollector(read))
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:  # the latter: no such port
            raise KafkaSinkError(
                f"cannot serve metrics on {address}:{port}: {error}; choose another port"
            ) from error
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_SECONDS)

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class MetricsCollector(Collector):
    """The metrics as prometheus_client asks for them."""

    def __init__(self, read: ReadValues) -> None:
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        queries = self._read()
        for metric in METRICS:
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            told = family(metric.name, metric.help, labels=[*QUERY_LABELS, *metric.labels])
            for query, values in queries.items():
                for labels, value in values.of.get(metric, {}).items():
                    told.add_metric([*query, *labels], value)
            yield told

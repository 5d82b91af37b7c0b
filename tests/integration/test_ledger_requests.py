"""What exactly-once asks of a broker, once a process has connected its readers of the ledger."""

from __future__ import annotations

from exactly_once_sink import Sink
from kafka_proxy import API_VERSIONS

from spark_kafka_sink.config.client_settings import DEFAULTS

CLIENT_ID = DEFAULTS["client.id"]
TASKS = 2
MICRO_BATCHES = 6
#: at the bootstrap address, at the broker, and at the broker as the transaction's coordinator
CONNECTIONS = 3
MAX_REQUESTS = 25  # 20 were seen; with new readers 50


def test_a_task_of_a_steady_query_opens_three_connections_and_sends_few_requests(proxy, proxied):
    sink = Sink(proxied.bootstrap_servers, proxied)
    sink.write_batch(0)
    # On a busy machine, requests are repeated.
    counts = [requests_of_a_micro_batch(proxy, sink, 1 + n) for n in range(MICRO_BATCHES)]
    connections = min(requests[API_VERSIONS] for requests in counts)
    assert connections == TASKS * CONNECTIONS, counts
    # Of both tasks, and the driver's two for its marker.
    assert min(sum(requests.values()) for requests in counts) <= TASKS * MAX_REQUESTS + 2, counts


def requests_of_a_micro_batch(proxy, sink, batch_id):
    """By API key: of its tasks, and of the driver."""
    proxy.reset()
    sink.write_batch(batch_id)
    return {key: n for (client, key), n in proxy.requests.items() if client == CLIENT_ID}

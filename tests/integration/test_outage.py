"""A stream survives 25 s of unreachable brokers at the start of a later micro-batch."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_proxy import KafkaProxy
from local_cluster import LocalCluster
from topics import Topics

APP = Path(__file__).parent.parent / "support" / "outage_app.py"
pytestmark = pytest.mark.slow
OUTAGE_SECONDS = 25.0  # less than any of the sink's limits
OUTAGES = (KafkaProxy.refusing, KafkaProxy.silent)


class Streams:
    """Queries in their own process, which plans every micro-batch in a new Python worker.

    Each writes to a topic behind one of the proxies.
    """

    def __init__(self, app: subprocess.Popen, topics: Topics, names: list[str]) -> None:
        self._app = app
        self._topics = topics
        self._names = names
        self.sent: list[str] = []

    def begin(self) -> None:
        """Start a micro-batch of one row in each query."""
        self.sent.append(f"row {len(self.sent)}")
        self._app.stdin.write(f"{self.sent[-1]}\n")
        self._app.stdin.flush()

    def outcomes(self) -> list[str]:
        """Wait for the ends of the micro-batches: "done", or why the query ended."""
        return [self._app.stdout.readline().strip() for _ in self._names]

    def delivered(self) -> list[list[str]]:
        records = [self._topics.read(name) for name in self._names]
        return [[record.value.decode() for record in topic] for topic in records]


class OtherListener:
    """That of a cluster whose ports are chosen at its start."""

    def __init__(self, kafka: LocalCluster) -> None:
        self._kafka = kafka

    @property
    def bootstrap_servers(self) -> str:
        return self._kafka.internal_servers


@pytest.fixture
def proxies():
    """Two ways to one broker, whose clients find it where they came from."""
    with KafkaProxy() as one, KafkaProxy() as other:
        advertised = f"CLIENT://127.0.0.1:{one.port},INTERNAL://127.0.0.1:{other.port}"
        settings = {"advertised.listeners": advertised}
        one.kafka = kafka = LocalCluster(settings=settings, advertised_ports=[one.port])
        other.kafka = OtherListener(kafka)
        with kafka:
            yield one, other


@pytest.fixture
def streams(proxies, tmp_path):
    servers = [f"127.0.0.1:{proxy.port}" for proxy in proxies]
    topics = Topics(servers[0])
    names = [topics.create() for _ in servers]
    sinks = [word for sink in zip(servers, names, strict=True) for word in sink]
    with subprocess.Popen(
        [sys.executable, str(APP), str(tmp_path), *sinks],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as app:
        yield Streams(app, topics, names)
        app.communicate(timeout=60)
    assert app.returncode == 0
    topics.close()


def test_streams_survive_an_outage_at_the_start_of_a_later_micro_batch(streams, proxies):
    """Of brokers that refuse connections, and of brokers that are silent."""
    streams.begin()
    assert streams.outcomes() == ["done", "done"]
    with ExitStack() as stack:
        for outage, proxy in zip(OUTAGES, proxies, strict=True):
            stack.enter_context(outage(proxy))
        streams.begin()
        time.sleep(OUTAGE_SECONDS)
    assert streams.outcomes() == ["done", "done"]
    assert streams.delivered() == [streams.sent, streams.sent]

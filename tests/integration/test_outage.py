"""A stream survives 25 s of unreachable brokers at the start of a later micro-batch."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka_proxy import KafkaProxy
from topics import Topics

APP = Path(__file__).parent.parent / "support" / "outage_app.py"
pytestmark = pytest.mark.slow
OUTAGE_SECONDS = 25.0  # less than any of the sink's limits


class Stream:
    """A query in its own process, which plans every micro-batch in a new Python worker."""

    def __init__(self, app: subprocess.Popen, topics: Topics, topic: str) -> None:
        self._app = app
        self._topics = topics
        self._topic = topic
        self.sent: list[str] = []

    def begin(self) -> None:
        """Start a micro-batch of one row."""
        self.sent.append(f"row {len(self.sent)}")
        self._app.stdin.write(f"{self.sent[-1]}\n")
        self._app.stdin.flush()

    def outcome(self) -> str:
        """Wait for the end of the micro-batch: "done", or why the query ended."""
        return self._app.stdout.readline().strip()

    def delivered(self) -> list[str]:
        return [record.value.decode() for record in self._topics.read(self._topic)]


@pytest.fixture(scope="module")
def stream(proxy, tmp_path_factory):
    topics = Topics(f"127.0.0.1:{proxy.port}")
    topic = topics.create()
    folder = tmp_path_factory.mktemp("outage")
    command = [sys.executable, str(APP), topics.bootstrap_servers, topic, str(folder)]
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as app:
        yield Stream(app, topics, topic)
        app.communicate(timeout=60)
    assert app.returncode == 0
    topics.close()


@pytest.mark.parametrize("outage", [KafkaProxy.refusing, KafkaProxy.silent])
def test_a_stream_survives_an_outage_at_the_start_of_a_later_micro_batch(stream, proxy, outage):
    stream.begin()
    assert stream.outcome() == "done"
    with outage(proxy):
        stream.begin()
        time.sleep(OUTAGE_SECONDS)
    assert stream.outcome() == "done"
    assert stream.delivered() == stream.sent

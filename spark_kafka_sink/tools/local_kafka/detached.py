"""A local Kafka that outlives its caller: start, stop and status for the command line."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from spark_kafka_sink.config.java_home import CACHE_ADVICE, cache_folder, os_errors_as
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalKafkaError
from spark_kafka_sink.tools.local_kafka.cluster import LocalKafka
from spark_kafka_sink.tools.local_kafka.processes import has_argument, send_signal

_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class _DetachedKafka:
    """What ``start`` saves for ``stop`` and ``status``."""

    bootstrap_servers: str
    folder: str
    pids: list[int]

    def running(self) -> list[int]:
        return [pid for pid in self.pids if has_argument(pid, self.folder)]


def start(brokers: int = 1) -> str:
    """Start a Kafka of 1 or 3 brokers; returns its bootstrap servers.

    Raises LocalKafkaError, and then leaves nothing running.
    """
    running = status()
    if running is not None:
        raise LocalKafkaError(f"already running at {running}; stop it first")
    _prepare_state_file()
    # Until the state is on disk, the brokers end with this process, so none is orphaned.
    with LocalKafka(brokers) as kafka:
        _write_state(_DetachedKafka(kafka.bootstrap_servers, str(kafka.folder), kafka.pids))
        kafka.detach()
    return kafka.bootstrap_servers


def status() -> str | None:
    """Return the bootstrap servers of the running Kafka, or None if none is running."""
    state = _read_state()
    return state.bootstrap_servers if state else None


def stop() -> str | None:
    """Stop the running Kafka; returns the folder with its logs, or None if none was running."""
    state = _read_state()
    if state is None:
        return None
    for pid in state.running():
        send_signal(pid, signal.SIGTERM)
    deadline = Deadline(_STOP_SECONDS)
    while state.running() and not deadline.expired:
        time.sleep(0.05)  # there is no event for a process that is not our child
    for pid in state.running():
        send_signal(pid, signal.SIGKILL)
    with os_errors_as("Remove that file"):
        _state_file().unlink(missing_ok=True)
    return state.folder


def _state_file() -> Path:
    return cache_folder() / "kafka.json"


def _prepare_state_file() -> None:
    """Remove the state of a Kafka that has ended, and check that a new one can be written."""
    path = _state_file()
    with os_errors_as(CACHE_ADVICE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


def _write_state(state: _DetachedKafka) -> None:
    with os_errors_as(CACHE_ADVICE):
        try:
            file = _state_file().open("x")
        except FileExistsError:
            raise LocalKafkaError(
                "another `kafka start` finished first; see `kafka status`"
            ) from None
        with file:
            json.dump(asdict(state), file)


def _read_state() -> _DetachedKafka | None:
    """The state of the running Kafka, or None if none is running."""
    with os_errors_as(CACHE_ADVICE):
        try:
            state = _DetachedKafka(**json.loads(_state_file().read_text()))
        except (FileNotFoundError, ValueError, TypeError):  # missing or incomplete
            return None
    return state if state.running() else None

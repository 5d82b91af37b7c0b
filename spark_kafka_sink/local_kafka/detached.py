"""A local Kafka that outlives its caller: start, stop and status for the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.cluster import LocalKafka, is_running, send_signal
from spark_kafka_sink.local_kafka.java_runtime import cache_folder

_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class _State:
    """What ``start`` leaves on disk for ``stop`` and ``status``."""

    bootstrap_servers: str
    folder: str
    pids: list[int]


def start(brokers: int = 1) -> str:
    """Start a Kafka of 1 or 3 brokers; returns its bootstrap servers. Raises LocalKafkaError."""
    running = status()
    if running is not None:
        raise LocalKafkaError(f"already running at {running}; stop it first")
    kafka = LocalKafka(brokers)
    kafka.start_detached()
    state = _State(kafka.bootstrap_servers, str(kafka.folder), kafka.pids)
    _state_file().parent.mkdir(parents=True, exist_ok=True)
    _state_file().write_text(json.dumps(asdict(state)))
    return kafka.bootstrap_servers


def status() -> str | None:
    """The bootstrap servers of the Kafka that ``start`` started, or None if none runs."""
    state = _read_state()
    return state.bootstrap_servers if state else None


def stop() -> str | None:
    """End the Kafka that ``start`` started; returns the folder with its logs, None if none ran."""
    state = _read_state()
    if state is None:
        return None
    pids = [pid for pid in state.pids if _is_broker(pid, state.folder)]
    for pid in pids:
        send_signal(pid, signal.SIGTERM)
    deadline = Deadline(_STOP_SECONDS)
    while any(is_running(pid) for pid in pids) and not deadline.expired:
        time.sleep(0.05)
    for pid in pids:
        send_signal(pid, signal.SIGKILL)
    _state_file().unlink()
    return state.folder


def _state_file() -> Path:
    return cache_folder() / "kafka.json"


def _read_state() -> _State | None:
    try:
        state = _State(**json.loads(_state_file().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return state if any(_is_broker(pid, state.folder) for pid in state.pids) else None


def _is_broker(pid: int, folder: str) -> bool:
    """Whether that process is the broker with that folder, and not a later one with its id."""
    command = ["ps", "-o", "args=", "-p", str(pid)]
    return folder in subprocess.run(command, capture_output=True, text=True, check=False).stdout

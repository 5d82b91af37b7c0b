"""A local Kafka behind a proxy that delays all that the broker sends by a constant time.

Requests pass at once and answers in transit overlap, so the delay is the round trip of a link whose
bandwidth is not limited. Broker and proxy run in a process of their own: this file, as a script,
prints the address, and then answers each line, a delay in seconds, with a line. It ends when its
standard input does.
"""

from __future__ import annotations

import fcntl
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from spark_kafka_sink.tools.local_kafka import LocalKafka

_PIPE_BYTES = 2**20


class DistantKafka:
    """Context manager. ``bootstrap_servers``: the only address of the broker."""

    def __enter__(self) -> DistantKafka:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we then end it
        )
        self.bootstrap_servers = self._answer()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.stdin.close()
        self._process.wait(30)

    @contextmanager
    def late(self, seconds: float) -> Iterator[None]:
        """What the broker sends arrives so much later inside the block."""
        self._delay(seconds)
        try:
            yield
        finally:
            self._delay(0.0)

    def _delay(self, seconds: float) -> None:
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        line = self._process.stdout.readline().strip()
        assert line, "the process of the distant Kafka ended"
        return line


class _Link:
    """Accepts connections at ``port`` and makes one to ``kafka`` for each."""

    def __init__(self) -> None:
        self.delay_seconds = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        self.kafka = LocalKafka(settings=advertised)
        _start_thread(self._accept)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            host, _, port = self.kafka.bootstrap_servers.rpartition(":")
            try:
                broker = socket.create_connection((host, int(port)), 10)
            except (OSError, ValueError):  # not started yet
                client.close()
                continue
            broker.settimeout(None)
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            in_transit: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            _start_thread(_requests, client, broker)
            _start_thread(self._answers, broker, in_transit)
            _start_thread(_deliver, in_transit, client)

    def _answers(self, broker: socket.socket, in_transit: queue.SimpleQueue) -> None:
        data = b"-"
        while data:
            try:
                data = broker.recv(65536)
            except OSError:
                data = b""  # the end, as if the broker had closed the connection
            in_transit.put((time.monotonic() + self.delay_seconds, data))


def _deliver(in_transit: queue.SimpleQueue, client: socket.socket) -> None:
    with suppress(OSError):
        while True:
            due, data = in_transit.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                break
            client.sendall(data)
    _hang_up(client)


def _requests(client: socket.socket, broker: socket.socket) -> None:
    """Within the kernel: the data is not copied to this process, which costs little CPU."""
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    with suppress(OSError):
        while count := os.splice(client.fileno(), into, _PIPE_BYTES):
            while count:
                count -= os.splice(out, broker.fileno(), count)
    os.close(out)
    os.close(into)
    _hang_up(broker)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _start_thread(function: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


def main() -> None:
    link = _Link()
    with link.kafka:
        print(f"127.0.0.1:{link.port}", flush=True)
        for line in sys.stdin:
            link.delay_seconds = float(line)
            print("changed", flush=True)


if __name__ == "__main__":
    main()

"""A TCP proxy for one broker that parses Kafka's framing: delays answers, simulates outages."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from local_cluster import LocalCluster
from mock_cluster import MockCluster

from spark_kafka_sink.tools.local_kafka import LocalKafka

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 0, 3, 18, 22, 36


def _everyone(port: int) -> bool:
    return True


class MetadataRequest(NamedTuple):
    client_id: str
    #: how many topics it names; 0 if it requests all of them, or none
    topics: int


class KafkaProxy:
    """Context manager for broker ``node`` of ``kafka``, to be set, which must advertise ``port``.

    ``metadata_delay_seconds`` and ``produce_delay_seconds``, and ``delay_seconds`` for all answers,
    may be changed at any time. Like a broker, which handles one request of a connection at a time,
    the proxy holds an answer back until those before it were sent.
    ``corrupts``: returns whether to flip a bit in the records of a produce request, as bad hardware
    does; ``corrupted`` counts these requests.
    ``hangs_up_on``: the API key of requests that end their connection, as at a broker that requires
    a login first.
    ``requests`` counts the requests by client id and API key. ``metadata_requests`` holds those for
    metadata in the order of arrival, and ``answers_before_records`` the number of their answers
    that left before the first produce request came, or None. ``logins`` holds the requests to log
    in. ``reset`` starts counting again.
    """

    def __init__(self, node: int = 1) -> None:
        self.metadata_delay_seconds = self.produce_delay_seconds = self.delay_seconds = 0.0
        self.hangs_up_on: int | None = None
        self.corrupts: Callable[[], bool] = lambda: False
        self.corrupted = 0
        self._node = node
        self.reset()
        self.kafka: LocalKafka | MockCluster | None = None
        self.port = 0
        self._serving: dict[asyncio.Task, socket.socket] = {}  # what each has accepted
        self._loop = asyncio.new_event_loop()
        self._is_speaking = asyncio.Event()
        self._is_speaking.set()
        self._is_silent_to = _everyone
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> KafkaProxy:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def reset(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.metadata_requests: list[MetadataRequest] = []
        self.logins: list[bytes] = []
        self.answers_before_records: int | None = None
        self._answers = 0

    def drop_connections(self) -> None:
        """Reset all connections; what is in transit is lost."""
        self._call(self._drop())

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Close the port inside the block: connections are reset, new ones refused."""
        self._call(self._stop_listening())
        try:
            yield
        finally:
            self._call(self._listen())

    @contextmanager
    def silent(self, to: Callable[[int], bool] = _everyone) -> Iterator[None]:
        """Make the broker a black hole inside the block: it accepts connections, never answers.

        ``to``: returns whether that concerns the client whose connection has this local port.
        """
        self._is_silent_to = to
        self._loop.call_soon_threadsafe(self._is_speaking.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._is_speaking.set)

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._server.setblocking(False)
        self.port = self._server.getsockname()[1]
        # Not asyncio's server, nor a task that accepts: both may lose a connection that comes while
        # they are stopped.
        asyncio.get_running_loop().add_reader(self._server, self._accept)

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionError):  # whoever came has gone
            connection, _ = self._server.accept()
            connection.setblocking(False)
            task = asyncio.create_task(self._serve(connection))
            self._serving[task] = connection

    async def _stop_listening(self) -> None:
        asyncio.get_running_loop().remove_reader(self._server)
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        serving = dict(self._serving)
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
        for task, connection in serving.items():
            self._end(task, connection)  # one that was cancelled before it began has not done it

    async def _stop(self) -> None:
        await self._stop_listening()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # asyncio closes the brokers' connections in its next round

    def _end(self, task: asyncio.Task, connection: socket.socket) -> None:
        self._serving.pop(task, None)
        connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        delays: dict[int, tuple[int, float]] = {}  # API key and seconds by correlation id
        both, directions = [], []
        try:
            port = connection.getpeername()[1]
            reader, writer = await asyncio.open_connection(sock=connection)
            both.append(writer)
            host, at = self.kafka.bootstrap_servers.split(",")[self._node - 1].rsplit(":", 1)
            there, back = await asyncio.open_connection(host, at)
            both.append(back)
            directions = [
                asyncio.create_task(self._send_requests(reader, back, delays, port)),
                asyncio.create_task(self._send_answers(there, writer, delays)),
            ]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # nobody there yet: the client sees its connection closed
        finally:
            for direction in directions:
                direction.cancel()
            for stream in both:
                stream.transport.abort()
            self._end(asyncio.current_task(), connection)

    async def _send_requests(self, reader, writer, delays, port) -> None:
        try:
            while True:
                frame = await _frame(reader)
                if not self._is_speaking.is_set() and self._is_silent_to(port):
                    await self._is_speaking.wait()
                api_key, _, correlation = struct.unpack_from(">hhi", frame, 4)
                self.requests[_client_id(frame), api_key] += 1
                if api_key == self.hangs_up_on:
                    return
                if api_key == SASL_AUTHENTICATE:
                    self.logins.append(frame)
                if api_key == METADATA:
                    self.metadata_requests.append(_metadata_request(frame))
                    delays[correlation] = METADATA, self.metadata_delay_seconds
                elif api_key == PRODUCE:
                    if self.answers_before_records is None:
                        self.answers_before_records = self._answers
                    delays[correlation] = PRODUCE, self.produce_delay_seconds
                    if self.corrupts():
                        frame = _corrupted(frame)
                        self.corrupted += 1
                writer.write(frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return

    async def _send_answers(self, reader, writer, delays) -> None:
        try:
            while True:
                frame = await _frame(reader)
                (correlation,) = struct.unpack_from(">i", frame, 4)
                if correlation in delays:
                    api_key, delay_seconds = delays.pop(correlation)
                    await asyncio.sleep(delay_seconds)
                    self._answers += api_key == METADATA and not writer.is_closing()
                await asyncio.sleep(self.delay_seconds)
                writer.write(frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return


@contextmanager
def proxied_kafka() -> Iterator[tuple[KafkaProxy, LocalCluster]]:
    """A broker, and the proxy through which it is reached at ``127.0.0.1:<port>``.

    ``internal_servers`` lead to it directly.
    """
    with KafkaProxy() as proxy, LocalCluster(advertised_ports=[proxy.port]) as kafka:
        proxy.kafka = kafka
        yield proxy, kafka


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])


def _corrupted(frame: bytes) -> bytes:
    """With one bit flipped where a produce request ends: what its record batch's CRC covers.

    Nothing protects the rest of a request but TLS, so its bits may mean another partition.
    """
    begin = len(frame) // 2 if len(frame) > 400 else len(frame) - 24
    flipped = bytearray(frame)
    flipped[random.randrange(begin, len(frame) - 3)] ^= 1 << random.randrange(8)  # 3 empty tags
    return bytes(flipped)


def _client_id(frame: bytes) -> str:
    (size,) = struct.unpack_from(">h", frame, 12)
    return frame[14 : 14 + max(0, size)].decode()


def _metadata_request(frame: bytes) -> MetadataRequest:
    (version,) = struct.unpack_from(">h", frame, 6)
    client_id = _client_id(frame)
    at = 14 + len(client_id.encode())
    if version < 9:
        return MetadataRequest(client_id, max(0, struct.unpack_from(">i", frame, at)[0]))
    at += 1  # no tags in the header
    length, shift = 0, 0
    while True:  # an unsigned varint: the array's length plus one
        length |= (frame[at] & 0x7F) << shift
        if frame[at] < 0x80:
            return MetadataRequest(client_id, max(0, length - 1))
        at, shift = at + 1, shift + 7

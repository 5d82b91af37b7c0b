"""A TCP proxy that flips bits on the way, as a bad network card does: ``BitFlips``."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_BYTES = 65_536
_CONNECT_SECONDS = 10.0


class BitFlips:
    """Context manager: a way to a server, by ``port``, that flips bits in both directions.

    ``server``: returns the server's ``host:port``, when a client connects. ``share``: of the pieces
    that arrive, from 0 to 1, may be changed at any time. ``count``: the bits that were flipped.
    """

    def __init__(self, server: Callable[[], str], seed: int) -> None:
        self.share = 0.0
        self.count = 0
        self._server = server
        self._pick = random.Random(seed)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> BitFlips:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for closed in (self._listener, *self._sockets):
            _end(closed)

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        host, port = self._server().rsplit(":", 1)
        try:
            server = socket.create_connection((host, int(port)), _CONNECT_SECONDS)
        except OSError:
            _end(client)
            return
        server.settimeout(None)
        self._sockets += [client, server]
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_BYTES):
                target.sendall(self._perhaps_flipped(data))
        _end(source)
        _end(target)

    def _perhaps_flipped(self, data: bytes) -> bytes:
        if self._pick.random() >= self.share:
            return data
        flipped = bytearray(data)
        flipped[self._pick.randrange(len(data))] ^= 1 << self._pick.randrange(8)
        self.count += 1
        return bytes(flipped)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
    connection.close()

"""A loopback port that neither accepts nor refuses connections: clients wait."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def black_hole(host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Yields ``host:port`` of a server whose queue of connections is full and stays so."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, port), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"{host}:{server.getsockname()[1]}"

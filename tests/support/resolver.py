"""Host names as the test wants them, for producers in this process."""

from __future__ import annotations

import ctypes
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from spark_kafka_sink.librdkafka import _prototypes as c

_LOOK_SECONDS = 0.02
_NEXT_OFFSET = 40  # of ai_next in struct addrinfo, with 64 bits


class Resolver:
    """Every name stands for 127.0.0.1, unless it is in ``unknown`` or ``addresses``.

    librdkafka also looks up addresses such as 127.0.0.1 by it.
    """

    #: a client that could not be closed in time may still call them
    _callbacks: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self.unknown: set[str] = set()
        #: name -> its addresses
        self.addresses: dict[str, list[str]] = {}
        self._hangs = False
        self._libc = ctypes.CDLL(None)
        self._libc.getaddrinfo.argtypes = [ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_void_p] * 2]
        self._libc.freeaddrinfo.argtypes = [ctypes.c_void_p]
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_void_p,
        )
        self._callbacks.append(prototype(self._resolve))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """New clients use it."""
        set_resolver = c.prototype(
            "rd_kafka_conf_set_resolve_cb", None, ctypes.c_void_p, ctypes.c_void_p
        )
        set_events = c.conf_set_events

        def also_resolve(conf: Any, events: Any) -> None:
            set_resolver(conf, ctypes.cast(self._callbacks[-1], ctypes.c_void_p))
            set_events(conf, events)

        monkeypatch.setattr(c, "conf_set_events", also_resolve)

    @contextmanager
    def not_resolving(self, *names: str) -> Iterator[None]:
        self.unknown.update(names)
        yield
        self.unknown.difference_update(names)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Look-ups do not return before the block ends."""
        self._hangs = True
        try:
            yield
        finally:
            self._hangs = False

    def _resolve(self, node: Any, service: Any, hints: Any, result: Any, _opaque: Any) -> int:
        if node is None:  # librdkafka returns what it got
            self._libc.freeaddrinfo(result[0])
            return 0
        while self._hangs:
            time.sleep(_LOOK_SECONDS)
        if node.decode() in self.unknown:
            return socket.EAI_NONAME
        chain = None
        for address in reversed(self.addresses.get(node.decode(), ["127.0.0.1"])):
            one = ctypes.c_void_p()
            code = self._libc.getaddrinfo(address.encode(), service, hints, ctypes.byref(one))
            if code or one.value is None:
                return int(code)
            ctypes.c_void_p.from_address(one.value + _NEXT_OFFSET).value = chain
            chain = one.value
        result[0] = chain
        return 0

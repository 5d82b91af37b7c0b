"""[both] Keeps clients that no task uses: reads their events, and closes them after a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.threads import start_thread

# How often events are read. librdkafka keeps them without any bound.
_POLL_SECONDS = 1.0


class Reusable(Protocol):
    """A client that one task after another uses. Any thread may call these two."""

    def read_events(self) -> None:
        """Apply pending events. Never waits, and does nothing after ``close``."""

    def close(self, timeout_seconds: float) -> object:
        """Free the client."""


ClientT = TypeVar("ClientT", bound=Reusable)
KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass
class _Idle(Generic[ClientT]):
    client: ClientT
    since: float
    timeout_seconds: float


class IdleClients(Generic[KeyT, ClientT]):
    """Keeps idle clients: at most one for each key, and at most ``max_idle()`` in all.

    A thread reads their events, and closes those that are idle for too long. It ends with the last
    client.
    """

    def __init__(self, max_idle: Callable[[], int], clock: Clock = time.monotonic) -> None:
        self._max_idle = max_idle
        self._clock = clock
        self._lock = threading.Lock()  # guards the next three
        self._poller: threading.Thread | None = None
        self._used: list[ClientT] = []
        self._idle: dict[KeyT, _Idle[ClientT]] = {}  # longest idle first

    def take(self, key: KeyT) -> ClientT | None:
        """The idle client of that key, which is the caller's from now on."""
        self.evict_expired()
        with self._lock:
            idle = self._idle.pop(key, None)
        return None if idle is None else idle.client

    @contextmanager
    def in_use(self, client: ClientT) -> Iterator[None]:
        """Read the client's events meanwhile, too."""
        with self._lock:
            self._used.append(client)
            self._poll()
        try:
            yield
        finally:
            with self._lock:
                self._used.remove(client)

    def keep(self, key: KeyT, client: ClientT, timeout_seconds: float) -> bool:
        """Keep a client for the next task; False if there is one, and the caller closes it."""
        with self._lock:
            if key in self._idle:
                return False
            self._idle[key] = _Idle(client, self._clock(), timeout_seconds)
            self._poll()
        return True

    def _poll(self) -> None:
        # The thread is replaced if it has failed, as in a handler of a client's log lines.
        if self._poller is None or not self._poller.is_alive():
            self._poller = start_thread(self._poll_all, "poller")

    def _poll_all(self) -> None:
        while True:
            time.sleep(_POLL_SECONDS)
            with self._lock:
                clients = [*self._used, *(idle.client for idle in self._idle.values())]
                if not clients:
                    self._poller = None
                    return
            for client in clients:
                client.read_events()
            self.evict_expired()

    def evict_expired(self) -> None:
        """Close clients that were idle for too long; of too many, the longest idle ones."""
        now, max_idle = self._clock(), self._max_idle()
        with self._lock:
            too_many = len(self._idle) - max_idle
            expired = {
                key: idle.client
                for position, (key, idle) in enumerate(self._idle.items())
                if position < too_many or now - idle.since >= idle.timeout_seconds
            }
            for key in expired:
                del self._idle[key]
        for client in expired.values():
            client.close(0)

    def close(self, timeout_seconds: float) -> None:
        """Close one client after another until the timeout."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), {}
        end = self._clock() + timeout_seconds
        for item in idle:
            if self._clock() < end:
                item.client.close(0)

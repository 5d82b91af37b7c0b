"""[both] The producer's state, and which thread has exclusive access to its client."""

from __future__ import annotations

import threading
from collections import deque
from enum import IntEnum

from spark_kafka_sink.deadline import Deadline

# A wait for access returns this often, so that its caller notices other changes.
_LOOK_SECONDS = 0.05


class ProducerState(IntEnum):
    """OPEN -> DRAINING -> ABORTING -> CLOSED; states may be skipped, but never go back.

    Tasks flush, and then call close(0): only KIP-15's close(timeout), which no task needs, drains.
    """

    OPEN = 0
    #: close waits for records already accepted; no more are accepted
    DRAINING = 1
    #: remaining records fail, and every waiting thread wakes up
    ABORTING = 2
    CLOSED = 3


class Lifecycle:
    """A fair lock: one thread at a time has exclusive access to the client and the producer's data.

    While the producer is OPEN, access is granted in the order of the requests, for some
    milliseconds. From DRAINING on, only a closing thread gets it, so that no other can starve it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards everything below
        self._state = ProducerState.OPEN
        self._owner: int | None = None
        self._requests: deque[int] = deque()

    @property
    def state(self) -> ProducerState:
        return self._state

    @property
    def is_held_by_this_thread(self) -> bool:
        """Whether the calling thread has access, that is, is handling an event inside a poll."""
        return self._owner == threading.get_ident()

    def acquire(self, deadline: Deadline) -> bool:
        """Wait briefly for access, at most until the deadline; returns whether it was granted.

        Never granted once a thread is closing the producer.
        Raises RuntimeError if the calling thread has access already.
        """
        me = threading.get_ident()
        if self._owner == me:
            raise RuntimeError("the producer cannot be used from a handler of its own events")
        with self._changed:
            if self._state is ProducerState.OPEN and self._owner is None and not self._requests:
                self._owner = me  # the usual case, without a wait
                return True
            self._requests.append(me)
            try:
                self._changed.wait_for(
                    lambda: self._state >= ProducerState.ABORTING or self._is_free_for(me),
                    deadline.slice(_LOOK_SECONDS),
                )
                if not self._is_free_for(me):
                    return False
                self._owner = me
                return True
            finally:
                self._requests.remove(me)

    def _is_free_for(self, thread: int) -> bool:
        return (
            self._state is ProducerState.OPEN
            and self._owner is None
            and self._requests[0] == thread
        )

    def acquire_to_close(self, state: ProducerState, deadline: Deadline) -> bool:
        """Advance to a closing state and wait for access; False if another thread closed first.

        Also False if another thread keeps access beyond the deadline.
        """
        with self._changed:
            self._advance(state)
            self._changed.wait_for(
                lambda: self._owner is None or self._state is ProducerState.CLOSED,
                deadline.remaining(),
            )
            if self._owner is not None or self._state is ProducerState.CLOSED:
                return False
            self._owner = threading.get_ident()
            return True

    def release(self) -> None:
        with self._changed:
            self._owner = None
            self._changed.notify_all()

    def advance(self, state: ProducerState) -> None:
        """Advance to a state, unless it was already reached, and wake every waiting thread."""
        with self._changed:
            self._advance(state)

    def _advance(self, state: ProducerState) -> None:
        self._state = max(self._state, state)
        self._changed.notify_all()

    def wait_until_aborting(self, seconds: float) -> bool:
        """Wait that long for ABORTING; returns whether the state was reached."""
        with self._changed:
            return self._changed.wait_for(lambda: self._state >= ProducerState.ABORTING, seconds)

"""LineWriter: lines on standard output or error, whether or not their reader reads on."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.process_limits import start_thread

_MAX_WAITING = 1000
_CLOSE_SECONDS = 5.0


class LineWriter:
    """Writes in a thread of its own: a reader that reads no further would block who writes.

    ``on_error`` is called in that thread if a line cannot be written.
    """

    def __init__(
        self, name: Literal["stdout", "stderr"], on_error: Callable[[Exception], None]
    ) -> None:
        self._name = name
        self._on_error = on_error
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> bool:
        """Never waits; returns whether there was room for the line."""
        with self._lock:
            if self._thread is None:
                stream = getattr(sys, self._name)
                self._thread = start_thread(self._write_all, self._name, [stream])
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            return False
        return True

    def close(self) -> bool:
        """Wait a few seconds for the lines; returns whether the thread has ended with them."""
        if self._thread is None:
            return True
        deadline = Deadline(_CLOSE_SECONDS)
        with suppress(queue.Full):
            self._waiting.put(None, timeout=deadline.remaining())
        self._thread.join(deadline.remaining())
        if not self._thread.is_alive():
            return True
        # The thread keeps the stream's lock, for which Python would wait when it flushes at exit.
        nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
        setattr(sys, self._name, nowhere)
        setattr(sys, f"__{self._name}__", nowhere)
        return False

    def _write_all(self, stream: TextIO) -> None:
        for line in iter(self._waiting.get, None):
            try:
                print(line, file=stream, flush=True)
            except (
                OSError,
                ValueError,
            ) as error:  # closed, or no such text
                self._on_error(error)

"""A local server: one that ends with its caller, and the command line's, which outlives it."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_servers.java import CACHE_ADVICE, cache_folder, os_errors_as
from spark_kafka_sink.tools.local_servers.processes import (
    GuardedProcess,
    has_argument,
    send_signal,
)

_STOP_SECONDS = 5.0


class LocalServer:
    """A server of one process or more, each with ``folder`` on its command line.

    A context manager, whose subclass starts the processes.
    """

    def __init__(self, name: str, folder: Path | None) -> None:
        self._name = name
        self._folder = folder
        self._is_temporary = folder is None
        self._processes: list[GuardedProcess] = []

    @property
    def folder(self) -> Path:
        """Where its data and logs are."""
        if self._folder is None:
            with os_errors_as("TMPDIR chooses the folder for temporary files"):
                self._folder = Path(tempfile.mkdtemp(prefix=f"local-{self._name}-"))
        return self._folder

    @property
    def pids(self) -> list[int]:
        """The ids of its processes, if it runs."""
        return [process.pid for process in self._processes]

    def __exit__(self, *error: object) -> None:
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def detach(self) -> None:
        """Let it outlive this process. Save ``pids`` first: the caller must end it.

        Raises LocalServerError if that fails; ``stop`` still ends it then.
        """
        with os_errors_as("Start it again"):
            for process in self._processes:
                process.release()
        self._processes = []
        self._is_temporary = False

    def stop(self) -> None:
        """Stop it within a few seconds, whatever its state."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.ask_to_end()
        for process in processes:
            process.end()


Server = TypeVar("Server", bound=LocalServer)


@dataclass(frozen=True)
class _State:
    """What ``start`` saves for ``stop`` and ``status``."""

    address: str
    folder: str
    pids: list[int]

    def running(self) -> list[int]:
        return [pid for pid in self.pids if has_argument(pid, self.folder)]


@dataclass(frozen=True)
class DetachedServer:
    """The server that ``python -m spark_kafka_sink <name>`` starts; one at a time.

    All methods raise LocalServerError.
    """

    name: str

    def start(
        self, server: AbstractContextManager[Server], address: Callable[[Server], str]
    ) -> str:
        """Start it, unless it runs already, and return its address; or leave nothing running."""
        running = self.status()
        if running is not None:
            return running
        self._prepare_state_file()
        # Until the state is on disk, the server ends with this process, so none is orphaned.
        with server as started:
            self._write_state(_State(address(started), str(started.folder), started.pids))
            started.detach()
            return address(started)

    def status(self) -> str | None:
        """The address of the running server, or None if none is running."""
        state = self._read_state()
        return state.address if state else None

    def stop(self) -> str | None:
        """Stop the running server; returns the folder with its logs, or None if there is none."""
        state = self._read_state()
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
            self._state_file().unlink(missing_ok=True)
        return state.folder

    def _state_file(self) -> Path:
        return cache_folder() / f"{self.name}.json"

    def _prepare_state_file(self) -> None:
        """Remove the state of a server that has ended, and check that a new one can be written."""
        path = self._state_file()
        with os_errors_as(CACHE_ADVICE):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            tempfile.TemporaryFile(dir=path.parent).close()

    def _write_state(self, state: _State) -> None:
        with os_errors_as(CACHE_ADVICE):
            try:
                file = self._state_file().open("x")
            except FileExistsError:
                raise LocalServerError(
                    f"another `{self.name} start` finished first; see `{self.name} status`"
                ) from None
            with file:
                json.dump(asdict(state), file)

    def _read_state(self) -> _State | None:
        """The state of the running server, or None if none is running."""
        with os_errors_as(CACHE_ADVICE):
            try:
                state = _State(**json.loads(self._state_file().read_text()))
            except (FileNotFoundError, ValueError, TypeError):  # missing or incomplete
                return None
        return state if state.running() else None

"""Finds attempts of tasks that outlive their deadlines, and shows where they hang."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from evidence import ATTEMPTS, parse

_STACK_SECONDS = 1.0
_DEBUGGER_SECONDS = 60.0


class HungAttempts:
    """Follows the log of attempts. ``sentences``: a sentence for each that was hung."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._position = 0
        self._open: dict[str, dict[str, Any]] = {}
        self.sentences: list[str] = []

    def look(self) -> None:
        """Note, and kill, the processes of attempts that last longer than allowed."""
        self._read()
        now = time.monotonic()
        for name, line in list(self._open.items()):
            if now - line["at"] < self._seconds:
                continue
            del self._open[name]
            if self._is_alive(line["pid"], now - line["at"]):
                stacks = self._stacks(line["pid"])
                self.sentences.append(
                    f"{line['topic']} micro-batch {line['batch']} partition {line['partition']}: "
                    f"process {line['pid']} hangs for {now - line['at']:.0f} s; see {stacks}"
                )
                with suppress(ProcessLookupError):
                    os.kill(line["pid"], signal.SIGKILL)

    def _read(self) -> None:
        path = self._folder / ATTEMPTS
        if not path.exists():
            return
        with path.open() as lines:
            lines.seek(self._position)
            text = lines.read()
        whole = text[: text.rfind("\n") + 1]
        self._position += len(whole)
        for line in map(parse, whole.splitlines()):
            if "outcome" in line:
                self._open.pop(line["attempt"], None)
                continue
            # A process makes one attempt of a stream at a time, so an earlier one that did not end
            # was given up.
            place = (line["pid"], line["topic"])
            for name, other in list(self._open.items()):
                if (other["pid"], other["topic"]) == place:
                    del self._open[name]
            self._open[line["attempt"]] = line

    def _is_alive(self, pid: int, seconds: float) -> bool:
        """Whether it is the process of this run that had that number so many seconds ago.

        Numbers of processes are used again, in long runs within a minute.
        """
        try:
            process = psutil.Process(pid)
            of_this_run = process.environ().get("CHAOS_FOLDER") == str(self._folder)
            return of_this_run and time.time() - process.create_time() >= seconds
        except psutil.Error:
            return False

    def _stacks(self, pid: int) -> Path:
        """C's stacks, if there is a debugger; Python's go to the log of the streams."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)  # sitecustomize.py answers
        time.sleep(_STACK_SECONDS)
        path = self._folder / f"stacks-{pid}.txt"
        debugger = shutil.which("gdb")
        if debugger:
            command = [debugger, "-p", str(pid), "-batch", "-ex", "thread apply all bt"]
            with suppress(subprocess.TimeoutExpired), path.open("a") as output:
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=_DEBUGGER_SECONDS,
                    check=False,
                )
        return path

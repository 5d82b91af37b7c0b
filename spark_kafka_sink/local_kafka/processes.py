"""Processes of this machine: start one that ends with its caller, ask about any, signal any."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spark_kafka_sink.errors import LocalKafkaError

_PROC = Path("/proc")  # Linux has it, macOS does not
_PS_SECONDS = 10.0
_END_SECONDS = 5.0  # more than the guard needs

# Runs a command until standard input ends, which it does when whoever holds the other end dies.
# The line "release" lets the command run on without a guard.
_GUARD = """
"$@" </dev/null >&2 & child=$!
echo $child
read -r line
[ "$line" = release ] && exit 0
kill -TERM $child
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  kill -0 $child 2>/dev/null || exit 0
  sleep 0.1
done
kill -KILL $child
"""


class GuardedProcess:
    """A process that ends with its caller, even if the caller is killed, unless it is released."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Start it; what it prints is appended to ``log``. Raises OSError, LocalKafkaError."""
        self._last_argument = command[-1]
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,  # Ctrl-C is for the caller, which then stops us in order
            )
        answer = self._guard.stdout.readline() if self._guard.stdout else ""
        if not answer.strip().isdigit():
            self._end_guard()
            raise LocalKafkaError(f"sh could not start {command[0]}; see {log}")
        self.pid = int(answer)

    def ask_to_end(self) -> None:
        """Begin to end it, without waiting."""
        self._close_input()
        self._signal(signal.SIGCONT)  # a suspended process cannot end

    def end(self) -> None:
        """End it within some seconds, whatever state it is in."""
        self.ask_to_end()
        self._end_guard()
        self._signal(signal.SIGKILL)

    def release(self) -> None:
        """Let it run on when its caller ends. Raises OSError if its guard is gone."""
        if self._guard.stdin:
            self._guard.stdin.write("release\n")
            self._guard.stdin.flush()
        self._end_guard()

    def _signal(self, number: int) -> None:
        if has_argument(self.pid, self._last_argument):
            send_signal(self.pid, number)

    def _close_input(self) -> None:
        if self._guard.stdin:
            with suppress(BrokenPipeError):  # a release that nobody was there to read
                self._guard.stdin.close()

    def _end_guard(self) -> None:
        self._close_input()
        try:
            self._guard.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        if self._guard.stdout:
            self._guard.stdout.close()


def is_running(pid: int) -> bool:
    """Whether that process lives. One that has ended and only waits to be reaped does not."""
    return _state(pid) not in ("", "Z", "X")


def has_argument(pid: int, text: str) -> bool:
    """Whether that process lives and has ``text`` on its command line.

    It tells a process from a later one that was given the same id.
    """
    return is_running(pid) and text in _command_line(pid)


def send_signal(pid: int, number: int) -> None:
    """Signal a process; nothing happens if it has ended. Raises LocalKafkaError if forbidden."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise LocalKafkaError(
            f"process {pid} belongs to another user; repeat this as that user"
        ) from error


def _state(pid: int) -> str:
    """One letter, as ``ps`` and Linux write it; empty if there is no such process."""
    if _has_proc():
        # The command's name comes first, in parentheses, and may hold any character.
        return _read(pid, "stat").rpartition(")")[2].strip()[:1]
    return _ps(pid, "stat")[:1]


def _command_line(pid: int) -> str:
    if _has_proc():
        return _read(pid, "cmdline").replace("\0", " ")
    return _ps(pid, "args")


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


def _read(pid: int, name: str) -> str:
    try:
        return (_PROC / str(pid) / name).read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def _ps(pid: int, column: str) -> str:
    # Without -ww it cuts its lines to the width of the terminal, or to $COLUMNS.
    command = ["ps", "-ww", "-o", f"{column}=", "-p", str(pid)]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PS_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalKafkaError(
            f"cannot tell which processes run: there is no {_PROC}, and ps failed ({error}). "
            "Mount /proc, or install ps"
        ) from error
    return answer.stdout.strip()

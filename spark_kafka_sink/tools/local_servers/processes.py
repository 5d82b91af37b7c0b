"""Processes on this machine: starts one that ends with its caller, inspects and signals any."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spark_kafka_sink.errors import LocalServerError

_PROC = Path("/proc")  # Linux has it, macOS does not
_PS_SECONDS = 10.0
_END_SECONDS = 5.0  # more than the guard needs

# Runs a command until standard input closes, which happens when the process at the other end dies.
# The line "release" ends the guard and leaves the command running.
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
        """Start it and append its output to ``log``. Raises OSError, LocalServerError."""
        self.command = command
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,  # Ctrl-C is for the caller, which then ends the process
            )
        answer = self._guard.stdout.readline() if self._guard.stdout else ""
        if not answer.strip().isdigit():
            self._end_guard()
            raise LocalServerError(f"sh could not start {command[0]}; see {log}")
        self.pid = int(answer)

    def ask_to_end(self) -> None:
        """Ask it to end, without waiting."""
        self._close_input()
        self._signal(signal.SIGCONT)  # a suspended process cannot handle SIGTERM

    def end(self) -> None:
        """End it within a few seconds, whatever its state."""
        self.ask_to_end()
        self._end_guard()
        self._signal(signal.SIGKILL)

    def release(self) -> None:
        """Let it outlive its caller. Raises OSError if its guard has died."""
        if self._guard.stdin:
            self._guard.stdin.write("release\n")
            self._guard.stdin.flush()
        self._end_guard()

    def _signal(self, number: int) -> None:
        if has_argument(self.pid, self.command[-1]):
            send_signal(self.pid, number)

    def _close_input(self) -> None:
        if self._guard.stdin:
            with suppress(BrokenPipeError):  # the guard died before it read "release"
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
    """Whether the process is alive. A zombie is not."""
    return _state(pid) not in ("", "Z", "X")


def has_argument(pid: int, text: str) -> bool:
    """Whether the process is alive and has ``text`` on its command line.

    The text tells it from a later process with the same id.
    """
    return is_running(pid) and text in _command_line(pid)


def send_signal(pid: int, number: int) -> None:
    """Signal a process, or do nothing if it has ended. Raises LocalServerError if forbidden."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise LocalServerError(
            f"process {pid} belongs to another user; run this command as that user"
        ) from error


def _state(pid: int) -> str:
    """The process's state as one letter, or empty if there is no such process."""
    if _has_proc():
        # The command's name comes before it, in parentheses, and may contain any character.
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
    except OSError:  # the process has ended
        return ""


def _ps(pid: int, column: str) -> str:
    # Without -ww, ps cuts lines at the width of the terminal, or at $COLUMNS.
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
        raise LocalServerError(
            f"running processes cannot be listed: there is no {_PROC}, and ps failed ({error}). "
            "Mount /proc, or install ps"
        ) from error
    return answer.stdout.strip()

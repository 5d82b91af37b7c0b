"""What a user sees of a running job: a live view on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import os
import queue
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_kafka_sink.report.reading import printable
from spark_kafka_sink.threads import start_thread
from spark_kafka_sink.tools.job.reports import MicroBatch

_MAX_TOPICS = 15
_LAST_LINE = ""  # so that Java's output does not begin at the end of a line of ours
_NO_TOPIC = "(null)"
_STDOUT, _STDERR = 1, 2  # descriptors
_NOT_READ = "nobody reads it"
_MAX_WAITING_LINES = 1000
_CLOSE_SECONDS = 5.0
_NOT_KNOWN = "not known: no report has arrived"


class Output(Protocol):
    """Where a job reports to."""

    def show_micro_batch(self, micro_batch: MicroBatch) -> None:
        """Show a micro-batch that has ended."""

    def show_state(self, state: str) -> None:
        """Show what the job is doing or waiting for, until it does something else."""

    def say(self, message: str) -> None:
        """Show a message that stays."""


@contextmanager
def open_output(name: str, console: Console) -> Iterator[Output]:
    """The output for this kind of standard output."""
    if not console.is_terminal:
        with closing(JsonLines()) as lines:
            yield lines
        return
    view = View(name)
    live = Live(get_renderable=view.render, console=console, refresh_per_second=4)
    try:
        yield LiveView(view, live)
    finally:
        live.stop()


class JsonLines:
    """Writes a line of JSON per micro-batch to standard output, and messages to standard error.

    If nobody reads standard output, the job continues without these lines.
    """

    def __init__(self) -> None:
        self._lines, self._messages = _LineWriter(_STDOUT), _LineWriter(_STDERR)
        self._has_said_problem = False

    def show_micro_batch(self, micro_batch: MicroBatch) -> None:
        self._lines.write(micro_batch.to_json())
        self._say_problem()

    def show_state(self, state: str) -> None:
        """Show nothing: standard output is for programs."""

    def say(self, message: str) -> None:
        self._messages.write(_printable_lines(message))

    def close(self) -> None:
        """Wait a few seconds for what is not written yet."""
        self._lines.close()
        self._say_problem()
        self._messages.close()

    def _say_problem(self) -> None:
        if self._lines.problem and not self._has_said_problem:
            self._has_said_problem = True
            self.say(f"standard output: {self._lines.problem}; lines of JSON are lost from now on")


class _LineWriter:
    """Writes lines in a thread, which blocks when the reader of the descriptor stops reading.

    After a ``problem`` it writes nothing.
    """

    def __init__(self, descriptor: int) -> None:
        self.problem = ""
        self._descriptor = descriptor
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING_LINES)
        self._thread = start_thread(self._write_waiting, f"lines for descriptor {descriptor}")

    def write(self, line: str) -> None:
        """Never waits."""
        try:
            if not self.problem:
                self._waiting.put_nowait(line)
        except queue.Full:
            self.problem = _NOT_READ

    def close(self) -> None:
        """Wait a few seconds for the lines."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            self.problem = _NOT_READ

    def _write_waiting(self) -> None:
        # Not to sys.stdout: at exit, Python would wait for the lock that a blocked write holds.
        try:
            for line in iter(self._waiting.get, None):
                rest = f"{line}\n".encode(errors="replace")
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self.problem = error.strerror or str(error)


def _printable_lines(message: str) -> str:
    """The message without control characters, since an error may contain text from the data."""
    return "\n".join(printable(line) for line in message.splitlines())


class LiveView:
    """A view that is redrawn continuously, from the first ``show_state`` on.

    Java's output appears above it, together with copies of the view's earlier lines.
    """

    def __init__(self, view: View, live: Live) -> None:
        self._view = view
        self._live = live

    def show_micro_batch(self, micro_batch: MicroBatch) -> None:
        self._view.show_micro_batch(micro_batch)
        self._live.refresh()

    def show_state(self, state: str) -> None:
        self._view.state = state
        self._live.start()

    def say(self, message: str) -> None:
        # Text: neither markup nor codes of emoji, such as the :100: of a line's number.
        self._live.console.print(Text(_printable_lines(message)))


class View:
    """What the live view shows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ""
        # Guards the fields below, since rich renders in a thread of its own. Never held in a call
        # of rich's Live, which holds its own lock while it renders.
        self._lock = threading.Lock()
        self._first: MicroBatch | None = None
        self._last: MicroBatch | None = None
        self._input_rows = 0
        self._delivered: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._dead_letters: Counter[str] = Counter()

    def show_micro_batch(self, micro_batch: MicroBatch) -> None:
        with self._lock:
            self._first = self._first or micro_batch
            self._last = micro_batch
            self._input_rows += micro_batch.input_rows
            self._delivered += micro_batch.delivered_records() or Counter()
            self._failed += micro_batch.failed_records() or Counter()
            self._dead_letters += micro_batch.dead_letters() or Counter()

    def render(self) -> RenderableType:
        head = Text.assemble((self.name, "bold"), "  ", (self.state, "dim"))
        parts: list[RenderableType] = [head]
        with self._lock:
            if self._first is not None and self._last is not None:
                parts += [self._figures(self._first, self._last), self._topics(self._last)]
        return Group(*parts, _LAST_LINE)

    def _figures(self, first: MicroBatch, last: MicroBatch) -> Table:
        table = Table.grid(padding=(0, 2))
        rate = "-" if last.rows_per_second is None else f"{last.rows_per_second:,.0f} rows/s"
        table.add_row("micro-batch", f"{last.batch_id}", f"{last.input_rows:,} rows", rate)
        times = f"last {_seconds(last)}", f"first {_seconds(first)}"
        table.add_row("time", *times, f"{self._input_rows:,} rows in all")
        return table

    def _topics(self, last: MicroBatch) -> RenderableType:
        if last.report is None:
            return Text(f"delivered records: {_NOT_KNOWN}", style="dim")
        everything = self._delivered + self._failed + self._dead_letters
        if not everything:
            return Text("no records delivered yet", style="dim")
        counts = [self._delivered, self._failed]
        table = Table("topic", "delivered", "failed")
        if self._dead_letters:
            counts.append(self._dead_letters)
            table.add_column("dead letters")
        for column in table.columns[1:]:
            column.justify = "right"
        for topic, _ in everything.most_common(_MAX_TOPICS):
            delivered, *bad = (count[topic] for count in counts)
            cells = (Text(f"{number:,}", "red" if number else "") for number in bad)
            # Text: a bad row's topic is neither rich's markup nor a terminal's control characters.
            table.add_row(Text(printable(topic or _NO_TOPIC)), f"{delivered:,}", *cells)
        others = [topic for topic, _ in everything.most_common()[_MAX_TOPICS:]]
        if others:
            totals = (f"{sum(count[topic] for topic in others):,}" for count in counts)
            table.add_row(f"{len(others)} other topics", *totals)
        return table


def _seconds(micro_batch: MicroBatch) -> str:
    return f"{micro_batch.duration_ms / 1000:.2f} s"

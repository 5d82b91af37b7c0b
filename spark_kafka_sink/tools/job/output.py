"""What a user sees of a running job: a live view on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_kafka_sink.report.reading import printable
from spark_kafka_sink.tools.job.line_writer import LineWriter
from spark_kafka_sink.tools.job.micro_batch import MicroBatch

_MAX_TOPICS = 15
_OWN_LINE = ""  # so that Java's output does not begin at the end of ours
_NO_TOPIC = "(null)"
_STALLED = "its reader reads no further"
_NOT_KNOWN = "not known: no report has arrived"


class Output(Protocol):
    """Where a job reports to."""

    def ended(self, micro_batch: MicroBatch) -> None:
        """A micro-batch ended."""

    def waits_for(self, what: str) -> None:
        """What the job is doing or waiting for now."""

    def say(self, message: str) -> None:
        """A message that stays."""


@contextmanager
def output_of(name: str, console: Console) -> Iterator[Output]:
    """The output that suits standard output."""
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
    """A line of JSON on standard output for every micro-batch; messages on standard error.

    If standard output cannot be written to, because its reader has ended or reads no further, the
    job continues without lines: the query neither fails nor waits because of a report.
    """

    def __init__(self) -> None:
        self._lines = LineWriter("stdout", self._give_up_after)
        self._messages = LineWriter("stderr", lambda _: None)  # its reader may have ended too
        self._is_read = True

    def ended(self, micro_batch: MicroBatch) -> None:
        self._print(micro_batch.to_json())

    def waits_for(self, what: str) -> None:
        """Not shown: standard output is for programs."""

    def say(self, message: str) -> None:
        self._messages.write(_printable_lines(message))

    def close(self) -> None:
        """Wait for what is not written yet, but for seconds only."""
        if not self._lines.close() and self._is_read:
            self.say(f"standard output: {_STALLED}; the last lines of JSON are lost")
        self._messages.close()

    def _print(self, line: str) -> None:
        if self._is_read and not self._lines.write(line):
            self._give_up(_STALLED)

    def _give_up_after(self, error: Exception) -> None:
        # What is left in the buffer would fail the process when Python flushes it at the end.
        _discard_standard_output()
        self._give_up(getattr(error, "strerror", None) or str(error))

    def _give_up(self, why: str) -> None:
        if self._is_read:
            self._is_read = False
            self.say(f"standard output: {why}; the job continues without lines of JSON")


def _discard_standard_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _printable_lines(message: str) -> str:
    """Without control characters: an error may contain text from the data."""
    return "\n".join(printable(line) for line in message.splitlines())


class LiveView:
    """A view that is redrawn continuously, from the first ``waits_for`` on.

    Java's output appears above it, together with copies of its former lines.
    """

    def __init__(self, view: View, live: Live) -> None:
        self._view = view
        self._live = live

    def ended(self, micro_batch: MicroBatch) -> None:
        self._view.ended(micro_batch)
        self._live.refresh()

    def waits_for(self, what: str) -> None:
        self._view.state = what
        self._live.start()

    def say(self, message: str) -> None:
        self._live.console.print(_printable_lines(message), markup=False, highlight=False)


class View:
    """What the live view shows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ""
        # Guards what follows: rich renders in a thread of its own. Held for no call of rich's Live,
        # which holds its own lock while it renders.
        self._lock = threading.Lock()
        self._first: MicroBatch | None = None
        self._last: MicroBatch | None = None
        self._input_rows = 0
        self._delivered: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._dead_letters: Counter[str] = Counter()

    def ended(self, micro_batch: MicroBatch) -> None:
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
        return Group(*parts, _OWN_LINE)

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
            delivered, *bad = (each[topic] for each in counts)
            cells = (Text(f"{number:,}", "red" if number else "") for number in bad)
            # Text: a bad row's topic is neither rich's markup nor a terminal's control characters.
            table.add_row(Text(printable(topic or _NO_TOPIC)), f"{delivered:,}", *cells)
        others = [topic for topic, _ in everything.most_common()[_MAX_TOPICS:]]
        if others:
            totals = (f"{sum(each[topic] for topic in others):,}" for each in counts)
            table.add_row(f"{len(others)} other topics", *totals)
        return table


def _seconds(micro_batch: MicroBatch) -> str:
    return f"{micro_batch.duration_ms / 1000:.2f} s"

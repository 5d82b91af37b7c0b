"""The command ``report``: reads reports, shows them, follows them, and writes the page."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from spark_kafka_sink.report.reading import ReportFiles, SkippedLine
from spark_kafka_sink.tools.report import terminal
from spark_kafka_sink.tools.report.history import History

_NO_REPORTS = 1
_UNREADABLE = 2
_WIDTH_WITHOUT_TERMINAL = 120
_MAX_REASONS = 5


def run(path: Path, html: Path | None, is_followed: bool, wait: Callable[[], None]) -> int:
    """Show the reports at ``path``; returns the exit code.

    0; 1 if there is no report; 2 if the path or all its lines are unreadable, or the page cannot be
    written. ``wait`` is called between two reads of the files. KeyboardInterrupt ends following.
    """
    if html and not find_spec("matplotlib"):
        return _fail("--html needs pip install 'spark-kafka-sink[report]' (no module matplotlib)")
    stream = _Stream(path)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    try:
        if is_followed:
            return _follow(stream, console, wait)
        stream.read_all()
        if stream.history is None:
            return _no_reports(stream)
        console.print(terminal.render(stream.history))
        stream.warn()
        if html:
            _write_page(html, stream.history, stream)
            console.print(Text(f"written: {html}"))
    except OSError as error:
        return _fail(f"{error.filename or path}: {error.strerror or error}")
    return 0


class _Stream:
    """What has been read so far; ``history`` is None before the first report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history: History | None = None
        self._files = ReportFiles(path)
        # by reason: the first such line, and how many there are
        self._skipped: dict[str, tuple[SkippedLine, int]] = {}

    def read_new(self) -> Iterator[History]:
        """Read what is new; yields the history after each new micro-batch."""
        for report in self._files.new():
            if isinstance(report, SkippedLine):
                first, count = self._skipped.get(report.reason, (report, 0))
                self._skipped[report.reason] = (first, count + 1)
                continue
            if self.history is None:
                self.history = History(report)
            else:
                self.history.add(report)
            yield self.history

    def read_all(self) -> None:
        for _ in self.read_new():
            pass

    def skipped(self) -> list[str]:
        """Sentences on lines that were skipped."""
        sentences = [
            f"Skipped {count:,} {'line' if count == 1 else 'lines'}, first line {first.number} of"
            f" {first.file}: {reason}."
            for reason, (first, count) in self._skipped.items()
        ]
        more = len(sentences) - _MAX_REASONS
        return sentences[:_MAX_REASONS] + [f"Skipped others for {more:,} other reasons."] * (
            more > 0
        )

    def warn(self) -> None:
        for sentence in self.skipped():
            _say(f"warning: {sentence}")


def _no_reports(stream: _Stream) -> int:
    stream.warn()
    if stream.skipped():
        return _fail(f"{stream.path}: none of its lines can be read")
    if (stream.path / "offsets").is_dir():
        return _fail(
            f"{stream.path} is the checkpoint of a stream; reports are in the folder that the "
            "option report.path names"
        )
    _say(f"{stream.path}: no reports yet; the sink writes them if the option report.path is set")
    return _NO_REPORTS


def _follow(stream: _Stream, console: Console, wait: Callable[[], None]) -> int:
    try:
        stream.read_all()
        stream.warn()
        if console.is_terminal:
            _follow_live(stream, console, wait)
        else:
            _follow_as_lines(stream, console, wait)
    except KeyboardInterrupt:
        return 0


def _follow_live(stream: _Stream, console: Console, wait: Callable[[], None]) -> NoReturn:
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_view(stream), refresh=True)
            wait()
            stream.read_all()


def _follow_as_lines(stream: _Stream, console: Console, wait: Callable[[], None]) -> NoReturn:
    console.print(_view(stream))
    while True:
        wait()
        for history in stream.read_new():
            console.print(Text(terminal.line(history.latest[-1])), soft_wrap=True)


def _view(stream: _Stream) -> RenderableType:
    return terminal.render(stream.history) if stream.history else Text("no reports yet")


def _write_page(file: Path, history: History, stream: _Stream) -> None:
    from spark_kafka_sink.tools.report.page import page

    now = datetime.now(timezone.utc)
    text = page(history, str(stream.path), now, stream.skipped())
    try:
        if file.exists() and not file.is_file():  # such as /dev/stdout
            file.write_text(text, encoding="utf-8")
        else:
            _replace(file.resolve(), text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def _replace(file: Path, text: str) -> None:
    # First to a file beside it, because a web server may be serving the page.
    written = file.with_name(f"{file.name}.new")
    try:
        written.write_text(text, encoding="utf-8")
        if file.exists():
            shutil.copymode(file, written)
        written.replace(file)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def _fail(message: str) -> int:
    _say(f"error: {message}")
    return _UNREADABLE


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201

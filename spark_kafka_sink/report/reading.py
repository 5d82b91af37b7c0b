"""[driver] Reports from files of JSON lines: a folder of ``report-<number>.jsonl``, or one file.

The format: docs/report_format.md. Only the fields that are shown are read and checked.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from spark_kafka_sink.report.batch_figures import FIGURES, VERSION, BatchFigures
from spark_kafka_sink.report.figures import Figure, Kind, parse_time


@dataclass(frozen=True)
class SkippedLine:
    """A line that is no report of a version that this program reads."""

    file: Path
    number: int
    reason: str


class ReportFiles:
    """The files at a path, read further with every call of ``new``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines read
        self._complete: set[Path] = set()  # and read to its end

    def new(self) -> Iterator[BatchFigures | SkippedLine]:
        """The lines since the last call, parsed, oldest first; raises OSError."""
        for line, file, number in self.lines():
            yield _report_or_skipped(line, file, number)

    def lines(self) -> Iterator[tuple[bytes, Path, int]]:
        """The same, as lines with their file and number.

        An incomplete last line is read by a later call: it is still being written, or its writer
        was killed.
        """
        files = _files(self._path)
        self._forget_all_but(files)
        # A writer appends only to its newest file.
        newest = {file.stem.rstrip("0123456789"): file for file in files}.values()
        # The sink deletes its oldest files, perhaps after they were listed.
        unless_deleted = nullcontext() if files == [self._path] else suppress(FileNotFoundError)
        for file in files:
            if file in self._complete:
                continue
            offset, number = self._read.get(file, (0, 0))
            with unless_deleted, file.open("rb") as stream:
                stream.seek(offset)
                for line in stream:
                    if not line.endswith(b"\n") and _is_cut(line):
                        break
                    offset, number = offset + len(line), number + 1
                    # This comes first, so that an error in the caller's loop repeats no line.
                    self._read[file] = (offset, number)
                    if line.strip():
                        yield line, file, number
                else:
                    if offset and file not in newest:
                        self._complete.add(file)
                        del self._read[file]

    def _forget_all_but(self, files: list[Path]) -> None:
        """Others were deleted, and one that gets such a name later is new."""
        self._complete.intersection_update(files)
        for file in self._read.keys() - set(files):
            del self._read[file]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    with os.scandir(path) as entries:  # Path.glob finds nothing in a folder that may not be read
        files = [path / entry.name for entry in entries if entry.name.endswith(".jsonl")]
    return sorted(files, key=lambda file: (_number(file), file.name))


def _number(file: Path) -> int:
    number = re.search(r"(\d+)$", file.stem)
    return int(number[1]) if number else -1


def _is_cut(line: bytes) -> bool:
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError):
        return True
    return False


def _report_or_skipped(line: bytes, file: Path, number: int) -> BatchFigures | SkippedLine:
    try:
        return parse(line)
    except ValueError as error:
        return SkippedLine(file, number, str(error))


def parse(line: bytes) -> BatchFigures:
    """A report from its line; raises ValueError, which says what is wrong with it."""
    try:
        content = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise ValueError("not JSON, or truncated") from None
    version = content.get("version") if isinstance(content, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError("not a report of a micro-batch")
    if version > VERSION:
        raise ValueError(
            f"a report of version {version}; this program reads version {VERSION}: "
            "update spark-kafka-sink"
        )
    values: dict[str, Any] = {}
    for name, figure in FIGURES.items():
        is_absent = figure.is_new and name not in content
        values[name] = None if is_absent else _value(name, figure, content)
    return BatchFigures(**values)


def _value(name: str, figure: Figure, content: Mapping[str, Any]) -> Any:
    if name not in content:
        raise ValueError(f"a report without {name}")
    if figure.nullable and content[name] is None:
        return None
    try:
        return _PARSERS[figure.kind](content[name])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"a report with a wrong {name}") from None


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError
    return value


def _number_of_ms(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)


def printable(text: str) -> str:
    """The text without control characters: it may come from user data, and terminals obey them."""
    shown = (
        " " if character.isspace() else character if character.isprintable() else "�"
        for character in text
    )
    return "".join(shown)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return printable(value)


def _time(value: Any) -> datetime:
    time = parse_time(_text(value))
    if time.tzinfo is None:
        raise ValueError
    return time.astimezone(timezone.utc)


def _counts(value: Any) -> Counter[str]:
    if not isinstance(value, dict):
        raise TypeError
    return Counter({_text(name): _count(number) for name, number in value.items()})


def _counts_by_error(value: Any) -> Mapping[str, Counter[str]]:
    if not isinstance(value, dict):
        raise TypeError
    return {_text(topic): _counts(by_error) for topic, by_error in value.items()}


_PARSERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.INTEGER: _count,
    Kind.NUMBER: _number_of_ms,
    Kind.TEXT: _text,
    Kind.TIMESTAMP: _time,
    Kind.INTEGERS_BY_NAME: _counts,
    Kind.INTEGERS_BY_TOPIC_AND_ERROR: _counts_by_error,
}

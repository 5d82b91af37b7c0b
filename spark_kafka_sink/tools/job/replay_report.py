"""ReplayReport: what a replay has sent, and what remains."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from spark_kafka_sink.report.reading import printable

#: error and topic of a dead letter; the topic may be null, and the error of what is no dead letter
Kind = tuple[str | None, str | None]


@dataclass(frozen=True)
class ReplayReport:
    """Counts of records; None: not known.

    ``replayed``: sent in this run, by their topic. ``to_replay``: selected, but not
    replayed yet. ``passed_over``: not selected. Both are what the dead letter topic holds at the
    end of the run, by error and topic.
    """

    replayed: Counter[str]
    to_replay: Counter[Kind] | None
    passed_over: Counter[Kind] | None

    def to_json(self) -> str:
        """One line; null means not known."""
        return json.dumps(
            {
                "replayed_by_topic": dict(sorted(self.replayed.items())),
                "to_replay": _entries(self.to_replay),
                "passed_over": _entries(self.passed_over),
            }
        )

    def render(self) -> RenderableType:
        """For a terminal."""
        replayed: Counter[Kind] = Counter({(None, t): n for t, n in self.replayed.items()})
        parts: dict[str, Counter[Kind] | None] = {
            "replayed": replayed,
            "still to replay": self.to_replay,
            "not selected": self.passed_over,
        }
        table = Table("", "error", "topic", "records")
        table.columns[-1].justify = "right"
        for title, counts in parts.items():
            if counts is None:
                table.add_row(title, "", "", "not known")
            for (error, topic), records in _in_order(counts or Counter()):
                # Text: a topic or error is neither rich's markup nor control characters.
                names = (Text(printable(name or "")) for name in (error, topic))
                table.add_row(title, *names, f"{records:,}")
        return table


def _entries(counts: Mapping[Kind, int] | None) -> list[dict[str, str | int | None]] | None:
    if counts is None:
        return None
    return [
        {"error": error, "topic": topic, "records": records}
        for (error, topic), records in _in_order(counts)
    ]


def _in_order(counts: Mapping[Kind, int]) -> list[tuple[Kind, int]]:
    return sorted(counts.items(), key=lambda each: tuple(name or "" for name in each[0]))

"""Selection: which dead letters a replay sends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone


@dataclass(frozen=True)
class Selection:
    """Dead letters by error, topic and time; an empty set or None selects by nothing.

    ``topics``: those that the records were meant for. ``since`` (inclusive) and ``until``
    (exclusive): the records' timestamps, with a time zone.
    """

    errors: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None

    def arguments(self) -> str:
        """The arguments of the command that select the same; equal selections have equal ones."""
        parts = [*_repeated("--error", self.errors), *_repeated("--topic", self.topics)]
        for name, moment in (("--since", self.since), ("--until", self.until)):
            if moment is not None:
                parts.append(f"{name} {moment.astimezone(timezone.utc).isoformat()}")
        return " ".join(parts)


def _repeated(option: str, values: Iterable[str]) -> list[str]:
    return [f"{option} {value}" for value in sorted(values)]


def moment(text: str) -> datetime:
    """A date or time in ISO 8601, in UTC unless it says otherwise; raises ValueError."""
    # Python 3.10 does not know Z.
    parsed = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)

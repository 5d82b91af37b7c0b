"""What a figure of a report is: its meaning, how it adds up, and where it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from functools import cache
from typing import Any

# Parts of a report, in the order of its JSON.
MICRO_BATCH, RECORDS, LOSSES, TIMES, CLIENT, ROUND_TRIPS, ERRORS = range(7)

_PER_MS = {"s": 1e-3, "ns": 1e6}


# --- how figures add up, over tasks and over micro-batches ----------------------------------------


def plus(one: Any, other: Any) -> Any:
    """The sum of what is known."""
    return other if one is None else one if other is None else one + other


def largest(one: Any, other: Any) -> Any:
    """The maximum of what is known."""
    return other if one is None else one if other is None else max(one, other)


def latest(one: Any, other: Any) -> Any:
    """The later one, unless it is empty."""
    return other or one


def plus_each(
    one: Mapping[str, Counter[str]], other: Mapping[str, Counter[str]]
) -> dict[str, Counter[str]]:
    nothing = Counter[str]()
    return {name: one.get(name, nothing) + other.get(name, nothing) for name in {**one, **other}}


def added_up(one: Any, other: Any) -> dict[str, Any]:
    """The fields of two reports of one class that add up, by name."""
    report: Any = type(one)
    return {name: rule(getattr(one, name), getattr(other, name)) for name, rule in _rules(report)}


@cache
def _rules(report: Any) -> list[tuple[str, Callable[[Any, Any], Any]]]:
    rules = [(each.name, each.metadata["adds"]) for each in fields(report)]
    return [(name, rule) for name, rule in rules if rule is not None]


# --- an entry -------------------------------------------------------------------------------------


class Exported:
    """The metric that exports a figure; those of the same name are one metric.

    ``labels``: besides those of every metric. ``at``: their values for this figure, unless it has
    them itself. ``scale``: the factor of each value. ``on_dashboard``: in docs/grafana.json.
    """

    # Not a NamedTuple, which would compile every annotation while a cold worker imports this.
    def __init__(
        self,
        kind: str,
        name: str,
        help_text: str,
        labels: tuple[str, ...],
        at: tuple[str, ...],
        scale: float,
        on_dashboard: bool,
    ) -> None:
        self.kind, self.name, self.help_text, self.labels = kind, name, help_text, labels
        self.at, self.scale, self.on_dashboard = at, scale, on_dashboard


def counter(
    name: str, help_text: str, *labels: str, unit: str = "", on_dashboard: bool = True
) -> Exported:
    """``unit``: s or ns, of a figure in milliseconds."""
    return Exported("counter", name, help_text, labels, (), _PER_MS.get(unit, 1), on_dashboard)


def gauge(
    name: str, help_text: str, *labels: str, at: tuple[str, ...] = (), unit: str = ""
) -> Exported:
    return Exported("gauge", name, help_text, labels, at, _PER_MS.get(unit, 1), True)


class Figure:
    """An entry of the table.

    ``meaning``: in docs/report_format.md and the schema. ``line``: its name on a terminal and on
    the page of ``python -m spark_kafka_sink report``; without one, it is not shown.
    ``one_of``: the only values. ``is_new``: reports of earlier releases lack it; then it is None.
    """

    def __init__(
        self,
        part: int,
        meaning: str,
        line: str,
        metric: Exported | None,
        one_of: Sequence[str],
        is_new: bool,
    ) -> None:
        self.part, self.meaning, self.line = part, meaning, line
        self.metric, self.one_of, self.is_new = metric, one_of, is_new


def figure(
    part: int,
    meaning: str,
    adds: Callable[[Any, Any], Any] | None,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    line: str = "",
    metric: Exported | None = None,
    one_of: Sequence[str] = (),
    is_new: bool = False,
    compare: bool = True,
) -> Any:
    """A field. ``adds``: how it adds up; None: a sum has its default."""
    entry = Figure(part, meaning, line, metric, one_of, is_new)
    metadata = {"adds": adds, "figure": entry}
    return field(
        default=default, default_factory=default_factory, compare=compare, metadata=metadata
    )


def adds(rule: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """The metadata of a field that is no figure itself."""
    return {"adds": rule}

"""A history's plots, as SVG for the page: drawn by matplotlib, coloured by the page's CSS."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from spark_kafka_sink.tools.report.formatting import NO_TOPIC
from spark_kafka_sink.tools.report.history import COMPONENTS, History, Interval

#: name: (on a light page, on a dark page). The light ones differ: ``_svg`` replaces them by name.
COLORS = {
    "text": ("#1f2328", "#e6edf3"),
    "line": ("#b8c0c8", "#4a525c"),
    "blue": ("#0072b2", "#4aa8e0"),
    "orange": ("#e69f00", "#f0b740"),
    "green": ("#009e73", "#2fc79a"),
    "pink": ("#cc79a7", "#e3a0c4"),
    "sky": ("#56b4e9", "#9ad6f9"),
    "red": ("#c8401a", "#ff8a5c"),
    "grey": ("#7d858d", "#8f98a1"),
}
_COMPONENT_COLORS = ("blue", "pink", "orange", "red", "green")
_TOPIC_COLORS = ("blue", "orange", "green", "pink", "sky")
_LABEL_CHARACTERS = 40

_SETTINGS: dict[Any, Any] = {
    "axes.edgecolor": COLORS["line"][0],
    "axes.labelcolor": COLORS["text"][0],
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": ["sans-serif"],
    "font.size": 10,
    "grid.color": COLORS["line"][0],
    "grid.linewidth": 0.4,
    "svg.fonttype": "none",  # text stays text, in the page's colour
    "svg.hashsalt": "spark-kafka-sink",  # the same plot is the same file
    "text.color": COLORS["text"][0],
    "xtick.color": COLORS["line"][0],
    "xtick.labelcolor": COLORS["text"][0],
    "ytick.color": COLORS["line"][0],
    "ytick.labelcolor": COLORS["text"][0],
}


class Plot(NamedTuple):
    """``legend``: the name of a colour in ``COLORS``, and what it stands for."""

    title: str
    legend: Sequence[tuple[str, str]]
    svg: str


def plots(history: History) -> list[Plot]:
    """All plots; the x axis has the samples in order, labelled with their time in UTC."""
    drawings = (_rates, _times, _failures, _repeated_requests, _buffer, _topics)
    with mpl.rc_context(_SETTINGS):
        return [_plot(draw, history.samples) for draw in drawings]


class _Drawing(NamedTuple):
    title: str
    unit: str
    legend: Sequence[tuple[str, str]]


_Draw = Callable[[Axes, Sequence[Interval]], _Drawing]


def _plot(draw: _Draw, samples: Sequence[Interval]) -> Plot:
    figure = Figure(figsize=(5.6, 2.6), layout="constrained")
    axes = figure.add_subplot()
    drawing = draw(axes, samples)
    axes.set_ylabel(drawing.unit)
    axes.set_ylim(bottom=0)
    axes.set_xlim(-0.5, len(samples) - 0.5)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(_time_label(samples)))
    return Plot(drawing.title, drawing.legend, _svg(figure, draw.__name__, drawing.title))


def _time_label(samples: Sequence[Interval]) -> Callable[[float, int | None], str]:
    def label(x: float, _: int | None) -> str:
        if x not in range(len(samples)):
            return ""
        return f"{samples[int(x)].last.ended_at:%Y-%m-%d\n%H:%M:%S}"

    return label


def _svg(figure: Figure, name: str, title: str) -> str:
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    _, tag, drawn = re.split(r"(<svg [^>]*>)", text.getvalue(), maxsplit=1)
    (view_box,) = re.findall(r'viewBox="[^"]*"', tag)
    # A page has several pictures, so their ids must differ.
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name.strip('_')}-", drawn)
    for color, (light, _) in COLORS.items():
        drawn = drawn.replace(light, f"var(--{color})")
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {names} {view_box} role="img" aria-label="{title}">{drawn}'


def _steps(axes: Axes, values: Sequence[float], color: str) -> None:
    axes.stairs(values, _edges(len(values)), color=COLORS[color][0], linewidth=1.4, baseline=None)


def _stack(axes: Axes, layers: Sequence[Sequence[float]], colors: Sequence[str]) -> None:
    edges, bottom = _edges(len(layers[0])), [0.0] * len(layers[0])
    for layer, color in zip(layers, colors, strict=False):
        top = [below + value for below, value in zip(bottom, layer, strict=True)]
        hue = COLORS[color][0]
        axes.stairs(top, edges, baseline=bottom, fill=True, color=hue, linewidth=0)
        bottom = top


def _edges(count: int) -> list[float]:
    return [x - 0.5 for x in range(count + 1)]


def _write_text(axes: Axes, text: str) -> None:
    """Write a text in place of an empty plot."""
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)


def _rates(axes: Axes, samples: Sequence[Interval]) -> _Drawing:
    missing = float("nan")
    _steps(
        axes, [missing if (r := p.records_per_task_second) is None else r for p in samples], "sky"
    )
    _steps(axes, [missing if (r := p.records_per_second) is None else r for p in samples], "blue")
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    legend = [
        ("blue", "since the micro-batch before"),
        ("sky", "while the longest task ran (too high if tasks queue for cores)"),
    ]
    return _Drawing("Records per second", "records/s", legend)


def _times(axes: Axes, samples: Sequence[Interval]) -> _Drawing:
    layers = [[getattr(p, name) / 1000 / p.micro_batches for p in samples] for name in COMPONENTS]
    _stack(axes, layers, _COMPONENT_COLORS)
    _steps(axes, [p.longest_task_ms / 1000 for p in samples], "text")
    legend = [
        *zip(_COMPONENT_COLORS, COMPONENTS.values(), strict=True),
        ("text", "the longest task"),
    ]
    return _Drawing("Time of a micro-batch's tasks, added up, by part", "seconds", legend)


def _failures(axes: Axes, samples: Sequence[Interval]) -> _Drawing:
    failed = [p.failed_records for p in samples]
    dead_letters = [p.dead_letters for p in samples]
    failed_at = [x for x, sample in enumerate(samples) if sample.failed_micro_batches]
    if not any(failed) and not any(dead_letters) and not failed_at:
        _write_text(axes, "no failures, no dead letters")
        return _Drawing("Failures and dead letters", "", [])
    # One failure must be visible beside a million.
    axes.set_yscale("symlog", linthresh=1)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    _stack(axes, [failed], ["red"])
    _steps(axes, dead_letters, "orange")
    marks = axes.plot(failed_at, [0] * len(failed_at), "x", color=COLORS["text"][0], clip_on=False)
    marks[0].set_zorder(5)
    axes.set_ylim(top=max(10, 2 * max(*failed, *dead_letters)))
    legend = [("red", "failed"), ("orange", "dead letters"), ("text", "× failed micro-batches")]
    return _Drawing("Failures and dead letters", "records", legend)


def _repeated_requests(axes: Axes, samples: Sequence[Interval]) -> _Drawing:
    title = "Repeated produce requests"
    known = [p.retried_requests for p in samples]
    if not any(known):
        _write_text(axes, "not known" if set(known) == {None} else "none")
        return _Drawing(title, "", [])
    _stack(axes, [[count or 0 for count in known]], ["red"])
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return _Drawing(title, "requests", [])


def _buffer(axes: Axes, samples: Sequence[Interval]) -> _Drawing:
    _stack(axes, [[p.buffer_peak_bytes / 2**20 for p in samples]], ["blue"])
    _steps(axes, [p.buffer_memory_bytes / 2**20 for p in samples], "red")
    legend = [("blue", "most that a task had in it"), ("red", "limit: kafka.buffer.memory")]
    return _Drawing("Buffer of unacknowledged records", "MiB", legend)


def _topics(axes: Axes, samples: Sequence[Interval]) -> _Drawing:
    title = "Records of a micro-batch, by topic"
    total: Counter[str] = Counter()
    for sample in samples:
        total.update(sample.records_by_topic)
    if not total.total():
        _write_text(axes, "no records")
        return _Drawing(title, "", [])
    shown = [topic for topic, _ in total.most_common(len(_TOPIC_COLORS))]
    layers = [[p.records_by_topic[topic] / p.micro_batches for p in samples] for topic in shown]
    names = [_short(topic or NO_TOPIC) for topic in shown]
    if len(total) > len(shown):
        everything = [p.records_by_topic.total() / p.micro_batches for p in samples]
        known = [sum(values) for values in zip(*layers, strict=True)]
        layers.append([a - b for a, b in zip(everything, known, strict=True)])
        names.append(f"{len(total) - len(shown):,} other topics")
    colors = [*_TOPIC_COLORS[: len(shown)], "grey"]
    _stack(axes, layers, colors)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    return _Drawing(title, "records", list(zip(colors, names, strict=False)))


def _short(name: str) -> str:
    return name if len(name) <= _LABEL_CHARACTERS else f"{name[: _LABEL_CHARACTERS - 1]}…"

"""A history as one self-contained HTML file: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

from spark_kafka_sink.tools.report.explanation import dominant_component, summary
from spark_kafka_sink.tools.report.formatting import (
    mebibytes,
    milliseconds,
    rate,
    rows,
    time_range,
    topics,
    utc,
)
from spark_kafka_sink.tools.report.history import History, Interval
from spark_kafka_sink.tools.report.plots import COLORS, Plot, plots
from spark_kafka_sink.tools.report.terminal import queries

_MAX_TOPICS = 100
# Even if a name from a report slipped through unescaped, it could load and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --box: #f5f7f9; LIGHT }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --box: #1d232a; DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 1rem; background: var(--page);
  color: var(--text); font: 1rem/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h1, h2, h3, p { margin-bottom: 0.4rem; } h3 { font-size: 1rem; margin: 0; }
.why { background: var(--box); border-left: 0.3rem solid var(--blue); padding: 0.1rem 1rem 0.6rem; }
.plots { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }
figure { margin: 0; min-width: 0; } svg { display: block; width: 100%; height: auto; }
figcaption { font-size: 0.85rem; } figcaption span { margin-right: 1rem; }
figcaption i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.3em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: normal; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; } .failed td { color: var(--red); }
"""


def page(history: History, source: str, written_at: datetime, skipped: Iterable[str]) -> str:
    """The page; ``source``: the path of the reports, ``skipped``: sentences on skipped lines."""
    total, latest = history.total, history.latest[-1]
    sections = (
        f"<h1>{escape(source)}</h1>",
        _paragraph(
            f"{time_range(total)}.",
            *(f"{line}." for line in queries(history)),
            f"Written {utc(written_at)} UTC.",
        ),
        *(_paragraph(line) for line in skipped),
        '<section class="why"><h2>What takes the time</h2>',
        *(f"<p><b>{name}</b> {escape(text)}</p>" for name, text in summary(history)),
        "</section><h2>History</h2>",
        _paragraph(_sample_sentence(history)),
        '<div class="plots">',
        *map(_figure, plots(history)),
        "</div><h2>Figures</h2>",
        _figures(total, latest),
        "<h2>Topics</h2>",
        _topics(total),
        "<h2>The latest micro-batches</h2>",
        _micro_batches(list(history.latest)[::-1]),
    )
    body = "\n".join(sections)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{escape(source)}: micro-batches</title><style>{_style()}</style></head>
<body>
{body}
</body></html>
"""


def _style() -> str:
    light, dark = (
        " ".join(f"--{name}: {hues[index]};" for name, hues in COLORS.items()) for index in (0, 1)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark)


def _sample_sentence(history: History) -> str:
    count = history.micro_batches_per_sample
    if count == 1:
        return "Each step is a micro-batch, labelled with its end time in UTC."
    return (
        f"Each step is {count:,} micro-batches, labelled with the end time of the last one in "
        "UTC: the sum of failures, dead letters and repeated requests, the maximum of the longest "
        "task and of the buffer, the average of everything else."
    )


def _paragraph(*sentences: str) -> str:
    return f"<p>{escape(' '.join(sentences).strip())}</p>"


def _figure(plot: Plot) -> str:
    legend = "".join(
        f'<span><i style="background: var(--{color})"></i>{escape(name)}</span>'
        for color, name in plot.legend
    )
    caption = f"<figcaption>{legend}</figcaption>"
    return f"<figure><h3>{escape(plot.title)}</h3>{plot.svg}{caption}</figure>"


def _figures(total: Interval, latest: Interval) -> str:
    return _table(["", "latest micro-batch", "all"], map(_row, rows(latest, total)))


def _topics(total: Interval) -> str:
    rows = [
        _row([name, f"{records:,}", mebibytes(sent_bytes), f"{failed:,}", f"{dead:,}"], numbers=4)
        for name, records, sent_bytes, failed, dead in topics(total, _MAX_TOPICS)
    ]
    return _table(["topic", "records", "sent", "failed", "dead letters"], rows, numbers=4)


def _micro_batches(latest: Sequence[Interval]) -> str:
    names = ["ended (UTC)", "outcome", "most of the time", "micro-batch", "records", "per second"]
    names += ["longest task", "failed", "dead letters", "repeated", "buffer"]
    return _table(names, [_micro_batch(interval) for interval in latest], numbers=8)


def _micro_batch(interval: Interval) -> str:
    report = interval.last
    cells = [
        utc(report.ended_at),
        report.outcome,
        dominant_component(interval),
        "-" if report.batch_id is None else str(report.batch_id),
        f"{interval.records:,}",
        rate(interval.records_per_second),
        milliseconds(interval.longest_task_ms),
        f"{interval.failed_records:,}",
        f"{interval.dead_letters:,}",
        "-" if interval.retried_requests is None else f"{interval.retried_requests:,}",
        mebibytes(interval.buffer_peak_bytes),
    ]
    return _row(cells, numbers=8, is_failed=bool(interval.failed_micro_batches))


def _table(names: Sequence[str], rows: Iterable[str], numbers: int = 0) -> str:
    """``numbers``: how many of the last columns hold numbers."""
    body = "\n".join(rows)
    head = _cells("th", names, numbers)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>'


def _row(cells: Sequence[str], numbers: int = 0, is_failed: bool = False) -> str:
    mark = ' class="failed"' if is_failed else ""
    return f"<tr{mark}>{_cells('td', cells, numbers)}</tr>"


def _cells(tag: str, texts: Sequence[str], numbers: int) -> str:
    words = len(texts) - numbers
    cells = [f"<{tag}>{escape(text)}</{tag}>" for text in texts[:words]]
    cells += [f'<{tag} class="number">{escape(text)}</{tag}>' for text in texts[words:]]
    return "".join(cells)

"""Tables of HTML for notebooks, readable on light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

# Only the notebook's own colours, and one red that is readable on both backgrounds.
_BOX = "color:inherit;font-size:13px;line-height:1.4;margin:4px 0 12px"
_TABLE = "border-collapse:collapse;margin:4px 0;color:inherit;background:transparent"
_ROW = "background:transparent"
_CELL = "padding:2px 10px;border-bottom:1px solid rgba(128,128,128,.35);color:inherit"
_HIGHLIGHT = "color:#e5484d;font-weight:600"


@dataclass(frozen=True)
class Highlighted:
    """A cell that shows a problem; not emphasised if it is 0, None or ""."""

    content: object


def box(title: str, *parts: str) -> str:
    """A titled group of parts, which are HTML already."""
    return f'<div style="{_BOX}"><strong>{escape(title)}</strong>{"".join(parts)}</div>'


def line(text: str) -> str:
    return f'<div style="opacity:.8">{escape(text)}</div>'


def highlighted_line(text: str) -> str:
    return f'<div style="{_HIGHLIGHT}">{escape(text)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Numbers are aligned to the right and grouped by thousands; None, not known, is a dash."""
    rows = list(rows)
    body = "".join(f'<tr style="{_ROW}">{"".join(map(_cell, row))}</tr>' for row in rows)
    first = rows[0] if rows else [""] * len(header)
    names = "".join(
        f'<th style="{_CELL};{_align(content)}">{escape(name)}</th>'
        for name, content in zip(header, first, strict=False)
    )
    head = f'<thead><tr style="{_ROW}">{names}</tr></thead>' if header else ""
    # A table may be wider than the notebook.
    return (
        '<div style="overflow-x:auto">'
        f'<table style="{_TABLE}">{head}<tbody>{body}</tbody></table></div>'
    )


def _cell(content: object) -> str:
    is_highlighted = isinstance(content, Highlighted) and content.content
    style = f"{_CELL};{_HIGHLIGHT}" if is_highlighted else _CELL
    return f'<td style="{style};{_align(content)}">{escape(_text(content))}</td>'


def _align(content: object) -> str:
    if isinstance(content, Highlighted):
        content = content.content
    is_number = isinstance(content, int | float)
    return f"text-align:{'right' if is_number else 'left'};font-variant-numeric:tabular-nums"


def _text(content: object) -> str:
    if isinstance(content, Highlighted):
        content = content.content
    if content is None:
        return "–"
    if isinstance(content, float):
        return f"{content:,.2f}"
    return f"{content:,}" if isinstance(content, int) else str(content)

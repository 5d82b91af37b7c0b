"""The project's Markdown pages: their fenced blocks, links, headings and code in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]

#: generated from docstrings; its Python blocks are signatures, not snippets
API = ROOT / "docs" / "api.md"
INTERNALS = ROOT / "docs" / "internals"
#: pages whose commands and snippets are tested
GUIDE = [
    ROOT / "README.md",
    *sorted({*(ROOT / "docs").glob("*.md"), *INTERNALS.glob("*.md")} - {API}),
]
#: all pages
PAGES = sorted({*GUIDE, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})

_NOT_RUN = re.compile(r"<!--\s*not run:\s*(\S.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    ``heading``: the nearest one above it, or "". ``line``: of its first line of text, from 1.
    ``why_not_run``: from the comment ``<!-- not run: ... -->`` directly above it, or "".
    """

    page: Path
    heading: str
    line: int
    language: str
    text: str
    why_not_run: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str = "") -> list[Block]:
    """The page's fenced blocks, all or those of one language."""
    blocks_read = []
    above = heading = before = ""
    for token in _tokens(page):
        if token.type == "inline" and before == "heading_open":
            heading = token.content
        if token.type == "fence":
            mark = _NOT_RUN.fullmatch(above.strip())
            line = (token.map or [0])[0] + 2
            why = mark[1] if mark else ""
            blocks_read.append(Block(page, heading, line, token.info.strip(), token.content, why))
        above = token.content if token.type == "html_block" else ""
        before = token.type
    return [block for block in blocks_read if language in ("", block.language)]


def links(page: Path) -> Iterator[str]:
    """The targets of the page's links and pictures."""
    for token in _inline(page):
        target = token.attrs.get("href") or token.attrs.get("src")
        if target:
            yield str(target)


def code_in_text(page: Path) -> set[str]:
    return {token.content for token in _inline(page) if token.type == "code_inline"}


def anchors(page: Path) -> set[str]:
    """What a link may have after ``#``, as GitHub makes it of the headings."""
    tokens = _tokens(page)
    headings = [tokens[i + 1] for i, token in enumerate(tokens) if token.type == "heading_open"]
    texts = ["".join(child.content for child in heading.children or []) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def _inline(page: Path) -> Iterator[Token]:
    for token in _tokens(page):
        yield from token.children or []

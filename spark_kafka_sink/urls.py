"""URLs that users write: whether they can be used, and what of them may be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

_QUERY = r"""[?#][^\s"']*?(?=[.:,;]?(?:[\s"']|$))"""
_URL = re.compile(rf"""(\w+://)(?:[^\s"']*@)?([^\s"'?#]*)(?:{_QUERY})?""")


def redacted(text: str) -> str:
    """``text``, whose URLs have lost user, password, query and fragment."""
    return _URL.sub(r"\1\2", text)


def split_url(url: str, schemes: Sequence[str] = ("http", "https")) -> SplitResult:
    """Its parts; raises ValueError with a sentence that begins with [hidden]."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # a ValueError too
    except ValueError:
        raise ValueError("[hidden] is not a URL") from None
    if parts.scheme not in schemes or not parts.hostname:
        beginnings = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"[hidden] is not a URL that begins with {beginnings}")
    return parts

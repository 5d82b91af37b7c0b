"""What no text may show: secrets, and what is secret in URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import SplitResult, urlsplit

#: of PEM text, perhaps a private key, which some write where the name of a file belongs
PEM_BEGIN = "-----BEGIN "

_QUERY = r"""[?#][^\s"']*?(?=[.:,;]?(?:[\s"']|$))"""
_URL = re.compile(rf"""(\w+://)(?:[^\s"']*@)?([^\s"'?#]*)(?:{_QUERY})?""")


class Secret(str):
    """A string that appears neither in reprs nor in tracebacks with local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


def read_secret(text: str) -> Secret:
    """``text`` as it is, but without the final line break that a file or variable may have."""
    return Secret(re.sub(r"\r?\n\Z", "", text))


def hide(text: str, secrets: Iterable[str]) -> str:
    """``text`` without these secrets, some of which may contain others."""
    ordered = sorted(filter(None, secrets), key=len, reverse=True)
    return re.sub("|".join(map(re.escape, ordered)), "[hidden]", text) if ordered else text


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

"""[both] What no text may show: secrets, and what is secret in URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import SplitResult, urlsplit

#: of PEM text, perhaps a private key, which some write where the name of a file belongs
PEM_BEGIN = "-----BEGIN "

_QUERY = r"""[?#][^\s"']*?(?=[.:,;]?(?:[\s"']|$))"""
_URL = re.compile(rf"""(\w+://)(?:[^\s"']*@)?([^\s"'?#]*)(?:{_QUERY})?""")
_IN_NO_URL = re.compile(r"""[\s\x00-\x1f"<>\\^`{|}]""")
_HOST = re.compile(r"[\w.%:-]*\w[\w.%:-]*")  # of an IPv6 address, too


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


def split_url(
    url: str, schemes: Sequence[str] = ("http", "https"), *, may_have: str = "?"
) -> SplitResult:
    """Its parts; raises ValueError with a sentence that begins with [hidden].

    ``may_have``: what of ``?`` and ``#`` it may contain.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("[hidden] is not a URL") from None
    if _IN_NO_URL.search(url):
        raise ValueError(
            "[hidden] contains a blank or another character that no URL has; remove it, or write "
            "it with %, such as %20"
        )
    if "#" in url and "#" not in may_have:
        raise ValueError("[hidden] contains #, and no server sees what follows it; remove it")
    if "?" in url and "?" not in may_have:
        raise ValueError("[hidden] has a query, to which no path can be added; remove it")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("[hidden] is not a URL: its port is not a number up to 65535") from None
    if parts.scheme not in schemes or not parts.hostname:
        beginnings = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"[hidden] is not a URL that begins with {beginnings}")
    if not _HOST.fullmatch(parts.hostname):
        raise ValueError("[hidden] is not a URL: its host has a character that no name has")
    return parts

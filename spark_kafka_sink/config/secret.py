"""Secret: a string that reprs do not show."""

from __future__ import annotations


class Secret(str):
    """A string that shows itself neither in reprs nor in tracebacks with local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"

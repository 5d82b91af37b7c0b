"""Secret: a string that no repr shows."""

from __future__ import annotations


class Secret(str):
    """A string that appears neither in reprs nor in tracebacks with local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"

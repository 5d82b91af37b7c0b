"""Secret: a string that no repr shows."""

from __future__ import annotations

import re

#: of PEM text, perhaps a private key, which some write where the name of a file belongs
PEM_BEGIN = "-----BEGIN "


class Secret(str):
    """A string that appears neither in reprs nor in tracebacks with local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


def read_secret(text: str) -> Secret:
    """``text`` as it is, but without the final line break that a file or variable may have."""
    return Secret(re.sub(r"\r?\n\Z", "", text))

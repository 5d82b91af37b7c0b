"""Which topic names Kafka allows."""

from __future__ import annotations

import re

# What is counted together; neither can be a topic's name.
#: all names that Kafka forbids
FORBIDDEN_NAMES = "(forbidden names)"
#: all topics beyond the number that is kept apart
OTHER_TOPICS = "(other topics)"

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in (".", "..")


def topic_name_rule(name: str) -> str:
    """A sentence that says why ``name`` is invalid."""
    return (
        f"{name[:300]!r} is not a valid topic name: allowed are 1 to 249 letters, digits, `.`, `_` "
        "and `-`, but not `.` or `..` alone"
    )

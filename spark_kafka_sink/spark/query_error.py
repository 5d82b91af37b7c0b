"""Finds the sink's own error in Spark's text about a failed query."""

from __future__ import annotations

import re

from spark_kafka_sink import errors

_OUR_ERROR = re.compile(r"spark_kafka_sink\.errors\.(\w+): ([^\n]*)")


def error_name(text: str) -> str | None:
    """The class name of the sink's own error; None if the query failed for another reason."""
    matches = _OUR_ERROR.findall(text)
    return matches[-1][0] if matches else None


def sink_error(text: str) -> str:
    """The sink's own error as ``Name: message``, or else the first line, without plan and stack."""
    matches = _OUR_ERROR.findall(text)
    return ": ".join(matches[-1]) if matches else text.strip().partition("\n")[0]


def own_error(text: str) -> errors.KafkaSinkError | None:
    """The sink's own error with its message, but without its fields, or None."""
    matches = _OUR_ERROR.findall(text)
    if not matches:
        return None
    name, message = matches[-1]
    cls: type[errors.KafkaSinkError] = getattr(errors, name, errors.KafkaSinkError)
    return cls.__new__(cls, message)

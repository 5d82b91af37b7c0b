"""What librdkafka says of its own settings: names, allowed values, refusals."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.librdkafka import _prototypes as c

ERROR_TEXT_SIZE = 512


def producer_settings() -> Mapping[str, str]:
    """The settings that a producer takes as strings, aliases included: name -> allowed values.

    librdkafka tells them as the table of its manual (``rd_kafka_conf_properties_show``); what is
    allowed is a range or a list of words, or empty for free text.
    """
    with tempfile.TemporaryFile() as file:
        stream = c.libc.fdopen(os.dup(file.fileno()), b"w")
        c.conf_properties_show(stream)
        c.libc.fclose(stream)
        file.seek(0)
        table = file.read().decode()
    # name | C, P or * | range | default | importance | description with the type at its end
    rows = [line.split("|") for line in table.splitlines() if line.count("|") >= 5]
    return {
        row[0].strip(): row[2].strip()
        for row in rows
        if row[1].strip() in ("P", "*") and "see dedicated API" not in row[-1]
    }


def refusal_of(name: str, value: str) -> str | None:
    """Why librdkafka refuses this value (name, type, range), or None (``rd_kafka_conf_set``).

    The sentence may contain the value: not for secrets.
    """
    conf = c.conf_new()
    try:
        return set_value(conf, name, value)
    finally:
        c.conf_destroy(conf)


def set_value(conf: Any, name: str, value: str) -> str | None:
    """Set it in an ``rd_kafka_conf_t``; returns why that was refused, or None."""
    text = ctypes.create_string_buffer(ERROR_TEXT_SIZE)
    result = c.conf_set(conf, name.encode(), value.encode(), text, ERROR_TEXT_SIZE)
    return None if result == c.CONF_OK else text.value.decode(errors="replace")

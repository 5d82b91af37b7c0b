"""[both] librdkafka's description of its settings: names, types, values, defaults."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.librdkafka import _prototypes as c

ERROR_TEXT_SIZE = 512

_TYPE = re.compile(r"\*Type: (.+)\*")


@dataclass(frozen=True)
class SettingSpec:
    """One setting, as librdkafka's manual describes it."""

    #: ``low .. high``, or words separated by commas, or empty for free text
    allowed: str
    default: str
    #: integer, float, boolean, enum value, string, ...
    type: str

    def nearest(self, number: int) -> int:
        """``number``, or the nearest limit of the range if it lies outside."""
        low, high = map(int, self.allowed.split(" .. "))
        return min(max(number, low), high)


def producer_setting_specs() -> Mapping[str, SettingSpec]:
    """The settings of a producer that are strings, aliases included."""
    # name | C, P or * | range | default | importance | description with the type at its end
    rows = [
        [cell.strip() for cell in line.split("|")]
        for line in _manual().splitlines()
        if line.count("|") >= 5
    ]
    return {
        row[0]: SettingSpec(row[2], row[3], matched[1])
        for row in rows
        if row[1] in ("P", "*")
        and (matched := _TYPE.search(row[-1]))
        and matched[1] != "see dedicated API"
    }


def _manual() -> str:
    """The table that librdkafka writes to a C stream (``rd_kafka_conf_properties_show``).

    The stream is in memory: a process that another thread forks could keep a pipe open, and a file
    would need a writable folder.
    """
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = c.libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
    if not stream:
        raise OSError("the C library failed to open a stream in memory")
    c.conf_properties_show(stream)
    c.libc.fclose(stream)
    try:
        return ctypes.string_at(text, size.value).decode()
    finally:
        c.libc.free(text)


def setting_problem(name: str, value: str) -> str | None:
    """Why librdkafka rejects this value (name, type, range), or None (``rd_kafka_conf_set``).

    The sentence may contain the value: not for secrets.
    """
    conf = c.conf_new()
    try:
        return set_value(conf, name, value)
    finally:
        c.conf_destroy(conf)


def set_value(conf: Any, name: str, value: str) -> str | None:
    """Set a value in an ``rd_kafka_conf_t``; returns why it was rejected, or None."""
    text = ctypes.create_string_buffer(ERROR_TEXT_SIZE)
    result = c.conf_set(conf, name.encode(), value.encode(), text, ERROR_TEXT_SIZE)
    return None if result == c.CONF_OK else text.value.decode(errors="replace")

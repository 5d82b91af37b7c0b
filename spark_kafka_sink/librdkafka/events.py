"""librdkafka's events as Python values; its log lines as Python's."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.librdkafka import _prototypes as c

_log = logging.getLogger("spark_kafka_sink.librdkafka")

# syslog levels, as librdkafka logs them
_LOG_LEVELS = (
    logging.CRITICAL,
    logging.CRITICAL,
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.INFO,
    logging.DEBUG,
)


@dataclass(frozen=True)
class FailedRows:
    """``count`` rows for one partition (-1: not assigned yet) that failed with the same error."""

    topic: str
    partition: int
    code: int
    count: int


@dataclass(frozen=True)
class BrokerError:
    """Something that went wrong between client and brokers; librdkafka retries by itself."""

    code: int
    text: str


def error_name(code: int) -> str:
    """librdkafka's short name of an error code, e.g. ``_MSG_TIMED_OUT`` (``rd_kafka_err2name``)."""
    return str(c.err2name(code).decode())


def error_text(code: int) -> str:
    """librdkafka's sentence for an error code (``rd_kafka_err2str``)."""
    return str(c.err2str(code).decode())


def read(event: int) -> Sequence[FailedRows | BrokerError]:
    """What an event tells the producer; log lines go to the logger instead."""
    kind = c.event_type(event)
    if kind == c.EVENT_DR:
        return _failed_rows(event)
    if kind == c.EVENT_ERROR:
        text = c.event_error_string(event)
        return [BrokerError(c.event_error(event), text.decode(errors="replace"))]
    if kind == c.EVENT_LOG:
        _forward_log(event)
    return []  # an answer to prefetch has done its work in the client's own metadata cache


def _failed_rows(event: int) -> list[FailedRows]:
    count = c.event_message_count(event)
    pointers = np.empty(count, dtype=np.uintp)
    count = c.event_message_array(event, pointers.ctypes.data, count)
    if not count:
        return []
    rows = _gather(pointers[:count])
    keys = np.zeros(count, dtype=np.int64)
    for column in rows.T:
        values, codes = np.unique(column, return_inverse=True)
        keys = keys * len(values) + codes
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return [
        FailedRows(c.topic_name(int(rkt)).decode(), int(partition), int(code), int(number))
        for (rkt, partition, code), number in zip(rows[first], counts, strict=True)
    ]


def _gather(pointers: npt.NDArray[np.uintp]) -> npt.NDArray[np.int64]:
    """Topic handle, partition, error code of each ``rd_kafka_message_t``: int64[rows, 3].

    All messages are read by one vectorised look-up over the span of memory they lie in, since a
    purge can bring a million of them and a close has a deadline.
    """
    base = int(pointers.min())
    words = (int(pointers.max()) - base + c.MESSAGE.itemsize) // 8
    memory = np.ctypeslib.as_array((ctypes.c_int64 * words).from_address(base))
    index = ((pointers - np.uintp(base)) // np.uintp(8)).astype(np.int64)
    low_half = np.int64(0xFFFFFFFF)
    rows = np.empty((len(pointers), 3), dtype=np.int64)
    rows[:, 0] = memory[index + 1]
    rows[:, 1] = (memory[index + 2] & low_half).astype(np.uint32).view(np.int32)
    rows[:, 2] = (memory[index] & low_half).astype(np.uint32).view(np.int32)
    return rows


def _forward_log(event: int) -> None:
    facility, text, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
    c.event_log(event, ctypes.byref(facility), ctypes.byref(text), ctypes.byref(level))
    _log.log(
        _LOG_LEVELS[min(max(level.value, 0), 7)],
        "%s: %s",
        (facility.value or b"").decode(errors="replace"),
        (text.value or b"").decode(errors="replace"),
    )

"""Binary array -> base64, for all rows at once. Arrow has no function for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.encoding import arrow_memory as memory
from spark_kafka_sink.records.columns import ranges

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8
)
_PADDING = ord("=")


def base64_texts(array: pa.Array) -> pa.Array:
    """large_binary with the base64 (RFC 4648, padded) of each row; null for null."""
    ends, data = memory.byte_strings(array)
    valid = memory.valid_rows(array)
    lengths = np.diff(ends) * valid
    counts = (lengths + 2) // 3
    _, firsts = ranges(counts, counts)  # of each row's groups of three bytes
    padded = np.zeros(int(firsts[-1]) * 3, dtype=np.uint8)
    sources, _ = ranges(ends[:-1], lengths)
    targets, _ = ranges(firsts[:-1] * 3, lengths)
    padded[targets] = data[sources]
    texts = _digits(padded)
    last = firsts[1:] * 4 - 1  # the position of each row's last digit
    texts[last[lengths % 3 != 0]] = _PADDING
    texts[last[lengths % 3 == 1] - 1] = _PADDING
    return memory.binary_array(firsts * 4, texts, valid=valid, is_large=True)


def _digits(padded: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    first, second, third = padded.reshape(-1, 3).T
    digits = np.empty((len(first), 4), dtype=np.uint8)
    digits[:, 0] = first >> 2
    digits[:, 1] = (first & 3) << 4 | second >> 4
    digits[:, 2] = (second & 15) << 2 | third >> 6
    digits[:, 3] = third & 63
    texts: npt.NDArray[np.uint8] = _ALPHABET[digits].reshape(-1)
    return texts

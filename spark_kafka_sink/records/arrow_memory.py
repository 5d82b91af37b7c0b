"""[both] The memory of Arrow arrays as numpy arrays, without a copy; and Arrow arrays of it.

``to_numpy`` and ``pa.array`` would import pandas, if it is installed. All functions respect the
array's offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import is_utf8

#: how many bytes a binary array can contain; large_binary has no limit
MAX_BINARY = 2**31 - 1

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def validity(array: pa.Array) -> Mask | None:
    """True where the array is not null; None: nowhere null."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=bool) if len(array) else None
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        return validity(plain(array))
    if not array.null_count:
        return None
    return _bits(array.buffers()[0], array)


def valid_rows(array: pa.Array) -> Mask:
    """True where the array is not null."""
    valid = validity(array)
    return np.ones(len(array), dtype=bool) if valid is None else valid


def booleans(array: pa.Array) -> Mask:
    return _bits(array.buffers()[1], array)


def _bits(buffer: pa.Buffer | None, array: pa.Array) -> Mask:
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype=bool)
    first_byte, first_bit = divmod(array.offset, 8)
    packed = np.frombuffer(buffer, dtype=np.uint8)[first_byte:]
    bits = np.unpackbits(packed, count=first_bit + len(array), bitorder="little")
    return bits[first_bit:].view(np.bool_)


def numbers(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers of a primitive array, in its own width; any number where it is null."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(data, dtype=dtype)[array.offset : array.offset + len(array)]


def decimal_words(array: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """The lower and the upper (signed) half of the unscaled values of a decimal128 array."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype=np.uint64), np.zeros(len(array), dtype=np.int64)
    words = np.frombuffer(data, dtype=np.uint64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    return words[:, 0], words[:, 1].view(np.int64)


def list_offsets(array: pa.Array) -> Offsets:
    """Where each list of a (large_)list or map begins in ``array.values``, and the last one's end.

    A null list may have a range that is not empty.
    """
    return _offsets(array.buffers()[1], array, is_large=pa.types.is_large_list(array.type))


def byte_strings(array: pa.Array) -> tuple[Offsets, Bytes]:
    """Where each (large_)string or (large_)binary begins, the last one's end; and their memory.

    The memory of a null may not be empty.
    """
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        ends = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64) * width
        return ends, _memory(array.buffers()[1])
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    return _offsets(offsets, array, is_large=is_large), _memory(data)


def rows_without_utf8(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Where a (large_)string is not UTF-8, which Spark's cast from binary does not check."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        return np.zeros(0, dtype=np.int64)
    ends, data = byte_strings(texts)
    rows = np.flatnonzero(valid_rows(texts))
    bad = [row for row in rows if not is_utf8(data[ends[row] : ends[row + 1]].tobytes())]
    return np.asarray(bad, dtype=np.int64)


def plain(array: pa.Array) -> pa.Array:
    """The same values without a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type without a dictionary of strings or binaries; of these, the small one.

    A dictionary of other values keeps its type: their memory is that of its indices.
    """
    if pa.types.is_dictionary(arrow_type):
        value_type = plain_type(arrow_type.value_type)
        is_bytes = value_type in {pa.string(), pa.binary()}
        is_bytes |= pa.types.is_fixed_size_binary(value_type)
        return value_type if is_bytes else arrow_type
    if pa.types.is_large_string(arrow_type):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(arrow_type) else arrow_type


def exceeds_binary(size: int) -> bool:
    """Whether so many bytes need a large_binary array."""
    return size > MAX_BINARY


def binary_array(
    offsets: Offsets, data: Bytes, *, valid: Mask | None = None, is_large: bool = False
) -> pa.Array:
    """A binary or large_binary array of this memory."""
    validity_buffer = None
    if valid is not None:
        validity_buffer = pa.py_buffer(np.packbits(valid, bitorder="little"))
    dtype = np.int64 if is_large else np.int32
    offset_buffer = pa.py_buffer(np.ascontiguousarray(offsets, dtype=dtype))
    return pa.Array.from_buffers(
        pa.large_binary() if is_large else pa.binary(),
        len(offsets) - 1,
        [validity_buffer, offset_buffer, pa.py_buffer(data)],
    )


def text_array(texts: Sequence[str], arrow_type: pa.DataType) -> pa.Array:
    """A string or large_string array of these texts."""
    values = bytes_array([text.encode() for text in texts])
    return values.view(pa.large_string()).cast(arrow_type)


def bytes_array(values: Sequence[bytes]) -> pa.Array:
    """A large_binary array of these values."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    data = np.frombuffer(b"".join(values), dtype=np.uint8)
    return binary_array(ends, data, is_large=True)


def integer_array(values: npt.NDArray[np.int64]) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.int64(), values.size, [None, buffer])


def boolean_array(mask: Mask) -> pa.Array:
    buffer = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, buffer])


def list_array(offsets: Offsets, values: pa.Array) -> pa.Array:
    """A large_list array without nulls, whose lists are ranges of ``values``."""
    return pa.Array.from_buffers(
        pa.large_list(values.type),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets)],
        children=[values],
    )


def binary_scalar(value: bytes) -> pa.Scalar:
    """A large_binary scalar."""
    ends = np.asarray([0, len(value)], dtype=np.int64)
    return binary_array(ends, np.frombuffer(value, dtype=np.uint8), is_large=True)[0]


def _offsets(buffer: pa.Buffer | None, array: pa.Array, *, is_large: bool) -> Offsets:
    if buffer is None or buffer.size == 0 or len(array) == 0:
        return np.zeros(len(array) + 1, dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=np.int64 if is_large else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _memory(buffer: pa.Buffer | None) -> Bytes:
    if buffer is None or buffer.size == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(buffer, dtype=np.uint8)

"""Arrow arrays and numpy arrays of the same memory.

pyarrow imports pandas, if it is installed, for ``to_numpy``, ``pa.array`` and ``pa.scalar``; a cold
Python worker would wait for it. These functions do not need it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def is_valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    bits = array.buffers()[0]
    if bits is None:
        return np.ones(len(array), dtype=bool)
    mask = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little").view(bool)
    return mask[array.offset : array.offset + len(array)]


def numbers(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values of a fixed-width array as a view; those of nulls are arbitrary."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(data, dtype=dtype)[array.offset : array.offset + len(array)]


def offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """Where each value of a string, binary, list or map array begins, and the last one ends."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, dtype=np.int64)
    kind = array.type
    is_large = (
        pa.types.is_large_list(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )
    found = np.frombuffer(buffer, dtype=np.int64 if is_large else np.int32)
    return found[array.offset : array.offset + len(array) + 1].astype(np.int64)


def data_bytes(array: pa.Array) -> npt.NDArray[np.uint8]:
    """All bytes of a string or binary array, into which its offsets point."""
    data = array.buffers()[2]
    if data is None or data.size == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(data, dtype=np.uint8)


def integer_array(values: npt.NDArray[np.int64]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def boolean_array(mask: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, _bits(mask)])


def binary_array(
    starts: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    """large_binary; ``starts`` (int64[rows + 1]) are offsets into ``data``."""
    validity = None if valid is None else _bits(valid)
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts) - 1, [validity, pa.py_buffer(starts), pa.py_buffer(data)]
    )


def list_array(starts: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    """large_list without nulls; ``starts`` (int64[rows + 1]) are offsets into ``values``."""
    return pa.Array.from_buffers(
        pa.large_list(values.type),
        len(starts) - 1,
        [None, pa.py_buffer(starts)],
        children=[values],
    )


def scalar(value: bytes) -> pa.Scalar:
    """A large_binary scalar."""
    ends = np.asarray([0, len(value)], dtype=np.int64)
    return binary_array(ends, np.frombuffer(value, dtype=np.uint8))[0]


def _bits(mask: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))

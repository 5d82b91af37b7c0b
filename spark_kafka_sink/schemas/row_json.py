"""Rows that a schema does not allow, as JSON: what a person reads in a dead letter."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# As Spark's from_json reads them; JSON has no such numbers.
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def replace_by_json(values: pa.Array, array: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """``values``, but in those rows what ``array`` has there, as JSON; null stays null."""
    if not len(rows):
        return values
    mask = np.zeros(len(values), dtype=bool)
    mask[rows] = True
    texts = [_json(array[row]) for row in rows.tolist()]
    return pc.replace_with_mask(
        values, pa.array(mask.tolist(), pa.bool_()), pa.array(texts, values.type)
    )


def _json(scalar: pa.Scalar) -> bytes | None:
    value = _plain(scalar)
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=str).encode()


def _plain(scalar: pa.Scalar) -> Any:  # noqa: PLR0911 - one per kind of type
    """A value that JSON has. Unlike ``as_py``, accepts text that is not UTF-8."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return _plain(scalar.dictionary[scalar.index.as_py()])
    if pa.types.is_struct(kind):
        return {field.name: _plain(scalar[i]) for i, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return {str(_plain(entry[0])): _plain(entry[1]) for entry in scalar.values}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(element) for element in scalar.values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bytes(scalar.as_buffer()).decode(errors="backslashreplace")
    if pa.types.is_date(kind):
        return str(scalar.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _time(scalar)
    value = scalar.as_py()
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE[str(value)]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _time(scalar: pa.TimestampScalar) -> str:
    """The text in UTC. ``as_py`` knows neither years beyond 9999 nor all of Spark's time zones."""
    kind = scalar.type
    ticks = pa.array([scalar.value], pa.int64()).view(pa.timestamp(kind.unit))
    text = str(ticks.cast(pa.string())[0]).replace(" ", "T")
    return text if kind.tz is None else f"{text}Z"

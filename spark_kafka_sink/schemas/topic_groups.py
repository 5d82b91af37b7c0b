"""The rows of an Arrow batch by topic, and columns that were encoded schema by schema as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records import arrow_memory as memory
from spark_kafka_sink.records.arrow import topic_codes
from spark_kafka_sink.records.topic_name import is_topic_name


@dataclass(frozen=True)
class TopicGroup:
    """``rows`` (int64, ascending) of a topic; None: of rows without a valid one."""

    topic: str | None
    rows: npt.NDArray[np.int64]
    is_whole: bool

    def select(self, array: pa.Array) -> pa.Array:
        """The group's rows of a column of the batch."""
        return array if self.is_whole else array.take(memory.integer_array(self.rows))


def groups_by_topic(batch: pa.RecordBatch, topic: str | None) -> list[TopicGroup]:
    """One group per topic; ``topic`` None: the column ``topic`` has them."""
    everything = np.arange(batch.num_rows, dtype=np.int64)
    if topic is not None or not batch.num_rows:
        return [TopicGroup(topic, everything, is_whole=True)]
    names, codes = topic_codes(batch.column("topic"))
    topics = [_valid_topic(name) for name in names]
    is_invalid = np.array([*(name is None for name in topics), True])  # -1, of null, is the last
    codes[is_invalid[codes]] = -1
    if len(topics) == 1 and (codes == 0).all():
        return [TopicGroup(topics[0], everything, is_whole=True)]
    order = np.argsort(codes, kind="stable")
    used, starts = np.unique(codes[order], return_index=True)
    return [
        TopicGroup(topics[code] if code >= 0 else None, rows, is_whole=False)
        for code, rows in zip(used.tolist(), np.split(order, starts[1:]), strict=True)
    ]


def united(groups: Sequence[TopicGroup], count: int) -> TopicGroup:
    """The rows of all groups, of which the batch has ``count``; the topic of the first."""
    if len(groups) == 1:
        return groups[0]
    rows = np.sort(np.concatenate([group.rows for group in groups]))
    return TopicGroup(groups[0].topic, rows, is_whole=len(rows) == count)


def _valid_topic(name: bytes) -> str | None:
    # Spark's cast from binary does not check UTF-8.
    text = name.decode(errors="backslashreplace")
    return text if is_topic_name(text) else None


def joined(groups: Sequence[TopicGroup], parts: Sequence[pa.Array]) -> pa.Array:
    """The parts, one for each group, in the order of the rows."""
    if len(groups) == 1:
        return parts[0]
    order = np.concatenate([group.rows for group in groups])
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    values = pa.concat_arrays([pc.cast(part, pa.large_binary()) for part in parts])
    return values.take(memory.integer_array(places))

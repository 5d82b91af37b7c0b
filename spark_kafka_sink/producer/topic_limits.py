"""[both] What brokers reject according to a topic's configuration, and of which records.

A broker rejects a whole batch because of one bad record. If that record is not sent at all, the
others arrive in their order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords
from spark_kafka_sink.records.record_size import BATCH_OVERHEAD_BYTES, are_small, record_bytes


@dataclass(frozen=True)
class TopicLimits:
    """Limits of a topic, as Kafka's ``LogValidator`` applies them; the defaults reject nothing.

    ``max_batch_bytes``: the topic's ``max.message.bytes``, for a batch as it is sent; not all
    brokers say it.
    """

    max_batch_bytes: int = sys.maxsize
    is_compacted: bool = False
    timestamp_before_max_ms: int = sys.maxsize
    timestamp_after_max_ms: int = sys.maxsize

    @property
    def has_max_batch_bytes(self) -> bool:
        return self.max_batch_bytes < sys.maxsize

    def rejected(
        self,
        records: RecordColumns,
        batch_bytes: npt.NDArray[np.int64] | None,
        now_ms: int,
        *,
        compressed: bool,
    ) -> Iterator[tuple[ErrorCode, npt.NDArray[np.bool_]]]:
        """Masks of the records that the brokers reject.

        ``batch_bytes``: of each one alone; None if all are small. If they are ``compressed``, only
        the brokers know which ones are too large.
        """
        if batch_bytes is not None and not compressed:
            yield ErrorCode.MSG_SIZE_TOO_LARGE, batch_bytes > self.max_batch_bytes
        if self.is_compacted:
            has_no_key = np.ones(len(records), dtype=bool)
            yield (
                ErrorCode.INVALID_RECORD,
                has_no_key if records.keys is None else records.keys.addresses == 0,
            )
        timestamps = records.timestamps_ms
        if timestamps is not None:
            age_ms = now_ms - timestamps
            too_old = age_ms > self.timestamp_before_max_ms
            too_new = -age_ms > self.timestamp_after_max_ms
            # 0 is the time of sending
            yield ErrorCode.INVALID_TIMESTAMP, (too_old | too_new) & (timestamps != 0)


_TIMESTAMP_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")

#: of a topic whose limits are not known
NO_LIMITS = TopicLimits()


def limits_from(settings: Mapping[str, str]) -> TopicLimits:
    """The limits of a topic's ``settings``; what is missing, empty or negative limits nothing.

    Up to Kafka 3.9, ``message.timestamp.difference.max.ms`` is both limits of timestamps; since 3.6
    only where the limit of its own is not set.
    """

    def number(name: str) -> int:
        text = settings.get(name, "")
        return int(text) if text.isdecimal() else sys.maxsize

    if settings.get("message.timestamp.type") == "LogAppendTime":
        before = after = sys.maxsize
    else:
        either = number("message.timestamp.difference.max.ms")
        before, after = (
            either if limit == sys.maxsize else limit for limit in map(number, _TIMESTAMP_LIMITS)
        )
    is_compacted = "compact" in settings.get("cleanup.policy", "").split(",")
    return TopicLimits(number("max.message.bytes"), is_compacted, before, after)


@dataclass(frozen=True)
class PreCheck:
    """Finds records that the client or the brokers would reject, before they are sent.

    Dead letters are not checked.
    """

    options: ProducerOptions
    #: seconds since the epoch
    clock: Callable[[], float] = time.time

    def apply(
        self, partitioned: PartitionedRecords, limits: TopicLimits, send_id: int
    ) -> tuple[list[FailedRecords], npt.NDArray[np.int64]]:
        """The records that would be rejected, and the indices of the others.

        Those without a partition exceed the client's own limit, which the client applies itself
        unless there is a topic for dead letters.
        """
        masks = list(self._masks(partitioned.records, limits))
        if not any(mask.any() for _, mask, _ in masks):
            return [], np.arange(len(partitioned.records))
        is_good = np.ones(len(partitioned.records), dtype=bool)
        record_partitions = np.repeat(partitioned.partitions, np.diff(partitioned.starts))
        failures: list[FailedRecords] = []
        for code, mask, has_partition in masks:
            rejected = mask & is_good
            is_good &= ~mask
            partitions = (
                record_partitions if has_partition else np.full_like(record_partitions, UNASSIGNED)
            )
            for partition in np.unique(partitions[rejected]).tolist():
                indices = np.flatnonzero(rejected & (partitions == partition))
                positions = tuple(partitioned.positions[indices].tolist())
                failures.append(
                    FailedRecords(send_id, partition, code, False, len(positions), positions)
                )
        return failures, np.flatnonzero(is_good)

    def _masks(
        self, records: RecordColumns, limits: TopicLimits
    ) -> Iterator[tuple[ErrorCode, npt.NDArray[np.bool_], bool]]:
        """Masks of rejected records; whether a partition rejects them, or the client."""
        client, dead_letter_topic = self.options.client, self.options.dead_letter_topic
        if records.topic == dead_letter_topic:
            return
        if dead_letter_topic is None and limits == NO_LIMITS:
            return
        batch_bytes = None
        if not are_small(records, min(client.max_request_bytes, limits.max_batch_bytes)):
            batch_bytes = record_bytes(records) + BATCH_OVERHEAD_BYTES
            if dead_letter_topic is not None:
                yield ErrorCode.MSG_SIZE_TOO_LARGE, batch_bytes > client.max_request_bytes, False
        now_ms = round(self.clock() * 1000)
        by_topic = limits.rejected(records, batch_bytes, now_ms, compressed=client.compresses)
        for code, mask in by_topic:
            yield code, mask, True

"""Finds records that Kafka would reject, before their whole batch is rejected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.producer.topic_limits import NO_LIMITS, TopicLimits
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords
from spark_kafka_sink.records.record_size import BATCH_OVERHEAD_BYTES, are_small, record_bytes


@dataclass(frozen=True)
class PreCheck:
    """The records of a topic for dead letters are not checked."""

    options: ProducerOptions
    #: seconds since the epoch
    clock: Callable[[], float] = time.time

    def apply(
        self, partitioned: PartitionedRecords, limits: TopicLimits, delivery_id: int
    ) -> tuple[list[FailedRecords], npt.NDArray[np.int64]]:
        """The records that would be rejected, and the indices of the others.

        Those without a partition exceed the client's own limit, which the client applies itself
        unless there is a topic for dead letters.
        """
        masks = list(self._masks(partitioned.records, limits))
        if not any(mask.any() for _, mask, _ in masks):
            return [], np.arange(len(partitioned.records))
        is_good = np.ones(len(partitioned.records), dtype=bool)
        each = np.repeat(partitioned.partitions, np.diff(partitioned.starts))
        failures: list[FailedRecords] = []
        for code, mask, has_partition in masks:
            rejected = mask & is_good
            is_good &= ~mask
            partitions = each if has_partition else np.full_like(each, UNASSIGNED)
            for partition in np.unique(partitions[rejected]).tolist():
                indices = np.flatnonzero(rejected & (partitions == partition))
                positions = tuple(partitioned.positions[indices].tolist())
                failures.append(
                    FailedRecords(delivery_id, partition, code, False, len(positions), positions)
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

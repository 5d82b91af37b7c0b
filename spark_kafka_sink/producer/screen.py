"""Keeps records back that would be refused, so that they become dead letters alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import ReportedRecords
from spark_kafka_sink.producer.topic_limits import TopicLimits
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords
from spark_kafka_sink.records.record_size import BATCH_OVERHEAD_BYTES, record_bytes


@dataclass(frozen=True)
class Screen:
    """For a producer with a topic for dead letters, whose own records pass unscreened."""

    options: ProducerOptions
    #: seconds since the epoch
    clock: Callable[[], float] = time.time

    def splits(self, limits: TopicLimits) -> bool:
        """Whether the client's batches may be too large for a topic."""
        return limits.max_batch_bytes < self.options.client.max_batch_bytes

    def apply(
        self, partitioned: PartitionedRecords, limits: TopicLimits, delivery_id: int
    ) -> tuple[list[ReportedRecords], npt.NDArray[np.int64]]:
        """Reports on the records that would be refused, and the indices of the others."""
        records = partitioned.records
        is_good = np.ones(len(records), dtype=bool)
        reports: list[ReportedRecords] = []
        if records.topic == self.options.dead_letter_topic:
            return reports, np.flatnonzero(is_good)
        batch_bytes = record_bytes(records) + BATCH_OVERHEAD_BYTES
        unassigned = np.full(len(records), UNASSIGNED)
        each = np.repeat(partitioned.partitions, np.diff(partitioned.starts))
        too_large = batch_bytes > self.options.client.max_request_bytes
        by_topic = limits.refused(
            records,
            batch_bytes,
            round(self.clock() * 1000),
            compressed=self.options.client.compresses,
        )
        refusals = [(ErrorCode.MSG_SIZE_TOO_LARGE, too_large, unassigned)]
        refusals += [(code, mask, each) for code, mask in by_topic]
        for code, mask, partitions in refusals:
            refused = mask & is_good
            is_good &= ~mask
            for partition in np.unique(partitions[refused]).tolist():
                indices = np.flatnonzero(refused & (partitions == partition))
                positions = tuple(partitioned.positions[indices].tolist())
                reports.append(
                    ReportedRecords(delivery_id, partition, code, False, len(positions), positions)
                )
        return reports, np.flatnonzero(is_good)

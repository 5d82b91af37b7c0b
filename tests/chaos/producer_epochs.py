"""Which producer wrote a record, and in which transaction, from the brokers' logs: consumers do not
see that.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kafka.record import MemoryRecords


class ProducerEpoch(NamedTuple):
    """``epoch`` increases whenever the producer begins its sequence numbers again."""

    producer_id: int
    epoch: int


class WrittenIn(NamedTuple):
    """A transaction of a producer, as far as one partition shows it.

    ``ends_before``: how many transactions of the producer had ended in the partition before.
    """

    producer: ProducerEpoch
    ends_before: int


class ProducerEpochs:
    """Reads a topic's segments in the folder of ``LocalKafka``, whose brokers may run."""

    def __init__(self, folder: Path, topic: str) -> None:
        self._folder = folder
        self._topic = topic
        self._partitions = cache(self._read)

    def epoch_of(self, partition: int, offset: int) -> ProducerEpoch:
        """Raises KeyError if no broker has the record."""
        return self._partitions(partition)[0][offset]

    def transaction_of(self, partition: int, offset: int) -> WrittenIn:
        """Raises KeyError if no broker has the record."""
        by_offset, ends = self._partitions(partition)
        producer = by_offset[offset]
        return WrittenIn(producer, bisect(ends.get(producer.producer_id, []), offset))

    def _read(self, partition: int) -> tuple[dict[int, ProducerEpoch], dict[int, list[int]]]:
        """By offset: who wrote it; by producer id: the offsets of the ends of its transactions."""
        by_offset = {}
        ends: defaultdict[int, set[int]] = defaultdict(set)
        for segment in self._folder.glob(f"data-*/{self._topic}-{partition}/*.log"):
            for batch in MemoryRecords(segment.read_bytes()):
                written_by = ProducerEpoch(batch.producer_id, batch.producer_epoch)
                by_offset |= dict.fromkeys(range(batch.base_offset, batch.next_offset), written_by)
                if batch.is_control_batch:
                    ends[batch.producer_id].add(batch.base_offset)
        return by_offset, {producer: sorted(offsets) for producer, offsets in ends.items()}

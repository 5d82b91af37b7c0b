"""Which producer wrote a record, from the brokers' logs: consumers do not see that."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from kafka.record import MemoryRecords


class ProducerEpoch(NamedTuple):
    """``epoch`` increases whenever the producer begins its sequence numbers again."""

    producer_id: int
    epoch: int


class ProducerEpochs:
    """Reads a topic's segments in the folder of ``LocalKafka``, whose brokers may run."""

    def __init__(self, folder: Path, topic: str) -> None:
        self._folder = folder
        self._topic = topic
        self._epochs = cache(self._read)

    def epoch_of(self, partition: int, offset: int) -> ProducerEpoch:
        """Raises KeyError if no broker has the record."""
        return self._epochs(partition)[offset]

    def _read(self, partition: int) -> dict[int, ProducerEpoch]:
        by_offset = {}
        for segment in self._folder.glob(f"data-*/{self._topic}-{partition}/*.log"):
            for batch in MemoryRecords(segment.read_bytes()):
                written_by = ProducerEpoch(batch.producer_id, batch.producer_epoch)
                by_offset |= dict.fromkeys(range(batch.base_offset, batch.next_offset), written_by)
        return by_offset

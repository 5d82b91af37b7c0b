"""SendRequest: the records of one send, or some of them, on their way to the client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.librdkafka.messages import MessageBatch
from spark_kafka_sink.producer.deliveries import Delivery
from spark_kafka_sink.records.columns import RecordColumns


@dataclass
class SendRequest:
    """Several requests may belong to one delivery: the parts of its records."""

    delivery: Delivery
    records: RecordColumns
    #: the client's form of the records, once the partitions are known
    messages: MessageBatch | None = None
    #: records that are not in ``messages``, because the pre-check found them bad
    excluded: int = 0
    #: at most what one partition gets of it, if its topic is not OPEN; else 0
    batch_bytes: int = 0

    @property
    def is_accepted(self) -> bool:
        return self.delivery.accepted == len(self.records)

    @property
    def enqueued(self) -> int:
        """How many of the records were excluded, or have been accepted by the client."""
        return self.excluded + (0 if self.messages is None else self.messages.enqueued)

    @property
    def is_enqueued(self) -> bool:
        return self.enqueued == len(self.records)

    @property
    def order(self) -> tuple[int, int]:
        """Where the request belongs among others: by send, by first position within a send."""
        return self.delivery.delivery_id, int(self.remaining[0])

    @property
    def remaining(self) -> npt.NDArray[np.int64]:
        """The positions in the send of records that the client has not accepted yet."""
        if self.messages is None:
            return np.arange(self.excluded, len(self.records), dtype=np.int64)
        return self.messages.partitioned.positions[self.messages.enqueued :]

"""The events of a client, made by tests."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.librdkafka.events import AcknowledgedRecords, FailedRecords


def acknowledged(*records: tuple[int, int, int]) -> AcknowledgedRecords:
    """Delivery id, partition and number of records that the brokers have acknowledged together."""
    return AcknowledgedRecords(*np.array(records, dtype=np.int64).reshape(-1, 3).T)


def reported(
    send_id: int,
    partition: int,
    code: int,
    count: int,
    positions: tuple[int, ...] = (),
    *,
    is_named: bool = False,
) -> AcknowledgedRecords | FailedRecords:
    """``count`` records with one outcome; code 0: acknowledged."""
    if code == 0:
        return acknowledged((send_id, partition, count))
    return FailedRecords(send_id, partition, code, False, count, positions, is_named)

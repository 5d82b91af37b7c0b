"""Consumers that know nothing of the sink: one reads along, others read all afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from evidence import GrowingReading, Reading

from spark_kafka_sink.deadline import Deadline

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

_POLL_SECONDS = 0.2
_AT_A_TIME = 5000
_END_SECONDS = 60.0

Ends = Mapping[tuple[str, int], int]


class ReaderAlong:
    """Context manager: a thread that reads the topics from their beginning, while they grow."""

    def __init__(self, servers: str, topics: Sequence[str], partitions: int) -> None:
        self._all = _Partitions(servers, topics, partitions, READ_COMMITTED)
        self._is_done: Callable[[], bool] = lambda: False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> ReaderAlong:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_done = lambda: True
        self._thread.join(_END_SECONDS)

    def finish(self, ends: Ends) -> dict[str, Reading]:
        """What it saw, once it has reached the ends. Raises what stopped it, or TimeoutError."""
        deadline = Deadline(_END_SECONDS)
        self._is_done = lambda: deadline.expired or self._all.have_reached(ends)
        self._thread.join(_END_SECONDS + 2 * _POLL_SECONDS + 10)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive() or not self._all.have_reached(ends):
            raise TimeoutError(f"the reader along did not reach the ends: {self._all.reached}")
        return self._all.readings()

    def _read(self) -> None:
        try:
            while not self._is_done():
                self._all.read()
        except BaseException as error:  # noqa: BLE001 - raised by finish
            self._error = error
        finally:
            self._all.close()


def read_all(
    servers: str, topics: Sequence[str], partitions: int, isolation: str, ends: Ends
) -> dict[str, Reading]:
    """Everything up to the ends. Raises TimeoutError, KafkaException."""
    everything = _Partitions(servers, topics, partitions, isolation)
    try:
        # Reading is quick, but a run may have been long.
        deadline = Deadline(_END_SECONDS + sum(ends.values()) / 10_000)
        while not everything.have_reached(ends):
            if deadline.expired:
                raise TimeoutError(f"{isolation}: read only up to {everything.reached}")
            everything.read()
        return everything.readings()
    finally:
        everything.close()


class _Partitions:
    """All partitions of the topics, and what was read of them."""

    def __init__(
        self, servers: str, topics: Sequence[str], partitions: int, isolation: str
    ) -> None:
        self._readings = {topic: GrowingReading() for topic in topics}
        wanted = [
            TopicPartition(topic, partition, 0)
            for topic in topics
            for partition in range(partitions)
        ]
        #: the next offset of every partition
        self.reached = {(each.topic, each.partition): 0 for each in wanted}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "chaos-readers",  # required, but they commit nothing
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "error",  # instead of silently skipping rows
                # A position does not pass what is not shown, such as the end of a transaction.
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 200,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.assign(wanted)

    def read(self) -> None:
        """Take what has arrived, waiting a moment. Raises KafkaException if rows are gone."""
        for message in self._consumer.consume(_AT_A_TIME, _POLL_SECONDS):
            error = message.error()
            place = (message.topic(), message.partition())
            if error is None:
                row = int(message.value().split(b" ", 1)[0])
                self._readings[place[0]].append(place[1], message.offset(), row)
                self.reached[place] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.reached[place] = message.offset()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
            # All other errors pass: the consumer tries again.

    def have_reached(self, ends: Ends) -> bool:
        return all(self.reached[place] >= end for place, end in ends.items())

    def readings(self) -> dict[str, Reading]:
        return {topic: reading.done() for topic, reading in self._readings.items()}

    def close(self) -> None:
        self._consumer.close()

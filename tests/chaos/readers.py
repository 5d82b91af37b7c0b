"""Consumers that know nothing of the sink: one reads concurrently, others read all afterwards."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from evidence import GrowingReading, Reading

from spark_kafka_sink.deadline import Deadline

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

_POLL_SECONDS = 0.2
_AT_A_TIME = 5000
_END_SECONDS = 60.0
# Longer than brokers and streams need to come back, as a rule.
_SILENCE_SECONDS = 30.0
_LOG_BYTES = 16 * 1024 * 1024

Ends = Mapping[tuple[str, int], int]


class ConcurrentReader:
    """Context manager: a thread that reads the topics from their beginning, while they grow.

    librdkafka's consumers may stand still for good when leaders move often. So when a partition
    brings nothing for 30 s, another consumer goes on where this one ended, as after a restart of an
    application. ``concurrent-reader.log`` in the folder has what librdkafka says.
    """

    def __init__(self, servers: str, topics: Sequence[str], partitions: int, folder: Path) -> None:
        log = logging.getLogger("chaos.concurrent-reader")
        log.propagate = False
        log.setLevel(logging.DEBUG)
        handler = RotatingFileHandler(
            folder / "concurrent-reader.log", "a", _LOG_BYTES, backupCount=4
        )
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.handlers = [handler]
        self._log = log
        self._all = _Partitions(servers, topics, partitions, READ_COMMITTED, log)
        self._is_done: Callable[[], bool] = lambda: False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> ConcurrentReader:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_done = lambda: True
        self._thread.join(_END_SECONDS)

    @property
    def longest_delay_seconds(self) -> float:
        """From a record's timestamp until it was read, at most."""
        return self._all.longest_delay_seconds

    def finish(self, ends: Ends) -> tuple[dict[str, Reading], list[str]]:
        """What it saw, and the partitions whose ends it has not reached. Raises what stopped it."""
        deadline = Deadline(_END_SECONDS)
        self._is_done = lambda: deadline.expired or not self._all.lacking(ends)
        self._thread.join(_END_SECONDS + _POLL_SECONDS + 30)
        if self._thread.is_alive():
            raise TimeoutError("the concurrent reader hangs in librdkafka")
        if self._error is not None:
            raise self._error
        return self._all.readings(), self._all.lacking(ends)

    def _read(self) -> None:
        try:
            while not self._is_done():
                self._all.read()
                if silent := self._all.silent():
                    self._log.info("nothing came of %s: the next consumer", ", ".join(silent))
                    self._all.renew()
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
        while lacking := everything.lacking(ends):
            if deadline.expired:
                raise TimeoutError(f"{isolation}: {', '.join(lacking)}")
            everything.read()
        return everything.readings()
    finally:
        everything.close()


class _Partitions:
    """All partitions of the topics, and what was read of them."""

    def __init__(
        self,
        servers: str,
        topics: Sequence[str],
        partitions: int,
        isolation: str,
        log: logging.Logger | None = None,
    ) -> None:
        self._readings = {topic: GrowingReading() for topic in topics}
        places = [(topic, partition) for topic in topics for partition in range(partitions)]
        #: the next offset of every partition
        self._reached = dict.fromkeys(places, 0)
        self.longest_delay_seconds = 0.0
        self._config = {
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
        if log is not None:
            self._config |= {"logger": log, "debug": "metadata,topic,broker", "log_level": 7}
        self._begin()

    def _begin(self) -> None:
        self._consumer = Consumer(self._config)
        self._consumer.assign(
            [
                TopicPartition(topic, partition, offset)
                for (topic, partition), offset in self._reached.items()
            ]
        )
        self._heard_at = dict.fromkeys(self._reached, time.monotonic())

    def renew(self) -> None:
        """Another consumer goes on."""
        # One that stands still may also hang when it is closed.
        threading.Thread(target=self._consumer.close, daemon=True).start()
        self._begin()

    def read(self) -> None:
        """Take what has arrived, waiting a moment. Raises KafkaException if rows are gone."""
        for message in self._consumer.consume(_AT_A_TIME, _POLL_SECONDS):
            error = message.error()
            place = (message.topic(), message.partition())
            if error is None:
                self._take(place, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached[place] = message.offset()
                self._heard_at[place] = time.monotonic()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
            # All other errors pass: the consumer tries again.

    def _take(self, place: tuple[str, int], message: Message) -> None:
        self._readings[place[0]].append(place[1], message.offset(), message.value())
        self._reached[place] = message.offset() + 1
        self._heard_at[place] = time.monotonic()
        delay = time.time() - message.timestamp()[1] / 1000
        self.longest_delay_seconds = max(self.longest_delay_seconds, delay)

    def silent(self) -> list[str]:
        """The partitions of which nothing came for 30 s."""
        latest = time.monotonic() - _SILENCE_SECONDS
        return [_name(place) for place, at in self._heard_at.items() if at < latest]

    def lacking(self, ends: Ends) -> list[str]:
        """The partitions that were not read up to these ends."""
        return [
            f"{_name(place)} is at {self._reached[place]} of {end}"
            for place, end in ends.items()
            if self._reached[place] < end
        ]

    def readings(self) -> dict[str, Reading]:
        return {topic: reading.done() for topic, reading in self._readings.items()}

    def close(self) -> None:
        self._consumer.close()


def _name(place: tuple[str, int]) -> str:
    topic, partition = place
    return f"{topic}[{partition}]"

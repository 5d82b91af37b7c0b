"""[both] Keeps one idle producer per ProducerOptions, borrowed by one task at a time."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from spark_kafka_sink.clients.idle_clients import IdleClients
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.errors import KafkaSinkError, add_sentence
from spark_kafka_sink.librdkafka.client import release_freed_memory
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN, Origin, RejectedRecords
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.threads import per_process

_MAX_IDLE = 4


class BorrowedProducer:
    """A producer while one task uses it, as its ``task.Sender``."""

    def __init__(self, producer: NonBlockingProducer, *, is_new: bool) -> None:
        self.producer = producer
        self._is_new = is_new
        self.needs_rows = True
        self.report = DeliveryReport()

    def prefetch(self, topics: Iterable[str]) -> None:
        self.producer.prefetch(topics)

    def send(self, records: RecordColumns) -> None:
        self.producer.send(records)

    def send_dead_letters(self, rejected: RejectedRecords) -> None:
        self.producer.send_dead_letters(rejected)

    def close(self, timeout_seconds: float) -> None:
        """Raises what ``NonBlockingProducer.flush`` raises."""
        self.producer.flush(timeout_seconds)
        self.collect_report()

    def wakeup(self) -> None:
        self.producer.wakeup()

    def collect_report(self) -> None:
        self.report = replace(
            self.producer.collect_report(),
            producers_created=int(self._is_new),
            producers_reused=int(not self._is_new),
        )


class ProducerCache:
    """The producers of one process.

    Their events are read while a task waits for its rows, or no task runs.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._idle: IdleClients[ProducerOptions, NonBlockingProducer] = IdleClients(
            lambda: _MAX_IDLE, clock
        )
        #: recently used topics of producers that were closed, for their successors
        self._live_topics: dict[ProducerOptions, list[str]] = {}  # latest last

    @contextmanager
    def borrow(
        self, options: SinkOptions, origin: Origin = UNKNOWN_ORIGIN
    ) -> Iterator[BorrowedProducer]:
        """A producer for one task: an idle or new one, kept afterwards if another task can use it.

        If the task fails, its remaining records are dropped, so that nothing of it is sent later;
        our own errors then say what happened to its records.
        """
        key = options.producer
        idle = self._idle.take(key)
        # Of the previous task: glibc would keep more than a whole Arrow batch.
        release_freed_memory()
        if idle is not None and not idle.is_idle:
            self._close(key, idle)
            idle = None
        producer = idle if idle is not None else self._new_producer(key)
        borrowed = BorrowedProducer(producer, is_new=idle is None)
        try:
            with self.in_use(producer):
                producer.begin_task(origin)
                yield borrowed
        except BaseException as error:
            self._close(key, producer)
            borrowed.collect_report()
            if isinstance(error, KafkaSinkError) and borrowed.report.total_sent:
                add_sentence(error, borrowed.report.counts())
            raise
        is_usable = not producer.is_mostly_evicted and producer.is_idle
        timeout_seconds = options.values[table.PRODUCER_CACHE_TIMEOUT] / 1000
        if not (is_usable and self._idle.keep(key, producer, timeout_seconds)):
            self._close(key, producer)

    def in_use(self, producer: NonBlockingProducer) -> AbstractContextManager[None]:
        """Read the events of a producer that a task uses, perhaps one of its own."""
        return self._idle.in_use(producer)

    def _new_producer(self, options: ProducerOptions) -> NonBlockingProducer:
        producer = NonBlockingProducer(options)
        if topics := self._live_topics.pop(options, None):
            producer.prefetch(topics)
        return producer

    def _close(self, options: ProducerOptions, producer: NonBlockingProducer) -> None:
        producer.close(0)
        self._live_topics.pop(options, None)
        self._live_topics[options] = producer.live_topics()
        if len(self._live_topics) > _MAX_IDLE:
            # Another thread may have removed it.
            self._live_topics.pop(next(iter(self._live_topics)), None)

    def close(self, timeout_seconds: float) -> None:
        """Close one idle producer after another until the timeout."""
        self._idle.close(timeout_seconds)


@per_process
def process_cache() -> ProducerCache:
    """The cache of this process."""
    made, pid = ProducerCache(), os.getpid()
    atexit.register(lambda: made.close(1.0) if os.getpid() == pid else None)
    return made

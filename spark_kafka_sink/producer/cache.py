"""Keeps one idle producer per process and ProducerOptions, borrowed by one task at a time."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.errors import KafkaSinkError, add_sentence
from spark_kafka_sink.librdkafka.memory import release_freed_memory
from spark_kafka_sink.process_limits import start_thread
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.origin import UNKNOWN_ORIGIN, Origin
from spark_kafka_sink.records.rejection import RejectedRecords
from spark_kafka_sink.report.delivery_report import DeliveryReport

_MOST_IDLE = 4
# How often the producers' events are read while no task calls them.
_POLL_SECONDS = 1.0


class BorrowedProducer:
    """A producer while one task uses it. ``report``: of the task, once it has ended."""

    def __init__(self, producer: NonBlockingProducer, *, is_new: bool) -> None:
        self.producer = producer
        self._is_new = is_new
        self.report = DeliveryReport()

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch topics' metadata in the background."""
        self.producer.prefetch(topics)

    def send(self, records: RecordColumns) -> None:
        """Send records; raises the first failure of any record of the task."""
        self.producer.send(records)
        self.producer.raise_failure()

    def send_dead_letters(self, rejected: RejectedRecords) -> None:
        """Send dead letters for rows; raises like ``send``."""
        self.producer.send_dead_letters(rejected)
        self.producer.raise_failure()

    def close(self, timeout_seconds: float) -> DeliveryReport:
        """Commit the task: wait until all records are acknowledged; returns what was delivered.

        Raises what ``NonBlockingProducer.flush`` raises.
        """
        self.producer.flush(timeout_seconds)
        self.collect_report()
        return self.report

    def collect_report(self) -> None:
        self.report = replace(
            self.producer.collect_report(),
            producers_created=int(self._is_new),
            producers_reused=int(not self._is_new),
        )


@dataclass
class _Idle:
    producer: NonBlockingProducer
    since: float
    timeout_seconds: float


class ProducerCache:
    """The producers of one process.

    A thread reads their events while a task waits for its rows, or no task runs, and closes those
    that are idle for too long. It ends with the last producer.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the next three
        self._poller: threading.Thread | None = None
        self._borrowed: list[NonBlockingProducer] = []
        self._idle: dict[ProducerOptions, _Idle] = {}  # longest idle first
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
        self.evict_expired()
        # Of the previous task: glibc would keep more than a whole Arrow batch.
        release_freed_memory()
        key = options.producer
        with self._lock:
            idle = self._idle.pop(key, None)
        if idle is not None and not idle.producer.is_idle:
            self._close(key, idle.producer)
            idle = None
        producer = idle.producer if idle is not None else self._new_producer(key)
        producer.begin_task(origin)
        borrowed = BorrowedProducer(producer, is_new=idle is None)
        try:
            self._poll_with_others(producer)
            yield borrowed
        except BaseException as error:
            with self._lock:
                self._borrowed.remove(producer)
            self._close(key, producer)
            borrowed.collect_report()
            if isinstance(error, KafkaSinkError) and borrowed.report.total_sent:
                add_sentence(error, borrowed.report.counts())
            raise
        timeout_seconds = options.producer_cache_timeout_ms / 1000
        is_usable = not producer.is_mostly_evicted and producer.is_idle
        with self._lock:
            self._borrowed.remove(producer)
            is_kept = is_usable and key not in self._idle
            if is_kept:
                self._idle[key] = _Idle(producer, self._clock(), timeout_seconds)
        if not is_kept:
            self._close(key, producer)

    def _poll_with_others(self, producer: NonBlockingProducer) -> None:
        with self._lock:
            self._borrowed.append(producer)
            # It is replaced if it has failed, as in a handler of the client's log lines.
            if self._poller is None or not self._poller.is_alive():
                self._poller = start_thread(self._poll_all, "poller")

    def _poll_all(self) -> None:
        while True:
            time.sleep(_POLL_SECONDS)
            with self._lock:
                producers = [*self._borrowed, *(idle.producer for idle in self._idle.values())]
                if not producers:
                    self._poller = None
                    return
            for producer in producers:
                producer.read_events()
            self.evict_expired()

    def _new_producer(self, options: ProducerOptions) -> NonBlockingProducer:
        producer = NonBlockingProducer(options)
        if topics := self._live_topics.pop(options, None):
            producer.prefetch(topics)
        return producer

    def _close(self, options: ProducerOptions, producer: NonBlockingProducer) -> None:
        producer.close(0)
        self._live_topics.pop(options, None)
        self._live_topics[options] = producer.live_topics()
        if len(self._live_topics) > _MOST_IDLE:
            del self._live_topics[next(iter(self._live_topics))]

    def evict_expired(self) -> None:
        """Close producers that were idle for too long; of too many, the longest idle ones."""
        now = self._clock()
        with self._lock:
            too_many = len(self._idle) - _MOST_IDLE
            expired = {
                options: idle.producer
                for position, (options, idle) in enumerate(self._idle.items())
                if position < too_many or now - idle.since >= idle.timeout_seconds
            }
            for options in expired:
                del self._idle[options]
        for producer in expired.values():
            producer.close(0)

    def close(self, timeout_seconds: float) -> None:
        """Close one producer after another until the timeout."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), {}
        end = self._clock() + timeout_seconds
        for each in idle:
            if self._clock() < end:
                each.producer.close(0)


@cache
def _cache_of(pid: int) -> ProducerCache:
    made = ProducerCache()
    atexit.register(lambda: made.close(1.0) if os.getpid() == pid else None)
    return made


def process_cache() -> ProducerCache:
    """The cache of this process; a fork gets its own, since threads do not survive a fork."""
    return _cache_of(os.getpid())

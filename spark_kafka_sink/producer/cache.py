"""One live producer per process and configuration, leased to one task at a time."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.librdkafka.client import release_freed_memory
from spark_kafka_sink.producer.delivery_report import DeliveryReport
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.columns import RecordColumns

_MOST_IDLE = 4


class Lease:
    """A producer while one task uses it."""

    def __init__(self, producer: NonBlockingProducer) -> None:
        self.producer = producer

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch topics' metadata in the background."""
        self.producer.prefetch(topics)

    def send(self, records: RecordColumns) -> None:
        """Send records; raises what is known to have gone wrong with any row of the task."""
        self.producer.send(records)
        self.producer.raise_failure()

    def close(self, timeout_seconds: float) -> DeliveryReport:
        """The task's commit: wait until all is acknowledged; returns what was delivered.

        Raises what ``NonBlockingProducer.flush`` raises.
        """
        self.producer.flush(timeout_seconds)
        return self.producer.take_report()


@dataclass
class _Idle:
    producer: NonBlockingProducer
    since: float
    timeout_seconds: float


class ProducerCache:
    """The producers of one process that no task uses now."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._idle: dict[ProducerOptions, _Idle] = {}  # the longest idle first
        #: topics lately used by a producer that was closed, for the one that follows it
        self._live_topics: dict[ProducerOptions, list[str]] = {}

    @contextmanager
    def lease(self, options: SinkOptions) -> Iterator[Lease]:
        """A producer for one task, made if none is idle; kept afterwards if it is fit for another.

        When the task fails all its rows that are left are given up, so that nothing of it is sent
        later; our own errors then say what became of its rows.
        """
        self.retire()
        # Of the task before: glibc would keep more than a whole Arrow batch of it.
        release_freed_memory()
        key = options.producer
        idle = self._idle.pop(key, None)
        if idle is not None and not idle.producer.is_idle:
            self._close(key, idle.producer)
            idle = None
        producer = idle.producer if idle is not None else self._new_producer(key)
        try:
            yield Lease(producer)
        except KafkaSinkError as error:
            self._close(key, producer)
            report = producer.take_report()
            if report.total_sent:
                error.args = (f"{error}. {report.counts()}", *error.args[1:])
            raise
        except BaseException:
            self._close(key, producer)
            raise
        if producer.is_overgrown or not producer.is_idle or key in self._idle:
            self._close(key, producer)
            return
        timeout_seconds = options.producer_cache_timeout_ms / 1000
        self._idle[key] = _Idle(producer, self._clock(), timeout_seconds)

    def _new_producer(self, options: ProducerOptions) -> NonBlockingProducer:
        producer = NonBlockingProducer(
            options.client, options.buffer_memory_bytes, options.budget, options.lifetime
        )
        if topics := self._live_topics.pop(options, None):
            producer.prefetch(topics)
        return producer

    def _close(self, options: ProducerOptions, producer: NonBlockingProducer) -> None:
        self._live_topics[options] = producer.live_topics()
        producer.close(0)

    def retire(self) -> None:
        """Close producers that were idle for too long, and the longest idle of too many."""
        now = self._clock()
        too_many = len(self._idle) - _MOST_IDLE
        for position, (options, idle) in enumerate(list(self._idle.items())):
            if position < too_many or now - idle.since >= idle.timeout_seconds:
                del self._idle[options]
                idle.producer.close(0)

    def close(self, timeout_seconds: float) -> None:
        """Close one after another, each within half a second, until the time is up."""
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

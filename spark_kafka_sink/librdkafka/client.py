"""Client: owns one librdkafka producer handle, its topics and its event queue."""

from __future__ import annotations

import ctypes
import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.configuration import ERROR_TEXT_SIZE, set_value
from spark_kafka_sink.librdkafka.event_reader import read
from spark_kafka_sink.librdkafka.events import BrokerError, Event, ReportedRecords
from spark_kafka_sink.librdkafka.messages import MessageArray, ProducevaArguments, prepare
from spark_kafka_sink.records.partitioner import PartitionedRecords


@dataclass(frozen=True)
class EnqueueResult:
    """What became of the rows handed to the queue: the first ``count`` were taken care of.

    ``rejected`` holds the error codes of those among them that were refused for good.
    Rows from ``count`` on found the queue full and are to be handed over again.
    """

    count: int
    rejected: Sequence[int] = ()


class Client:
    """One producer handle (``rd_kafka_t``) in event mode: no callback ever enters Python.

    Only the process that made a Client may use it, and only one thread at a time, but for
    ``close``. ``settings`` are librdkafka's; a ValueError tells what ``rd_kafka_new`` refuses.

    Values are not copied: the client keeps the Arrow batch that rows lie in until each of them is
    reported, or the handle is freed.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._pid = os.getpid()
        self._handle: int | None = None
        self._topics: dict[str, int] = {}
        #: delivery id -> rows not reported, and the Arrow batch that they lie in
        self._unreported: dict[int, tuple[int, object]] = {}
        conf = c.conf_new()
        for name, value in {**settings, "log.queue": "true"}.items():
            if set_value(conf, name, value) is not None:
                c.conf_destroy(conf)
                raise ValueError(f"librdkafka refuses the value of {name}")
        c.conf_set_events(conf, c.EVENT_DR | c.EVENT_ERROR | c.EVENT_LOG | c.EVENT_STATS)
        text = ctypes.create_string_buffer(ERROR_TEXT_SIZE)
        self._handle = c.new(c.PRODUCER, conf, text, ERROR_TEXT_SIZE)
        if not self._handle:
            c.conf_destroy(conf)
            raise ValueError(text.value.decode(errors="replace"))
        self._queue = c.queue_get_main(self._handle)
        c.set_log_queue(self._handle, None)
        # Until it is closed its threads run, even if nobody refers to it: so must its batches stay,
        # also when the interpreter clears everything at its end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    @property
    def handle(self) -> int:
        """The ``rd_kafka_t`` pointer; stays inside this package."""
        if self._handle is None:
            raise RuntimeError("the client is closed")
        if self._pid != os.getpid():
            raise RuntimeError("the client belongs to the process that forked this one")
        return self._handle

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that made the client."""
        return self._pid != os.getpid()

    def open_topic(self, name: str) -> int:
        """The ``rd_kafka_topic_t`` pointer of a topic; stays inside this package.

        Unless the client has metadata it now asks any broker for it, until there is some, and so
        that brokers which create missing topics do so (``rd_kafka_topic_new``).
        """
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = c.topic_new(self.handle, name.encode(), None)
            if not topic:
                del self._topics[name]
                raise ValueError(f"librdkafka refuses the topic name {name!r}")
        return topic

    # --- producing -------------------------------------------------------------------------------

    def prepare(
        self, placed: PartitionedRecords, delivery_id: int
    ) -> MessageArray | ProducevaArguments:
        """Rows in the form that ``enqueue`` takes, as often as needed.

        Reports on these rows carry ``delivery_id``.
        """
        return prepare(self.open_topic(placed.records.topic), placed, delivery_id)

    def enqueue(self, rows: MessageArray | ProducevaArguments, first: int = 0) -> EnqueueResult:
        """Put rows, from number ``first`` on, into the send queue. Never waits."""
        count = len(rows) - first
        # Before the call, so that whatever goes wrong the batch stays rather too long.
        self._add_unreported(rows.delivery_id, count, rows.records.batch)
        if isinstance(rows, MessageArray):
            enqueued = self._enqueue_runs(rows, first)
        else:
            enqueued = self._enqueue_each(rows, first)
        not_taken = count - enqueued.count + len(enqueued.rejected)
        self._add_unreported(rows.delivery_id, -not_taken, rows.records.batch)
        return enqueued

    def _add_unreported(self, delivery_id: int, rows: int, batch: object) -> None:
        before, _ = self._unreported.get(delivery_id, (0, None))
        self._unreported[delivery_id] = (before + rows, batch)
        if before + rows == 0:
            del self._unreported[delivery_id]

    def _enqueue_runs(self, rows: MessageArray, first: int) -> EnqueueResult:
        self.handle  # noqa: B018 - refuses use after close or fork
        address, size = rows.messages.ctypes.data, rows.messages.itemsize
        rejected: list[int] = []
        row = first
        for number in range(bisect_right(rows.starts, first) - 1, len(rows.partitions)):
            end = rows.starts[number + 1]
            accepted = c.produce_batch(
                rows.topic, rows.partitions[number], 0, address + row * size, end - row
            )
            if accepted != end - row:
                errors = rows.messages["err"][row:end]
                full = np.flatnonzero(errors == c.ERR_QUEUE_FULL)
                # A full queue fails the rest of a run, so order survives if one resumes there.
                taken = int(full[0]) if len(full) else end - row
                rejected += [int(code) for code in errors[:taken] if code]
                if len(full):
                    return EnqueueResult(row + taken - first, rejected)
            row = end
        return EnqueueResult(row - first, rejected)

    def _enqueue_each(self, rows: ProducevaArguments, first: int) -> EnqueueResult:
        starts = rows.starts[first:]
        addresses = rows.arguments.ctypes.data + starts[:-1] * rows.arguments.itemsize
        counts = np.diff(starts)
        rejected: list[int] = []
        calls = map(c.produceva, repeat(self.handle), addresses.tolist(), counts.tolist())
        for row, error in enumerate(calls):
            if error:
                code = c.error_code(error)
                c.error_destroy(error)
                if code == c.ERR_QUEUE_FULL:
                    return EnqueueResult(row, rejected)
                rejected.append(code)
        return EnqueueResult(len(counts), rejected)

    def queued(self) -> int:
        """Rows neither acknowledged nor failed, plus events not polled (``rd_kafka_outq_len``)."""
        return int(c.outq_len(self.handle))

    def flush(self, seconds: float) -> None:
        """Send without lingering; return when the queue is empty or after that many seconds.

        In event mode this waits for the count of rows alone, so slices of it must alternate with
        ``poll``, or failed rows never leave (``rd_kafka_flush``).
        """
        c.flush(self.handle, _milliseconds(seconds))

    def purge(self) -> None:
        """Fail all rows, queued and in flight; ``poll`` brings them (``rd_kafka_purge``)."""
        # Without NON_BLOCKING it would wait for threads that may hang in a name look-up.
        c.purge(self.handle, c.PURGE_F_QUEUE | c.PURGE_F_INFLIGHT | c.PURGE_F_NON_BLOCKING)

    # --- events ----------------------------------------------------------------------------------

    def poll(self, seconds: float = 0.0) -> list[Event]:
        """Take all events; wait at most that long for the first (``rd_kafka_queue_poll``)."""
        events: list[Event] = []
        self.handle  # noqa: B018 - refuses use after close or fork
        event = c.queue_poll(self._queue, _milliseconds(seconds))
        while event:
            try:
                new = read(event)
            finally:
                c.event_destroy(event)
            for each in new:
                if isinstance(each, ReportedRecords):
                    _, batch = self._unreported[each.delivery_id]
                    self._add_unreported(each.delivery_id, -each.count, batch)
            events.extend(new)
            event = c.queue_poll(self._queue, 0)
        return events

    def fatal_error(self) -> BrokerError | None:
        """The error after which the handle is of no use any more (``rd_kafka_fatal_error``)."""
        text = ctypes.create_string_buffer(ERROR_TEXT_SIZE)
        code = c.fatal_error(self.handle, text, ERROR_TEXT_SIZE)
        return BrokerError(code, text.value.decode(errors="replace")) if code else None

    # --- metadata --------------------------------------------------------------------------------

    def fetch_metadata(self, topics: Sequence[str], timeout: float) -> None:
        """Ask for all those topics in one request, without waiting (``rd_kafka_DescribeTopics``).

        The answer fills the client's own metadata cache and comes as TopicDescription events. Sent
        right after creation it also saves an idempotent producer the 500 ms that its producer id
        waits otherwise.
        """
        names = c.string_array([name.encode() for name in topics])
        collection = c.topic_collection(names, len(topics))
        try:
            with self._admin_options(c.ADMIN_OP_DESCRIBETOPICS, timeout) as options:
                c.describe_topics(self.handle, collection, options, self._queue)
        finally:
            c.topic_collection_destroy(collection)

    def connect(self, timeout: float) -> None:
        """Connect and ask who is there, without waiting (``rd_kafka_DescribeCluster``)."""
        with self._admin_options(c.ADMIN_OP_DESCRIBECLUSTER, timeout) as options:
            c.describe_cluster(self.handle, options, self._queue)

    @contextmanager
    def _admin_options(self, operation: int, timeout: float) -> Iterator[int]:
        options = c.admin_options_new(self.handle, operation)
        try:
            c.admin_options_set_request_timeout(options, _milliseconds(timeout), None, 0)
            yield options
        finally:
            c.admin_options_destroy(options)

    # --- the end ---------------------------------------------------------------------------------

    def close(self, deadline: Deadline) -> bool:
        """Free the handle, its threads and sockets; True if that was done by the deadline.

        Rows still queued are dropped: flush or purge first. ``rd_kafka_destroy`` joins all broker
        threads, one of which may hang in a name lookup, hence a daemon thread that may stay behind.
        """
        handle, self._handle = self._handle, None
        if handle is None or self._pid != os.getpid():
            return True
        topics, self._topics = self._topics, {}
        for topic in topics.values():
            c.topic_destroy(topic)
        c.queue_destroy(self._queue)
        thread = threading.Thread(
            target=self._free, args=(handle,), name="rd_kafka_destroy", daemon=True
        )
        thread.start()
        thread.join(deadline.remaining())
        return not thread.is_alive()

    def _free(self, handle: int) -> None:
        c.destroy(handle)
        self._unreported.clear()
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self))


def release_freed_memory() -> None:
    """Give memory that is not used any more back to the system: glibc's ``malloc_trim``."""
    if c.malloc_trim is not None:
        c.malloc_trim(0)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)

"""[both] Client: owns one librdkafka producer handle, its topics and its event queue."""

from __future__ import annotations

import ctypes
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from itertools import count, repeat
from typing import Any, TypeVar

import numpy as np

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LimitReached
from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.event_reader import Request, read, read_reports
from spark_kafka_sink.librdkafka.events import BrokerError, Event, FailedRecords
from spark_kafka_sink.librdkafka.log_lines import LogLines
from spark_kafka_sink.librdkafka.messages import (
    MessageArray,
    ProducevaArguments,
    Rejection,
    prepare,
)
from spark_kafka_sink.librdkafka.setting_specs import ERROR_TEXT_SIZE, set_value
from spark_kafka_sink.process_limits import (
    free_address_space,
    memory_limit_reached,
    thread_limit_reached,
)
from spark_kafka_sink.records.partitioner import PartitionedRecords
from spark_kafka_sink.threads import start_call, start_thread

#: the index of a record, and why librdkafka rejects it
_Rejected = tuple[int, int]
_Result = TypeVar("_Result")

# One look-up for many events costs hardly more than for one. Their records are not freed meanwhile.
_REPORTS_AT_ONCE = 64
_NO_THREAD = "Failed to create thread"  # librdkafka's text
_M_ARENA_MAX = -8  # glibc's
_ARENAS = 2
# Of three brokers: the stacks of six threads, 8 MiB each, and its own memory.
_CLIENT_BYTES = 64 << 20
_LOG_INFO = 6  # of syslog; its level for connections that were closed


class Client:
    """One producer handle (``rd_kafka_t``) in event mode: no callback enters Python.

    It connects with its first request or record, so that topics opened before are part of the
    client's own first request. Only the process that created a Client may use it, and only one
    thread at a time.
    ``settings`` are librdkafka's; a ValueError says what ``rd_kafka_new`` rejects. Raises
    LimitReached if the process gets no more memory or threads. With ``asks_for_tokens``,
    TokenNeeded events ask the caller for ``set_token``. With ``reports_versions``, ApiVersion
    events say what the brokers support.

    Values are not copied: the client keeps an Arrow batch until each of its records is reported,
    or the handle is freed. It counts them itself, because librdkafka may still read the records of
    a send that the producer has given up.
    """

    _KIND = c.PRODUCER

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        asks_for_tokens: bool = False,
        reports_versions: bool = False,
    ) -> None:
        self._pid = os.getpid()
        self._handle: int | None = None
        self._topics: dict[str, int] = {}
        #: by send, how many of its records are unreported, their Arrow batch and topic
        self._unreported: dict[int, tuple[int, object, str]] = {}
        #: topic -> how many of its records are unreported
        self._unreported_by_topic: Counter[str] = Counter()
        #: those without an answer, by opaque
        self._requests: dict[int, Request] = {}
        self._opaques = count(1)
        self._calls: list[Future[Any]] = []
        #: brokers answer without offsets only to clients that want no acknowledgement
        self._requires_offsets = settings.get("acks") != "0"
        _require_memory()
        conf = c.conf_new()
        own = {"bootstrap.servers": "", "log.queue": "true", "metadata.recovery.strategy": "none"}
        debug, log_level = settings.get("debug"), int(settings.get("log_level", 6))
        # What only its log shows becomes events. With debug, librdkafka ignores log_level.
        own["log_level"] = str(max(log_level, _LOG_INFO))
        if reports_versions:
            own["debug"] = f"{debug},feature" if debug else "feature"
        self._log_lines = LogLines() if debug else LogLines(log_level)
        for name, value in {**settings, **own}.items():
            if set_value(conf, name, value) is not None:
                c.conf_destroy(conf)
                raise ValueError(f"librdkafka rejects the value of {name}")
        events = c.EVENT_DR | c.EVENT_ERROR | c.EVENT_LOG | c.EVENT_STATS
        if asks_for_tokens:
            events |= c.EVENT_OAUTHBEARER_TOKEN_REFRESH
        c.conf_set_events(conf, events)
        text = ctypes.create_string_buffer(ERROR_TEXT_SIZE)
        self._handle = c.new(self._KIND, conf, text, ERROR_TEXT_SIZE)
        if not self._handle:
            c.conf_destroy(conf)
            problem = text.value.decode(errors="replace")
            raise thread_limit_reached(problem) if _NO_THREAD in problem else ValueError(problem)
        user, password = settings.get("sasl.username"), settings.get("sasl.password")
        if user and password:
            # Again, because rd_kafka_conf_set removes white space at the beginning.
            c.sasl_set_credentials(self._handle, user.encode(), password.encode())
        self._servers = settings.get("bootstrap.servers", "")
        #: whether the servers were added, by the first request or record
        self.has_bootstrapped = not self._servers
        self._rebootstraps = settings.get("metadata.recovery.strategy") != "none"
        self._queue = c.queue_get_main(self._handle)
        c.set_log_queue(self._handle, None)
        # Its threads run until it is closed, even if nothing refers to it. Its batches must live as
        # long, even when the interpreter clears all modules at exit.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    @property
    def handle(self) -> int:
        """The ``rd_kafka_t`` pointer; stays inside this package."""
        return self._check_usable()

    def _check_usable(self) -> int:
        """The pointer; raises RuntimeError after ``close``, or in a fork."""
        if self._handle is None:
            raise RuntimeError("the client is closed")
        if self._pid != os.getpid():
            raise RuntimeError("the client belongs to the process that forked this one")
        return self._handle

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that created the client."""
        return self._pid != os.getpid()

    def open_topic(self, name: str) -> int:
        """The ``rd_kafka_topic_t`` pointer of a topic; stays inside this package.

        If the client has no metadata for the topic, it now requests it from any broker until it
        arrives. This request makes brokers create a missing topic, if they are configured to do
        so (``rd_kafka_topic_new``).
        """
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = c.topic_new(self.handle, name.encode(), None)
            if not topic:
                del self._topics[name]
                raise ValueError(f"librdkafka rejects the topic name {name!r}")
        return topic

    @property
    def topic_count(self) -> int:
        """Topics opened so far; librdkafka keeps all of them until its handle is freed."""
        return len(self._topics)

    # --- producing -------------------------------------------------------------------------------

    def enqueue(self, partitioned: PartitionedRecords, send_id: int) -> list[Rejection]:
        """Put records into the send queue, which has no bound. Never waits.

        Returns those that librdkafka rejects. Reports on the others carry ``send_id`` and their
        positions.
        """
        records = partitioned.records
        prepared = prepare(self.open_topic(records.topic), partitioned, send_id)
        self._bootstrap()
        # Counted before the call: after an error, the batch is kept too long, not released early.
        self._add_unreported(send_id, len(records), records.arrow_batch, records.topic)
        if isinstance(prepared, MessageArray):
            rejected = self._enqueue_groups(prepared)
        else:
            rejected = self._enqueue_singly(prepared)
        self._add_unreported(send_id, -len(rejected), records.arrow_batch, records.topic)
        return [Rejection(int(partitioned.positions[index]), code) for index, code in rejected]

    def _add_unreported(self, send_id: int, count: int, batch: object, topic: str) -> None:
        before = self._unreported.get(send_id, (0,))[0]
        self._unreported_by_topic[topic] += count
        if not self._unreported_by_topic[topic]:
            del self._unreported_by_topic[topic]
        self._unreported[send_id] = (before + count, batch, topic)
        if before + count == 0:
            del self._unreported[send_id]

    def has_unreported(self, topic: str) -> bool:
        """Whether librdkafka has records of that topic, queued or in flight."""
        return topic in self._unreported_by_topic

    def _enqueue_groups(self, array: MessageArray) -> list[_Rejected]:
        self._check_usable()
        address, size = array.messages.ctypes.data, array.messages.itemsize
        rejected: list[_Rejected] = []
        for partition, start, end in zip(
            array.partitions, array.starts[:-1], array.starts[1:], strict=True
        ):
            accepted = c.produce_batch(
                array.topic, partition, 0, address + start * size, end - start
            )
            if accepted != end - start:
                errors = array.messages["err"][start:end]
                rejected += [(start + i, int(errors[i])) for i in np.flatnonzero(errors).tolist()]
        return rejected

    def _enqueue_singly(self, prepared: ProducevaArguments) -> list[_Rejected]:
        starts = prepared.starts[:-1]
        addresses = prepared.arguments.ctypes.data + starts * prepared.arguments.itemsize
        counts = np.diff(prepared.starts)
        rejected: list[_Rejected] = []
        calls = map(c.produceva, repeat(self.handle), addresses.tolist(), counts.tolist())
        for index, error in enumerate(calls):
            if error:
                code = c.error_code(error)
                c.error_destroy(error)
                rejected.append((index, code))
                if code == ErrorCode.UNKNOWN_TOPIC:
                    # The topic may be back before the next record, which must not overtake this.
                    return rejected + [(later, code) for later in range(index + 1, len(counts))]
        return rejected

    @contextmanager
    def paused(self, topic: str, partitions: Sequence[int]) -> Iterator[None]:
        """Send nothing of these partitions meanwhile: what each one gets leaves in one batch.

        If the client's settings allow it. Waits only for the client's main
        thread (``rd_kafka_pause_partitions``, which works for producers, too).
        """
        handle, opened = self.handle, self.open_topic(topic)
        paused = c.partition_list_new(len(partitions))
        for partition in partitions:
            c.partition_list_add(paused, topic.encode(), partition)
        try:
            c.pause_partitions(handle, paused)
            try:
                yield
            finally:
                c.resume_partitions(handle, paused)
        finally:
            c.partition_list_destroy(paused)
            # Pausing marks a partition as a consumer's, and adds events to its queue. Both would
            # keep it in memory after its topic has gone.
            for partition in partitions:
                c.consume_stop(opened, partition)
                c.consume(opened, partition, 0)
            # This purges nothing, but wakes all brokers' threads, even those without a connection.
            c.purge(handle, c.PURGE_F_NON_BLOCKING)

    def flush(self, seconds: float) -> None:
        """Send without lingering; return when the queue is empty or after that many seconds.

        In event mode it does not read reports: alternate short calls with ``poll``, or reported
        records stay in the queue (``rd_kafka_flush``).
        """
        c.flush(self.handle, milliseconds(seconds))

    def purge(self) -> None:
        """Fail all records, queued and in flight; ``poll`` reports them (``rd_kafka_purge``)."""
        # Without NON_BLOCKING it waits for threads that may hang in a name look-up.
        c.purge(self.handle, c.PURGE_F_QUEUE | c.PURGE_F_INFLIGHT | c.PURGE_F_NON_BLOCKING)

    # --- events ----------------------------------------------------------------------------------

    def poll(self, seconds: float = 0.0) -> Iterator[Event]:
        """Yield events as they are read; wait that long for the first (``rd_kafka_queue_poll``)."""
        self._check_usable()
        self._log_lines.write_due()
        event = c.queue_poll(self._queue, milliseconds(seconds))
        reports: list[int] = []
        while event:
            if c.event_type(event) == c.EVENT_DR:
                reports.append(event)
                if len(reports) == _REPORTS_AT_ONCE:
                    yield from self._read_reports(reports)
            else:
                yield from self._read_reports(reports)  # events stay in order
                try:
                    new = read(event, self._requests, self._log_lines)
                finally:
                    c.event_destroy(event)
                for item in new:
                    if isinstance(item, BrokerError) and item.code == ErrorCode.ALL_BROKERS_DOWN:
                        self._rebootstrap()
                yield from new
            event = c.queue_poll(self._queue, 0)
        yield from self._read_reports(reports)

    def _read_reports(self, events: list[int]) -> Sequence[Event]:
        """Read and destroy events with delivery reports; the list is empty then."""
        try:
            reports = (
                read_reports(events, requires_offsets=self._requires_offsets) if events else []
            )
        finally:
            for event in events:
                c.event_destroy(event)
            events.clear()
        for report in reports:
            if isinstance(report, FailedRecords):
                self._subtract_unreported(report.send_id, report.count)
            else:
                for send_id, count in report.counts_by_send().items():
                    self._subtract_unreported(send_id, count)
        return reports

    def _subtract_unreported(self, send_id: int, count: int) -> None:
        _, batch, topic = self._unreported[send_id]
        self._add_unreported(send_id, -count, batch, topic)

    def fatal_error(self) -> BrokerError | None:
        """The error that made the handle unusable, if any (``rd_kafka_fatal_error``)."""
        text = ctypes.create_string_buffer(ERROR_TEXT_SIZE)
        code = c.fatal_error(self.handle, text, ERROR_TEXT_SIZE)
        return BrokerError(code, text.value.decode(errors="replace")) if code else None

    # --- login -----------------------------------------------------------------------------------

    def set_token(
        self, value: str, expires_at_ms: int, principal: str, extensions: Mapping[str, str]
    ) -> None:
        """Set the OAUTHBEARER token that the client's connections wait for.

        ``expires_at_ms``: since the epoch. After 80 % of the token's life, the client asks for the
        next one. A token that it rejects becomes a BrokerError event
        (``rd_kafka_oauthbearer_set_token``).
        """
        pairs = [text.encode() for pair in extensions.items() for text in pair]
        text = ctypes.create_string_buffer(ERROR_TEXT_SIZE)
        code = c.oauthbearer_set_token(
            self.handle,
            value.encode(),
            expires_at_ms,
            principal.encode(),
            c.string_array(pairs),
            len(pairs),
            text,
            ERROR_TEXT_SIZE,
        )
        if code:
            self.fail_token(text.value.decode(errors="replace"))

    def fail_token(self, reason: str) -> None:
        """Report why there is no token: a BrokerError event, and a TokenNeeded event 10 s later.

        (``rd_kafka_oauthbearer_set_token_failure``)
        """
        c.oauthbearer_set_token_failure(self.handle, reason.encode())

    # --- metadata --------------------------------------------------------------------------------

    def describe_topics(
        self,
        topics: Sequence[str],
        timeout_seconds: float,
        *,
        include_authorized_operations: bool = False,
    ) -> None:
        """Request all those topics at once, without waiting (``rd_kafka_DescribeTopics``).

        ``include_authorized_operations``: also what the user may do (KIP-430).
        The answer fills the client's own metadata cache and arrives as TopicDescription events; no
        answer, as a RequestFailed event.
        Sent right after creation, it also saves an idempotent producer the 500 ms after which it
        would otherwise request its producer id.
        """
        names = c.string_array([name.encode() for name in topics])
        collection = c.topic_collection(names, len(topics))
        try:
            with self._admin_options(
                c.ADMIN_OP_DESCRIBETOPICS, timeout_seconds, topics, include_authorized_operations
            ) as options:
                c.describe_topics(self.handle, collection, options, self._queue)
        finally:
            c.topic_collection_destroy(collection)

    def describe_cluster(
        self, timeout_seconds: float, *, include_authorized_operations: bool = False
    ) -> None:
        """Connect and find the brokers, without waiting (``rd_kafka_DescribeCluster``).

        The answer arrives as a ClusterDescription event.
        """
        with self._admin_options(
            c.ADMIN_OP_DESCRIBECLUSTER, timeout_seconds, (), include_authorized_operations
        ) as options:
            c.describe_cluster(self.handle, options, self._queue)

    def describe_broker_configs(self, broker_id: int, timeout_seconds: float) -> None:
        """Request a broker's settings, without waiting (``rd_kafka_DescribeConfigs``).

        The answer, or that there is none, arrives as a ConfigurationDescription event.
        """
        self._fetch_configurations(c.RESOURCE_BROKER, [str(broker_id)], timeout_seconds)

    def describe_topic_configs(self, topics: Sequence[str], timeout_seconds: float) -> None:
        """Request the settings of topics, all at once, as ``describe_broker_configs`` does."""
        self._fetch_configurations(c.RESOURCE_TOPIC, topics, timeout_seconds)

    def _fetch_configurations(
        self, kind: int, names: Sequence[str], timeout_seconds: float
    ) -> None:
        resources = [c.config_resource_new(kind, name.encode()) for name in names]
        try:
            with self._admin_options(c.ADMIN_OP_DESCRIBECONFIGS, timeout_seconds, names) as options:
                array = (ctypes.c_void_p * len(resources))(*resources)
                c.describe_configs(self.handle, array, len(resources), options, self._queue)
        finally:
            for resource in resources:
                c.config_resource_destroy(resource)

    @contextmanager
    def _admin_options(
        self,
        operation: int,
        timeout_seconds: float,
        names: Iterable[str],
        include_authorized_operations: bool = False,
    ) -> Iterator[int]:
        """Options of a request about those names, an ``rd_kafka_AdminOptions_t``."""
        self._bootstrap()
        opaque = next(self._opaques)
        self._requests[opaque] = Request(tuple(names), include_authorized_operations)
        options = c.admin_options_new(self.handle, operation)
        try:
            if include_authorized_operations:
                c.admin_options_set_include_authorized_operations(options, 1)
            c.admin_options_set_request_timeout(options, milliseconds(timeout_seconds), None, 0)
            c.admin_options_set_opaque(options, opaque)
            yield options
        finally:
            c.admin_options_destroy(options)

    def _bootstrap(self) -> None:
        """Connect, once."""
        if not self.has_bootstrapped:
            self.has_bootstrapped = True
            c.brokers_add(self.handle, self._servers.encode())

    def _rebootstrap(self) -> None:
        """Look for other brokers, too, because all known ones are down.

        librdkafka's own way drops the known ones, and tries only one address of a name, at random,
        before it begins again (``metadata.recovery.strategy``).
        """
        if self._rebootstraps:
            c.brokers_add(self.handle, self._servers.encode())

    def start_call(self, call: Callable[[int], _Result]) -> Future[_Result]:
        """Call a function with the handle, in a thread: for librdkafka's calls without a time-out.

        The handle is not freed before it returns.
        """
        outcome = start_call(call, "rd_kafka call", self.handle)
        self._calls.append(outcome)
        return outcome

    # --- the end ---------------------------------------------------------------------------------

    def close(self, deadline: Deadline) -> bool:
        """Free the handle, its threads and sockets; True if that was done by the deadline.

        Queued records are dropped: flush or purge first. ``rd_kafka_destroy`` joins all broker
        threads, and one may hang in a name look-up, as may a call of ``start_call``. So it runs in
        a daemon thread, which may outlive the caller. Where no thread can be started, the handle
        stays until the process ends: Python 3.12.0 and 3.12.1 start none at exit.
        """
        handle, self._handle = self._handle, None
        if handle is None or self._pid != os.getpid():
            return True
        topics, self._topics = self._topics, {}
        for topic in topics.values():
            c.topic_destroy(topic)
        c.queue_destroy(self._queue)
        try:
            thread = start_thread(self._free, "rd_kafka_destroy", [handle])
        except (LimitReached, RuntimeError):
            return False
        thread.join(deadline.remaining())
        return not thread.is_alive()

    def _free(self, handle: int) -> None:
        wait(self._calls)
        # Producers ignore the flag; a consumer that never joined its group has nothing to close.
        c.destroy_flags(handle, c.DESTROY_F_NO_CONSUMER_CLOSE)
        self._unreported.clear()
        try:
            self._log_lines.close()  # here, because a handler may hang
        finally:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(self))


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


# --- memory of the C library ----------------------------------------------------------------------


def release_freed_memory() -> None:
    """Return unused memory to the system (glibc's ``malloc_trim``; does nothing elsewhere)."""
    if c.malloc_trim is not None:
        c.malloc_trim(0)


def _require_memory() -> None:
    """Raise LimitReached if the limit on address space leaves no room for a client.

    librdkafka would abort the process. Under such a limit, threads share two of glibc's arenas:
    each reserves 64 MiB or more, and by default every thread gets its own.
    """
    if free_address_space() == math.inf:
        return
    if c.mallopt is not None:
        c.mallopt(_M_ARENA_MAX, _ARENAS)
    if free_address_space() < _CLIENT_BYTES:
        raise memory_limit_reached("there is no room for a Kafka client")

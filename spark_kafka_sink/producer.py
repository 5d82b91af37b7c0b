"""NonBlockingProducer: prefetch, send, flush, close; each wait has a deadline (KIP-286, KIP-15)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.delivery_report import DeliveryReport
from spark_kafka_sink.errors import BufferExhausted, DeadlineExceeded, DeliveryFailed
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.events import BrokerError, FailedRows, error_name, error_text
from spark_kafka_sink.record_columns import RecordColumns

# Failed rows are events and full buffers are not, so waits look up this often.
_POLL_SECONDS = 0.005
_FLUSH_SLICE_SECONDS = 0.1
_METADATA_SECONDS = 30.0

# Every row that waits costs librdkafka about this much beside its key and value, so that small
# rows are bounded by their number. Measured: 216 bytes a row.
_BYTES_PER_ROW = 256

_PURGED_IN_FLIGHT = "_PURGE_INFLIGHT"
_PURGED_UNSENT = "_PURGE_QUEUE"


class NonBlockingProducer:
    """Sends rows to Kafka in the background. One task at a time uses it, from one thread.

    ``settings``: librdkafka's. ``buffer_memory_bytes``: of rows that may wait, all topics together.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        buffer_memory_bytes: int,
        clock: Clock = time.monotonic,
    ) -> None:
        self._clock = clock
        self._client = Client(
            {
                **settings,
                "queue.buffering.max.kbytes": str(max(1, buffer_memory_bytes // 1024)),
                "queue.buffering.max.messages": str(max(1, buffer_memory_bytes // _BYTES_PER_ROW)),
            }
        )
        self._report = DeliveryReport()

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch the topics' metadata in the background, all in one request. Never waits."""
        names = sorted(set(topics))
        if names:
            self._client.fetch_metadata(names, _METADATA_SECONDS)

    def send(self, records: RecordColumns, max_block_seconds: float) -> None:
        """Copy records into the buffer, in order; wait only while it is full.

        The wait begins anew whenever a row went in. Raises BufferExhausted after
        ``max_block_seconds`` without room for one more row, DeliveryFailed as soon as any row
        of this task is known to have failed.
        """
        rows = self._client.prepare(records)
        done, deadline = 0, Deadline(max_block_seconds, self._clock)
        while True:
            enqueued = self._client.enqueue(rows, done)
            done += enqueued.count
            self._report.sent_rows[records.topic] += enqueued.count
            for code in enqueued.rejected:
                self._report.failed_rows[records.topic, -1, code] += 1
            self._take_events(0.0)
            self._raise_failure()
            if done == len(rows):
                break
            if enqueued.count:
                deadline = Deadline(max_block_seconds, self._clock)
            elif deadline.expired:
                raise BufferExhausted(
                    f"the send buffer stayed full for kafka.max.block.ms="
                    f"{max_block_seconds * 1000:.0f} while sending to {records.topic}: "
                    f"{self._client.queued()} rows wait{self._trouble()}. See whether the brokers "
                    "keep up; kafka.buffer.memory and kafka.max.block.ms give them more time"
                )
            self._take_events(deadline.slice(_POLL_SECONDS))
        self._report.sent_bytes += records.total_bytes

    def flush(self, deadline: Deadline) -> DeliveryReport:
        """Wait until the brokers have acknowledged all rows; returns the task's report.

        Raises DeliveryFailed as soon as a row failed. At the deadline all rows that are left are
        given up and DeadlineExceeded says how many, of which topics.
        """
        started = self._clock()
        while True:
            self._client.flush(deadline.slice(_FLUSH_SLICE_SECONDS))
            self._take_events(0.0)
            self._raise_failure()
            if not self._client.queued():
                report, self._report = self._report, DeliveryReport()
                return report
            if deadline.expired:
                self._give_up()
                raise self._deadline_exceeded(self._clock() - started)

    def close(self, deadline: Deadline) -> bool:
        """Give up what is left and free everything; True if that was done by the deadline."""
        self._client.purge()
        return self._client.close(deadline)

    # --- events ----------------------------------------------------------------------------------

    def _take_events(self, seconds: float) -> None:
        for event in self._client.poll(seconds):
            if isinstance(event, FailedRows):
                where = event.topic, event.partition, event.code
                self._report.failed_rows[where] += event.count
            elif isinstance(event, BrokerError):
                self._report.broker_error = event.text

    def _give_up(self) -> None:
        """Fail all rows that are left, queued or in flight, and collect them."""
        self._client.purge()
        deadline = Deadline(1.0, self._clock)
        while self._client.queued() and not deadline.expired:
            self._take_events(deadline.slice(_POLL_SECONDS))
        self._take_events(0.0)

    # --- what to tell ----------------------------------------------------------------------------

    def _raise_failure(self) -> None:
        if not self._report.failed_rows:
            return
        self._give_up()
        topic, partition, code = next(iter(self._report.failed_rows))
        delivered = self._report.total_sent - self._report.total_failed
        where = f"topic {topic}" + (f" partition {partition}" if partition >= 0 else "")
        fatal = self._client.fatal_error()
        raise DeliveryFailed(
            f"{where}: {error_text(code)} ({error_name(code)})"
            + (f"; {fatal.text}" if fatal else "")
            + f"{self._trouble()}. {self._counts()}",
            topic=topic,
            partition=partition,
            code=error_name(code),
            delivered_rows=delivered,
            failed_rows=self._report.total_failed,
        )

    def _deadline_exceeded(self, waited_seconds: float) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the brokers had not acknowledged all rows after {waited_seconds:.1f} s "
            f"(close.timeout.ms){self._trouble()}. {self._counts()} See whether the brokers are "
            "reachable and keep up; close.timeout.ms gives them more time"
        )

    def _trouble(self) -> str:
        return f"; last broker error: {self._report.broker_error}" * bool(self._report.broker_error)

    def _counts(self) -> str:
        """``Of 10 rows 4 were delivered, 1 failed, 3 were not sent, 2 may have arrived (a: 6).``"""
        report = self._report
        codes: dict[str, int] = {}
        topics: dict[str, int] = {}
        for (topic, _, code), rows in report.failed_rows.items():
            name = error_name(code)
            codes[name] = codes.get(name, 0) + rows
            topics[topic] = topics.get(topic, 0) + rows
        unknown, unsent = codes.pop(_PURGED_IN_FLIGHT, 0), codes.pop(_PURGED_UNSENT, 0)
        parts = [
            f"{report.total_sent - report.total_failed} were delivered",
            f"{sum(codes.values())} failed",
            f"{unsent} were not sent",
            f"{unknown} were in flight and may have arrived",
        ]
        by_topic = ", ".join(f"{topic}: {rows}" for topic, rows in sorted(topics.items()))
        return f"Of {report.total_sent} rows {', '.join(parts)} ({by_topic})."

"""Writes one Spark partition of a micro-batch exactly once; used like a lease of a producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption, InvalidRecord, KafkaSinkError, PartitionsChanged
from spark_kafka_sink.producer.delivery_report import DeliveryReport
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.dead_letter import Origin
from spark_kafka_sink.records.fingerprint import Fingerprint
from spark_kafka_sink.records.refusal import RefusedRecords
from spark_kafka_sink.transactions.ledger import (
    Decision,
    Entry,
    Sentinel,
    Task,
    check_replay,
    decide,
    entry_group,
    ledger_error,
    needs_all_entries,
    read_entry,
    read_sentinel,
    sentinel_group,
)
from spark_kafka_sink.transactions.offset_calls import Wait
from spark_kafka_sink.transactions.transaction import State, Transaction


@contextmanager
def exactly_once(options: SinkOptions, origin: Origin) -> Iterator[PartitionTransaction]:
    """Begin the task's transaction, unless the ledger says that it was committed before.

    Raises LedgerAhead, LedgerLost, PartitionsChanged, InvalidOption, and what Transaction raises.
    If the task fails, its transaction is aborted; our own errors then say so.
    """
    settings = options.exactly_once
    if settings is None:
        raise ValueError("delivery.guarantee is at-least-once")
    prefix = prefix_of(settings, origin.query_id)
    task = _task(settings, origin)
    transaction = Transaction(
        options.producer, entry_group(prefix, task.partition), settings.transaction_timeout_ms
    )
    try:
        yield PartitionTransaction(options, settings.ledger_topic, transaction, prefix, task)
    except KafkaSinkError as error:
        if transaction.state is State.OPEN:
            error.args = (
                f"{error}. No record of {task} becomes visible to read_committed readers by this "
                "attempt",
                *error.args[1:],
            )
        raise
    finally:
        transaction.close()


def prefix_of(settings: ExactlyOnceOptions, query_id: str | None) -> str:
    """The option, or a name made from the query's id. Raises InvalidOption if both are unknown."""
    if settings.prefix is not None:
        return settings.prefix
    if query_id is None:
        raise InvalidOption(
            "delivery.guarantee=exactly-once needs transactional.id.prefix here, because Spark "
            "does not tell the query's id; choose a name that no other query uses, and keep it"
        )
    return f"kafka-nb-{query_id}"


def _task(settings: ExactlyOnceOptions, origin: Origin) -> Task:
    if origin.batch_id is None or origin.task_partition is None:
        raise InvalidOption(
            "delivery.guarantee=exactly-once needs a streaming query that runs micro-batches: "
            "Spark tells no micro-batch's id here"
        )
    task = Task(
        int(origin.batch_id), origin.task_partition, settings.partitions, settings.first_batch
    )
    if task.partition >= task.partitions:
        raise PartitionsChanged(
            f"{task}: there are more Spark partitions than "
            f"exactly.once.partitions={task.partitions}. End the query with "
            f"repartition({task.partitions}, key)"
        )
    return task


class PartitionTransaction:
    """The transaction of one task; ``close`` commits it."""

    def __init__(
        self,
        options: SinkOptions,
        ledger_topic: str,
        transaction: Transaction,
        prefix: str,
        task: Task,
    ) -> None:
        self._transaction = transaction
        self._ledger_topic = ledger_topic
        self._group = entry_group(prefix, task.partition)
        self._prefix = prefix
        self._task = task
        self._fingerprint = Fingerprint()
        #: what an earlier attempt has committed of this micro-batch
        self._committed: Entry | None = None
        self._begin(options)

    def _begin(self, options: SinkOptions) -> None:
        budget = options.producer.budget
        wait = Wait(
            Deadline(budget.metadata_seconds),
            f"{budget.metadata_option}, {budget.metadata_seconds:g} s",
            f"{self._task}: reading the ledger {self._prefix}",
        )
        # In this order: an earlier attempt could commit between a look at the ledger and its end.
        self._transaction.initialize([options.topic or self._ledger_topic], wait)
        sentinel, entry, others = self._read_ledger(wait)
        decision = decide(self._task, sentinel, entry, others)
        if decision is Decision.VERIFY:
            self._committed = entry
        elif decision is Decision.SEND:
            self._transaction.begin()
        else:
            raise ledger_error(decision, self._task, sentinel, entry, self._prefix)

    def _read_ledger(self, wait: Wait) -> tuple[Sentinel | None, Entry | None, list[Entry]]:
        of_driver = sentinel_group(self._prefix)
        found = self._transaction.offsets([of_driver, self._group], self._ledger_topic, wait)
        sentinel = read_sentinel(found[of_driver], of_driver)
        entry = read_entry(found[self._group], self._group)
        if sentinel is None or not needs_all_entries(self._task, sentinel):
            return sentinel, entry, []
        number = max(sentinel.partitions, self._task.partitions)
        groups = [entry_group(self._prefix, partition) for partition in range(number)]
        all_found = self._transaction.offsets(groups, self._ledger_topic, wait)
        entries = [read_entry(committed, group) for group, committed in all_found.items()]
        return sentinel, entry, [each for each in entries if each is not None]

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch topics' metadata in the background."""
        if self._committed is None:
            self._transaction.producer.prefetch(topics)

    def send(self, records: RecordColumns) -> None:
        """Send records, or only look at them if they were committed before."""
        self._fingerprint.add(records)
        if self._committed is None:
            self._transaction.send(records)

    def send_dead_letters(self, refused: RefusedRecords) -> None:
        """There are none: options exclude them."""
        raise InvalidRecord(refused.reason)

    def close(self, timeout_seconds: float) -> DeliveryReport:
        """Commit the task: its records and its ledger entry; returns what was delivered.

        Of records that were committed before, it reports none. Raises ReplayDiffers if they were
        others, and what ``Transaction.commit`` raises.
        """
        rows, fingerprint = self._fingerprint.records, self._fingerprint.text()
        if self._committed is not None:
            check_replay(self._task, self._committed, rows, fingerprint)
            return DeliveryReport()
        entry = Entry(self._task.batch_id, self._task.partitions, rows, fingerprint)
        wait = Wait(
            Deadline(timeout_seconds),
            f"close.timeout.ms, {timeout_seconds:g} s",
            f"{self._task}: committing",
        )
        self._transaction.commit(
            self._group, self._ledger_topic, entry.to_offset(), wait, timeout_seconds
        )
        return self._transaction.producer.take_report()

"""[both] Writes one Spark partition exactly once; used like a borrowed producer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import FROM_DRIVER, ExactlyOnceOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption, KafkaSinkError, add_sentence
from spark_kafka_sink.librdkafka.client import release_freed_memory
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.fingerprint import Fingerprint
from spark_kafka_sink.records.rejection import Origin, RejectedRecords
from spark_kafka_sink.report.delivery_report import DeliveryReport, uncommitted
from spark_kafka_sink.transactions.claim import (
    LayoutClaim,
    layout_claim,
    ledger_reader,
    ledger_wait,
)
from spark_kafka_sink.transactions.ledger import (
    CommitEntry,
    Decision,
    Task,
    check_replay,
    commit_entry_group,
    prefix_of,
)
from spark_kafka_sink.transactions.offset_calls import BrokerWait, never
from spark_kafka_sink.transactions.transaction import Transaction, TransactionState

_log = logging.getLogger("spark_kafka_sink")


@contextmanager
def exactly_once(
    options: SinkOptions,
    settings: ExactlyOnceOptions,
    origin: Origin,
    is_woken: Callable[[], bool] = never,
) -> Iterator[PartitionTransaction]:
    """Begin the task's transaction, unless the ledger says that it was committed before.

    Raises LedgerAhead, LedgerLost, PartitionsChanged, InvalidOption, and what Transaction raises;
    InterruptedError if ``is_woken`` while it waits for the brokers.
    If the task fails, its transaction is aborted; our own errors then say so.
    """
    prefix = prefix_of(settings, origin.query_id)
    task = _task(settings, origin)
    release_freed_memory()  # of the previous task, as for a borrowed producer
    transaction, committed = _begin(options, settings, prefix, task, is_woken)
    sender = PartitionTransaction(transaction, prefix, settings.ledger_topic, task, committed)
    if committed is not None and committed.partitions == FROM_DRIVER:
        # A batch may have another one's id by mistake, and a checkpoint may have been restored.
        _log.warning("%s of %s was committed before: none of its rows are sent", task, prefix)
    try:
        transaction.producer.begin_task(origin)
        with process_cache().in_use(transaction.producer):
            yield sender
    except KafkaSinkError as error:
        if transaction.state is TransactionState.OPEN:
            outcome = f"This attempt made no record of {task} visible to read_committed readers"
            add_sentence(error, outcome)
        raise
    finally:
        state = transaction.state
        transaction.close()
        sender.collect_report(state)


def _task(settings: ExactlyOnceOptions, origin: Origin) -> Task:
    partition = 0 if settings.partitions == FROM_DRIVER else origin.task_partition
    if origin.batch_id is None or partition is None:
        raise InvalidOption(
            "delivery.guarantee=exactly-once needs a streaming query that runs micro-batches: "
            "Spark passes no id of a micro-batch here"
        )
    if settings.partitions is None:
        raise ValueError("foreach_batch has not set the number of partitions")
    return Task(
        int(origin.batch_id),
        partition,
        settings.partitions,
        settings.first_batch,
        origin.stage or "",
        settings.is_batch,
        (settings.partitions == FROM_DRIVER and origin.query_id) or "",
    )


def _begin(
    options: SinkOptions,
    settings: ExactlyOnceOptions,
    prefix: str,
    task: Task,
    is_woken: Callable[[], bool],
) -> tuple[Transaction, CommitEntry | None]:
    """The task's transaction, and what was committed before; claims the layout if necessary."""
    transactional_id = commit_entry_group(prefix, task.partition)
    # A claim fences the ids of the partitions that there were before. This task's may be one of
    # them, unless it takes it over after the claim.
    begins_after_claim = False
    claim: LayoutClaim | None = None
    with ExitStack() as stack:
        # The reader connects while the transaction is initialized.
        reader = stack.enter_context(ledger_reader(options, settings, prefix, task))
        while True:
            wait = ledger_wait(options, f"{task}: reading the ledger {prefix}")
            wait = replace(wait, is_woken=is_woken)
            transaction = Transaction(
                options.producer, transactional_id, settings.transaction_timeout_ms
            )
            try:
                # In this order, because an earlier attempt that is not fenced could commit after
                # the ledger is read.
                transaction.initialize([options.topic or settings.ledger_topic], wait)
                ledger = reader.read_or_assume_claim(wait)
                decision = ledger.decide_or_raise(task, prefix)
                if decision is Decision.VERIFY:
                    return transaction, ledger.entry
                if decision is Decision.SEND and (
                    begins_after_claim or not ledger.is_claimed(task)
                ):
                    transaction.begin()
                    return transaction, None
            except BaseException:
                transaction.close()
                raise
            # The next iteration creates another client.
            transaction.close()
            if decision is Decision.SEND:
                begins_after_claim = True
                continue
            if claim is None:
                claim = stack.enter_context(
                    layout_claim(options, settings, prefix, task, reader, is_woken)
                )
            begins_after_claim = claim.claim_or_wait(ledger)


class PartitionTransaction:
    """The transaction of one task, as its ``task.Sender``.

    ``committed``: the commit entry of an earlier attempt of this micro-batch. With it, rows are not
    sent, but only added to the fingerprint, and the report does not include them.
    """

    def __init__(
        self,
        transaction: Transaction,
        prefix: str,
        ledger_topic: str,
        task: Task,
        committed: CommitEntry | None,
    ) -> None:
        self._transaction = transaction
        self._group = commit_entry_group(prefix, task.partition)
        self._ledger_topic = ledger_topic
        self._task = task
        self._committed = committed
        self._fingerprint = Fingerprint()
        #: In a stream, rows are read even if none is sent: Spark's state and watermark need it.
        self.needs_rows = committed is None or not task.is_batch
        self.report = DeliveryReport(producers_created=1)

    def prefetch(self, topics: Iterable[str]) -> None:
        if self._committed is None:
            self._transaction.producer.prefetch(topics)

    def send(self, records: RecordColumns) -> None:
        self._fingerprint.add(records)
        if self._committed is None:
            self._transaction.send(records)

    def send_dead_letters(self, rejected: RejectedRecords) -> None:
        self._fingerprint.add_rejected(rejected)
        if self._committed is None:
            self._transaction.send_dead_letters(rejected)

    def close(self, timeout_seconds: float) -> None:
        """Commit the task: its records and its ledger entry.

        Raises ReplayDiffers if other records were committed before, or by the driver fewer of
        them, and what ``Transaction.commit`` raises.
        """
        rows, fingerprint = self._fingerprint.records, self._fingerprint.text()
        if self._committed is not None:
            check_replay(self._task, self._committed, rows, fingerprint)
            return
        task = self._task
        entry = CommitEntry(task.batch_id, task.partitions, rows, fingerprint, task.query_id)
        wait = BrokerWait(
            Deadline(timeout_seconds),
            f"close.timeout.ms, {timeout_seconds:g} s",
            f"{self._task}: committing",
        )
        self._transaction.flush(timeout_seconds)
        self._transaction.send_offset(self._group, self._ledger_topic, entry.to_offset(), wait)
        self._transaction.commit(wait)

    def wakeup(self) -> None:
        self._transaction.producer.wakeup()

    def collect_report(self, state: TransactionState) -> None:
        """Set ``report`` from the transaction's last state before it was closed."""
        if self._committed is not None:
            return
        report = replace(self._transaction.producer.collect_report(), producers_created=1)
        if state is not TransactionState.COMMITTED:
            report = uncommitted(report, is_aborted=state is not TransactionState.ENDED)
        self.report = report

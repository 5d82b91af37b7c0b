"""Ways to break the product in the streams' processes, by name; ``CHAOS_MUTANT`` chooses one.

Each is what a sink may do wrong. The product itself has no code for this.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

_RACE_SECONDS = 5.0
_COMMIT_SECONDS = 15.0


def drops_a_row(task) -> None:
    _change_first_batch(task, lambda batch: batch.slice(1))


def sends_a_row_twice(task) -> None:
    _change_first_batch(task, _repeat_first_row)


def counts_at_enqueue(task) -> None:
    """At-least-once: a task is done when its records are in the client's queue."""
    from spark_kafka_sink.producer import cache
    from spark_kafka_sink.report.delivery_report import DeliveryReport

    cache.BorrowedProducer.close = lambda self, seconds: DeliveryReport()


def has_no_ledger(task) -> None:
    """Exactly-once: what was committed before is written again."""
    from spark_kafka_sink.transactions.ledger import Decision, Ledger

    Ledger.decide = lambda *_: Decision.SEND


def reads_ledger_first(task) -> None:
    """Exactly-once: an earlier attempt may commit between the look at the ledger and its end."""
    from spark_kafka_sink.deadline import Deadline
    from spark_kafka_sink.transactions.claim import LedgerReader
    from spark_kafka_sink.transactions.offset_calls import BrokerWait

    begin, look = LedgerReader.__init__, LedgerReader.read_or_assume_claim

    def begin_wrongly(reader, *args):
        begin(reader, *args)
        reader.too_early = [
            look(reader, BrokerWait(Deadline(_RACE_SECONDS), "", "reading too early"))
        ]
        time.sleep(_RACE_SECONDS)

    LedgerReader.__init__ = begin_wrongly
    LedgerReader.read_or_assume_claim = lambda reader, wait: (
        reader.too_early.pop() if reader.too_early else look(reader, wait)
    )


def skips_the_wrong_micro_batch(task) -> None:
    """Exactly-once: a micro-batch that the ledger does not have is taken for written."""
    from spark_kafka_sink.transactions import partition
    from spark_kafka_sink.transactions.ledger import Decision, Ledger

    decide = Ledger.decide

    def decide_wrongly(ledger, task):
        is_next = ledger.entry is not None and ledger.entry.batch_id < task.batch_id
        if is_next and task.batch_id % 5 == 4:
            return Decision.VERIFY
        return decide(ledger, task)

    Ledger.decide = decide_wrongly
    partition.check_replay = lambda *_: None


def does_not_look_at_the_end(task) -> None:
    """Exactly-once: rows that end because Spark's side has failed are taken for all rows."""
    task.require_end_of_rows = lambda: None


def does_not_claim(task) -> None:
    """Exactly-once: a task sends without asking with how many others its micro-batch was begun."""
    from spark_kafka_sink.transactions.ledger import Decision, Ledger

    decide = Ledger.decide

    def decide_wrongly(ledger, task):
        decision = decide(ledger, task)
        return Decision.SEND if decision is Decision.CLAIM else decision

    Ledger.decide = decide_wrongly


def driver_skips_the_ledger(task) -> None:
    """Exactly-once from the driver: what was committed before is written again."""
    from spark_kafka_sink.transactions.ledger import Decision, Ledger

    decide = Ledger.decide
    Ledger.decide = lambda ledger, task: (
        Decision.SEND if _is_from_driver(task) else decide(ledger, task)
    )


def driver_believes_a_cached_entry(task) -> None:
    """Exactly-once from the driver: what it began to send is taken for committed."""
    from spark_kafka_sink.transactions.ledger import Decision, Ledger

    decide = Ledger.decide
    begun: set[int] = set()

    def decide_wrongly(ledger, task):
        if not _is_from_driver(task):
            return decide(ledger, task)
        if task.batch_id in begun:
            return Decision.VERIFY
        decision = decide(ledger, task)
        if decision is Decision.SEND:
            begun.add(task.batch_id)
        return decision

    Ledger.decide = decide_wrongly


def driver_commits_before_the_end(task) -> None:
    """Exactly-once from the driver: the first rows are committed before the others are sent."""
    from spark_kafka_sink.deadline import Deadline
    from spark_kafka_sink.transactions.offset_calls import BrokerWait
    from spark_kafka_sink.transactions.partition import PartitionTransaction

    send = PartitionTransaction.send

    def send_wrongly(sender, records):
        send(sender, records)
        if _is_from_driver(sender._task) and not hasattr(sender, "has_committed"):
            sender.has_committed = True
            transaction = sender._transaction
            transaction.flush(_COMMIT_SECONDS)
            transaction.commit(BrokerWait(Deadline(_COMMIT_SECONDS), "", "committing too early"))
            transaction.begin()

    PartitionTransaction.send = send_wrongly


#: those of streams that are sent from the driver alone
DRIVER_MUTANTS: dict[str, Callable[[object], None]] = {
    mutant.__name__: mutant
    for mutant in (
        driver_skips_the_ledger,
        driver_believes_a_cached_entry,
        driver_commits_before_the_end,
    )
}

MUTANTS: dict[str, Callable[[object], None]] = DRIVER_MUTANTS | {
    mutant.__name__: mutant
    for mutant in (
        drops_a_row,
        sends_a_row_twice,
        counts_at_enqueue,
        has_no_ledger,
        reads_ledger_first,
        skips_the_wrong_micro_batch,
        does_not_look_at_the_end,
        does_not_claim,
    )
}


def _is_from_driver(task) -> bool:
    from spark_kafka_sink.config.producer_options import FROM_DRIVER

    return task.partitions == FROM_DRIVER


def _change_first_batch(task, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    """The first Arrow batch of every task is another one."""
    write_partition = task.write_partition

    def write(batches, options, serializer=None):
        changed = (change(b) if n == 0 else b for n, b in enumerate(batches))
        return write_partition(changed, options, serializer)

    task.write_partition = write


def _repeat_first_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    table = pa.Table.from_batches([batch, batch.slice(0, 1)])
    return table.combine_chunks().to_batches()[0]

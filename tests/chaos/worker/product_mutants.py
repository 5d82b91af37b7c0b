"""Ways to break the product in the streams' workers, by name; ``CHAOS_MUTANT`` chooses one.

Each is what a sink may do wrong. The product itself has no code for this.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

_RACE_SECONDS = 5.0


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


MUTANTS: dict[str, Callable[[object], None]] = {
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

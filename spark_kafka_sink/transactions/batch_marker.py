"""[driver] Marks a micro-batch as complete when all of its tasks have committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LedgerAhead, PartitionsChanged, ReplayDiffers
from spark_kafka_sink.transactions.ledger import (
    BatchMarker,
    commit_entry_group,
    marker_group,
    read_batch_marker,
    read_commit_entry,
)
from spark_kafka_sink.transactions.offset_calls import (
    BrokerWait,
    borrow_offset,
    in_parts,
    never,
    read_offsets,
)


def write(
    options: SinkOptions,
    settings: ExactlyOnceOptions,
    prefix: str,
    batch_id: int,
    tasks: int,
    is_woken: Callable[[], bool] = never,
) -> None:
    """Write the batch marker, before Spark records the micro-batch as done.

    A micro-batch without rows may have fewer tasks than the option says, or none, because Spark
    leaves out what it knows to be empty. Such a micro-batch is marked with 0 partitions.

    Raises PartitionsChanged, after writing the marker, if a micro-batch with rows had another
    number of tasks than the option says; ReplayDiffers if it has none now, but an earlier attempt
    committed rows; LedgerAhead if a later micro-batch is marked, LedgerLost, TransactionFailed or
    DeadlineExceeded; InterruptedError if ``is_woken`` between two requests.
    """
    seconds = options.values[table.CLOSE_TIMEOUT_MS] / 1000
    wait = BrokerWait(
        Deadline(seconds),
        f"close.timeout.ms, {seconds:g} s",
        f"micro-batch {batch_id}: marking it as complete in the ledger {prefix}",
        is_woken,
    )
    group = marker_group(prefix)
    expected = settings.partitions or tasks
    with borrow_offset(options, settings.ledger_topic, group) as offset:
        before = read_batch_marker(offset.read(wait), group)
        if before is not None and before.batch_id > batch_id:
            raise LedgerAhead(
                f"micro-batch {batch_id}: meanwhile, micro-batch {before.batch_id} was marked as "
                f"complete in the ledger {prefix}. If another driver has replaced this one, there "
                "is nothing to do. Otherwise two queries use the same "
                "transactional.id.prefix or checkpoint: stop one of them"
            )
        if tasks == expected:
            offset.write(BatchMarker(batch_id, tasks).to_offset(), wait)
            return
        most = max(tasks, expected)
        committed: dict[int, int] = {}
        for part in in_parts([*range(most)]):
            committed |= _committed_rows(options, settings, prefix, batch_id, part, wait)
            wait = replace(wait, deadline=Deadline(seconds))  # for each step, as in a claim
        rows = sum(committed.values())
        if rows and not tasks:
            raise ReplayDiffers(
                f"micro-batch {batch_id} has no rows, but an earlier attempt has committed {rows}. "
                "Make the query deterministic. To continue, restore the former query until this "
                "micro-batch is complete; or keep those rows, and set a new "
                f"transactional.id.prefix and exactly.once.first.batch={batch_id}"
            )
        offset.write(BatchMarker(batch_id, tasks if rows else 0).to_offset(), wait)
    if not rows:
        return
    if any(partition >= tasks for partition in committed):
        state = (
            "An earlier attempt had more of them and committed some, so rows may be duplicated. "
            "The query has no number in its repartition: end it with "
            f"repartition({expected}, key)"
        )
    else:
        state = (
            f"It is in Kafka, and nothing is sent twice. To have {expected} from the next one on, "
            f"end the query with repartition({expected}, key); if it ends so, Spark has combined "
            "partitions: set spark.sql.adaptive.coalescePartitions.enabled=false"
        )
    raise PartitionsChanged(
        f"micro-batch {batch_id} had {tasks} Spark partitions, and "
        f"exactly.once.partitions={expected}. {state}. But first set "
        f"exactly.once.partitions={tasks} and start the query as it is, so that Spark records this "
        "micro-batch as done"
    )


def _committed_rows(
    options: SinkOptions,
    settings: ExactlyOnceOptions,
    prefix: str,
    batch_id: int,
    partitions: Iterable[int],
    wait: BrokerWait,
) -> dict[int, int]:
    """How many rows of a micro-batch each of these partitions has committed."""
    groups = {commit_entry_group(prefix, partition): partition for partition in partitions}
    offsets = read_offsets(options.producer.client, settings.ledger_topic, list(groups), wait)
    entries = {groups[group]: read_commit_entry(at, group) for group, at in offsets.items()}
    return {
        partition: entry.rows
        for partition, entry in entries.items()
        if entry is not None and entry.batch_id == batch_id
    }

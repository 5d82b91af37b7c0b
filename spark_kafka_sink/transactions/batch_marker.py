"""Marks a micro-batch as complete, on the driver, when all of its tasks have committed."""

from __future__ import annotations

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LedgerAhead, PartitionsChanged
from spark_kafka_sink.transactions.ledger import (
    BatchMarker,
    commit_entry_group,
    marker_group,
    read_batch_marker,
    read_commit_entry,
)
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset, read_offsets


def write(
    options: SinkOptions, settings: ExactlyOnceOptions, prefix: str, batch_id: int, tasks: int
) -> None:
    """Write the batch marker, before Spark records the micro-batch as done.

    Raises PartitionsChanged, after writing it, if the micro-batch had another number of tasks than
    the option says; LedgerAhead if a later micro-batch is marked, LedgerLost, TransactionFailed or
    DeadlineExceeded.
    """
    seconds = options.close_timeout_ms / 1000
    wait = BrokerWait(
        Deadline(seconds),
        f"close.timeout.ms, {seconds:g} s",
        f"micro-batch {batch_id}: marking it as complete in the ledger {prefix}",
    )
    group = marker_group(prefix)
    with GroupOffset(options.producer.client, settings.ledger_topic, group) as offset:
        before = read_batch_marker(offset.read(wait), group)
        if before is not None and before.batch_id > batch_id:
            raise LedgerAhead(
                f"micro-batch {batch_id}: meanwhile, micro-batch {before.batch_id} was marked as "
                f"complete in the ledger {prefix}. If another driver has replaced this one, there "
                "is nothing to do. Otherwise two queries use the same "
                "transactional.id.prefix or checkpoint: stop one of them"
            )
        offset.write(BatchMarker(batch_id, tasks).to_offset(), wait)
    expected = settings.partitions or tasks
    if tasks == expected:
        return
    groups = [commit_entry_group(prefix, partition) for partition in range(tasks, expected)]
    others = read_offsets(options.producer.client, settings.ledger_topic, groups, wait)
    entries = [read_commit_entry(committed, group) for group, committed in others.items()]
    if any(entry is not None and entry.batch_id == batch_id for entry in entries):
        state = (
            "An earlier attempt had more of them and committed some, so rows may be duplicated. "
            "The query has no number in its repartition: end it with "
            f"repartition({expected}, key)"
        )
    else:
        state = (
            f"It is in Kafka, and nothing is sent twice. To have {expected} from now on, end the "
            f"query with repartition({expected}, key)"
        )
    raise PartitionsChanged(
        f"micro-batch {batch_id} had {tasks} Spark partitions, and "
        f"exactly.once.partitions={expected}. {state}. But first set "
        f"exactly.once.partitions={tasks} and start the query as it is, so that Spark records this "
        "micro-batch as done"
    )

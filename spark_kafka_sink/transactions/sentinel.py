"""Seals a micro-batch on the driver, when all of its tasks have committed."""

from __future__ import annotations

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LedgerAhead, PartitionsChanged
from spark_kafka_sink.transactions.ledger import Sentinel, read_sentinel, sentinel_group
from spark_kafka_sink.transactions.offset_calls import GroupOffset, Wait


def seal(
    options: SinkOptions, settings: ExactlyOnceOptions, prefix: str, batch_id: int, tasks: int
) -> None:
    """Write the sentinel, before Spark records the micro-batch as done.

    Raises PartitionsChanged if the micro-batch had another number of tasks than the option says,
    after it was sealed with that number; LedgerAhead if a later micro-batch is sealed,
    TransactionFailed or DeadlineExceeded.
    """
    seconds = options.close_timeout_ms / 1000
    wait = Wait(
        Deadline(seconds),
        f"close.timeout.ms, {seconds:g} s",
        f"micro-batch {batch_id}: sealing the ledger {prefix}",
    )
    group = sentinel_group(prefix)
    with GroupOffset(options.producer.client, settings.ledger_topic, group) as offset:
        before = read_sentinel(offset.read(wait), group)
        if before is not None and before.batch_id > batch_id:
            raise LedgerAhead(
                f"micro-batch {batch_id}: the ledger {prefix} has sealed micro-batch "
                f"{before.batch_id} meanwhile. Two queries use the same transactional.id.prefix or "
                "checkpoint: stop one of them"
            )
        offset.write(Sentinel(batch_id, tasks).to_offset(), wait)
    if tasks != settings.partitions:
        raise PartitionsChanged(
            f"micro-batch {batch_id} had {tasks} Spark partitions, and "
            f"exactly.once.partitions={settings.partitions}. It is in Kafka. Set "
            f"exactly.once.partitions={tasks}, and start the query again: it sends nothing twice. "
            f"To have {settings.partitions} later, change the option when no micro-batch is "
            f"incomplete, together with a repartition({settings.partitions}, key) at the end of "
            "the query"
        )

"""The brokers' state of a query's transactions and of its ledger, at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.transactions.ledger import (
    BatchMarker,
    CommitEntry,
    Layout,
    commit_entry_group,
    layout_group,
    marker_group,
    read_batch_marker,
    read_commit_entry,
    read_layout,
)

#: as DescribeTransactions names them: an end that has begun completes by itself
_OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, order=True)
class Partition:
    """A partition of a topic."""

    topic: str
    number: int

    @property
    def is_internal(self) -> bool:
        """Whether it is one of ``__consumer_offsets``: the ledger."""
        return self.topic.startswith("__")


@dataclass(frozen=True)
class TransactionalId:
    """A transactional id, as its coordinator describes it (KIP-664).

    ``started_at``: of its open transaction, by the brokers' clock, in seconds since the epoch.
    ``partitions``: those that the transaction has written to.
    """

    name: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at: float | None
    partitions: tuple[Partition, ...]

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN_STATES


@dataclass(frozen=True)
class ActiveProducer:
    """A producer with an open transaction in a partition, as the partition's leader knows it."""

    producer_id: int
    producer_epoch: int
    first_offset: int


@dataclass(frozen=True)
class BlockedPartition:
    """A partition's offsets; ``oldest``: the producer that blocks consumers, if any.

    ``stable_offset``: the end for a consumer with isolation.level=read_committed.
    """

    partition: Partition
    stable_offset: int
    high_watermark: int
    oldest: ActiveProducer | None


@dataclass(frozen=True)
class LedgerRow:
    """A group of the ledger, and the topic for whose partition 0 it has an offset."""

    group: str
    topic: str
    committed: BatchMarker | Layout | CommitEntry


def belongs_to(transactional_id: str, prefix: str) -> bool:
    """Whether the query with that prefix uses the id: of a Spark partition, or of the layout."""
    found, _, number = transactional_id.rpartition(".")
    is_of_partition = found == prefix and number.isdecimal()
    return is_of_partition or transactional_id == layout_group(prefix)


def in_order(ids: Iterable[TransactionalId]) -> list[TransactionalId]:
    """By query, then by number of the Spark partition."""

    def key(each: TransactionalId) -> tuple[str, int, str]:
        prefix, _, number = each.name.rpartition(".")
        return prefix, int(number) if number.isdecimal() else -1, each.name

    return sorted(ids, key=key)


def ledger_groups(prefix: str, partitions: int) -> list[str]:
    entries = (commit_entry_group(prefix, each) for each in range(partitions))
    return [marker_group(prefix), layout_group(prefix), *entries]


def ledger_rows(
    prefix: str, offsets: Mapping[str, Mapping[Partition, CommittedOffset]]
) -> list[LedgerRow]:
    """From the groups' offsets by partition; raises LedgerLost if the sink did not write one."""
    readers: dict[
        str, Callable[[CommittedOffset, str], BatchMarker | Layout | CommitEntry | None]
    ] = {
        marker_group(prefix): read_batch_marker,
        layout_group(prefix): read_layout,
    }
    rows = []
    for group, by_partition in offsets.items():
        read = readers.get(group, read_commit_entry)
        for partition, committed in sorted(by_partition.items()):
            found = read(committed, group)
            if found is not None:
                rows.append(LedgerRow(group, partition.topic, found))
    return rows

"""Transactions, blocked partitions and the ledger as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_kafka_sink.tools.transactions.state import BlockedPartition, LedgerRow, TransactionalId
from spark_kafka_sink.transactions.ledger import CommitEntry


def transactions(ids: Sequence[TransactionalId], now: float) -> RenderableType:
    """A row per transactional id; ``now`` in seconds since the epoch."""
    table = Table("transactional id", "state", "open for", "time-out", "producer id", "epoch")
    table.add_column("partitions")
    for column in table.columns[2:6]:
        column.justify = "right"
    for each in ids:
        age = "" if each.started_at is None else duration(max(0.0, now - each.started_at))
        table.add_row(
            Text(each.name),
            Text(each.state, "bold" if each.is_open else ""),
            age if each.is_open else "",
            duration(each.timeout_ms / 1000),
            str(each.producer_id),
            str(each.producer_epoch),
            Text(_partitions(each) if each.is_open else ""),
        )
    return table


def blocked(partitions: Sequence[BlockedPartition], names: Mapping[int, str]) -> RenderableType:
    """A row per partition; ``names``: the known transactional ids, by producer id."""
    table = Table("topic", "partition", "last stable offset", "high watermark", "blocked")
    table.add_column("blocked by")
    for column in table.columns[1:5]:
        column.justify = "right"
    for each in partitions:
        waiting = each.high_watermark - each.stable_offset
        table.add_row(
            Text(each.partition.topic),
            str(each.partition.number),
            f"{each.stable_offset:,}",
            f"{each.high_watermark:,}",
            Text(f"{waiting:,}", "red" if waiting else ""),
            Text(_blocking_producer(each, names) if waiting else ""),
        )
    return Group(Text("Partitions in which read_committed consumers are blocked", "bold"), table)


def ledger(prefix: str, rows: Sequence[LedgerRow]) -> RenderableType:
    if not rows:
        return Text(f"Ledger {prefix}: none of its consumer groups has an offset")
    table = Table("group", "micro-batch", "partitions", "rows", "fingerprint", "for partition 0 of")
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in rows:
        committed = row.committed
        entry = committed if isinstance(committed, CommitEntry) else None
        table.add_row(
            Text(row.group),
            str(committed.batch_id),
            str(committed.partitions),
            f"{entry.rows:,}" if entry else "",
            Text(entry.fingerprint if entry else ""),
            Text(row.topic),
        )
    return Group(Text(f"Ledger {prefix}: what is committed", "bold"), table)


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    if seconds < 10 and not seconds.is_integer():
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (0 if hours else rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def _partitions(transaction: TransactionalId) -> str:
    by_topic: dict[str, list[str]] = {}
    for each in transaction.partitions:
        by_topic.setdefault(each.topic, []).append(str(each.number))
    return "; ".join(f"{topic} {', '.join(numbers)}" for topic, numbers in by_topic.items())


def _blocking_producer(blocked: BlockedPartition, names: Mapping[int, str]) -> str:
    if blocked.oldest is None:
        return "a transaction that has just ended"
    name = names.get(blocked.oldest.producer_id, "an unknown id")
    return f"{name} (producer {blocked.oldest.producer_id}, epoch {blocked.oldest.producer_epoch})"

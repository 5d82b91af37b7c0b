"""Which times of options are parts of others; the only table, also for docs/operations.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.options import SinkOptions

REQUEST = "kafka.request.timeout.ms"
# What the client itself waits for an answer. In Java the option above is that time.
_CLIENTS_NAMES = {REQUEST: "socket.timeout.ms"}


@dataclass(frozen=True)
class Nested:
    """``times`` of ``part`` must be less than ``whole``: both are names of options."""

    part: str
    times: int
    whole: str
    why: str

    def is_kept(self, options: SinkOptions) -> bool:
        part, whole = seconds(self.part, options), seconds(self.whole, options)
        return part is None or whole is None or self.times * part < whole


NESTED = (
    Nested(REQUEST, 2, "close.timeout.ms", "two connections may have fallen silent"),
    Nested(REQUEST, 2, "kafka.max.block.ms", "the same while metadata or the ledger is requested"),
    Nested(REQUEST, 2, "kafka.delivery.timeout.ms", "a record is sent again before it fails"),
    Nested(
        "kafka.socket.connection.setup.timeout.ms",
        3,
        "close.timeout.ms",
        "a task has up to three connections, and each may try a dead address first",
    ),
    Nested(
        "kafka.socket.connection.setup.timeout.ms",
        3,
        "kafka.broker.address.ttl",
        "the client tries the addresses of a name in turn until it looks the name up again",
    ),
    Nested(
        "kafka.socket.connection.setup.timeout.ms",
        1,
        REQUEST,
        "the first request of a connection waits no longer than any other",
    ),
    Nested(
        "kafka.reconnect.backoff.max.ms",
        2,
        "close.timeout.ms",
        "a broker that is back is noticed only after this pause",
    ),
    Nested(
        "close.timeout.ms",
        1,
        "kafka.transaction.timeout.ms",
        "the brokers abort a transaction after its time, also while it is committed",
    ),
    Nested(
        "kafka.max.block.ms",
        1,
        "kafka.transaction.timeout.ms",
        "the same while a send waits for room",
    ),
)


def seconds(name: str, options: SinkOptions) -> float | None:
    """The time of an option of the sink or the client; None if it does not apply, or is 0."""
    if name == table.TRANSACTION_TIMEOUT_MS.name and options.exactly_once is None:
        return None
    value = options.values.by_name.get(name)
    if value is None:
        client = options.producer.client
        value = client.get(_CLIENTS_NAMES.get(name, name.removeprefix(PREFIX)))
    return None if value is None else float(str(value)) / 1000 or None


def unfitting(options: SinkOptions) -> Iterator[str]:
    """A sentence about each part that does not fit into its whole."""
    for row in NESTED:
        if not row.is_kept(options):
            many = f"{row.times} times " if row.times > 1 else ""
            yield (
                f"{many}{row.part} ({seconds(row.part, options):g} s) must be less than "
                f"{row.whole} ({seconds(row.whole, options):g} s): {row.why}"
            )

"""The streams of a run: every kind of query, each to a topic of its own. Their fixed sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fault_schedule import TRANSACTION_TIMEOUT_SECONDS

ROWS_PER_BATCH = 252
KEYS = 12
#: so a Spark partition has 5 to 26 Arrow batches, of which the last one is not full
ROWS_PER_ARROW_BATCH = 10
#: the number of Spark partitions that a stream begins with, and those that it may change to
SPARK_PARTITIONS = 2
LAYOUTS = (1, 2, 3)
TOPIC_PARTITIONS = 3

#: of streams with dead letters, rows with these numbers modulo 100 name a partition that the topic
#: does not have: one is no record, and one is a record that metadata rejects
BAD_PARTITIONS = {7: -1, 57: TOPIC_PARTITIONS}

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
FORMAT, FOREACH_BATCH = "format", "foreach-batch"
#: foreach_batch with ``send.from=driver``
FROM_DRIVER = "from-driver"

# A task waits for metadata or room, then for acknowledgements.
_BLOCK_SECONDS, _CLOSE_SECONDS = 15, 15
#: what an attempt may take in all on a very busy machine
ATTEMPT_SECONDS = _BLOCK_SECONDS + _CLOSE_SECONDS + 30.0
# Of Spark after a kill until its first tasks run, on a very busy machine; a broker needs less.
_RESTART_SECONDS = 60.0
#: So long after the last fault, a stream has acknowledged rows: the attempt that hangs since then
#: has used up its waits, and its query, with Spark if need be, has started again.
RECOVERY_SECONDS = ATTEMPT_SECONDS + _RESTART_SECONDS


@dataclass(frozen=True)
class QueryKind:
    api: str
    guarantee: str

    @property
    def topic(self) -> str:
        """Also the name of the stream."""
        return f"{self.api}-{self.guarantee}"

    @property
    def dead_letter_topic(self) -> str | None:
        return f"{self.topic}-dead-letters" if self.guarantee == EXACTLY_ONCE else None

    @property
    def has_many_arrow_batches(self) -> bool:
        """Or one per Spark partition."""
        return self.guarantee == EXACTLY_ONCE or self.api == FORMAT

    @property
    def has_tasks(self) -> bool:
        """Or the driver sends all rows of a micro-batch."""
        return self.api != FROM_DRIVER

    @property
    def has_layouts(self) -> bool:
        """Whether it matters how many Spark partitions a micro-batch has."""
        return self.guarantee == EXACTLY_ONCE and self.has_tasks

    def options(self, bootstrap_servers: str, partitions: int, folder: Path) -> dict[str, str]:
        """``partitions``: of Spark. ``folder``: of the run, for the reports of micro-batches."""
        options = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "topic": self.topic,
            "kafka.max.block.ms": str(1000 * _BLOCK_SECONDS),
            "close.timeout.ms": str(1000 * _CLOSE_SECONDS),
            "report.path": str(folder / "reports" / self.topic),
            # A paused broker is noticed before the task gives up.
            "kafka.request.timeout.ms": "4000",
            "kafka.reconnect.backoff.max.ms": "500",
            # Several requests for a partition are in flight at a time.
            "kafka.batch.num.messages": "16",
        }
        if self.guarantee == EXACTLY_ONCE:
            options |= {
                "delivery.guarantee": EXACTLY_ONCE,
                "transactional.id.prefix": self.topic,
                "kafka.transaction.timeout.ms": str(int(1000 * TRANSACTION_TIMEOUT_SECONDS)),
            }
        if self.has_layouts:
            options["exactly.once.partitions"] = str(partitions)
        if not self.has_tasks:
            options["send.from"] = "driver"
        if self.dead_letter_topic is not None:
            options |= {
                "on.record.error": "dead-letter",
                "dead.letter.topic": self.dead_letter_topic,
            }
        return options


QUERY_KINDS = tuple(
    QueryKind(api, guarantee)
    for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE)
    for api in (FORMAT, FOREACH_BATCH, FROM_DRIVER)
)
#: those whose rows are sent by Python workers
KINDS_WITH_TASKS = tuple(kind for kind in QUERY_KINDS if kind.has_tasks)
KINDS_WITH_LAYOUTS = tuple(kind for kind in QUERY_KINDS if kind.has_layouts)

TOPICS = [topic for kind in QUERY_KINDS for topic in (kind.topic, kind.dead_letter_topic) if topic]


def transactional_id(topic: str, spark_partition: int) -> str:
    """Also the name of the consumer group that is the partition's ledger.

    Of a stream without tasks, there is only that of 0.
    """
    return f"{topic}.{spark_partition}"


def marker_group(topic: str) -> str:
    return f"{topic}.driver"

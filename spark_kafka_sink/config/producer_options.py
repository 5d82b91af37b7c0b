"""[both] What a producer is built from: client settings, buffer size, budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Approximate memory of a queued record in librdkafka in addition to its value. Counting it bounds
#: the number of small records.
BYTES_PER_RECORD = 256

#: Brokers that create topics need less. After that, a topic that they do not know is missing, and
#: its records become dead letters.
MISSING_TOPIC_SECONDS = 5.0

#: the option behind ``ClientSettings.max_request_bytes``, for error messages
MAX_REQUEST_SIZE = "kafka.max.request.size"


#: In the place of a number of Spark partitions: the driver writes the whole micro-batch, in one
#: transaction, the one of partition 0.
FROM_DRIVER = -1


@dataclass(frozen=True)
class ClientSettings(Mapping[str, str]):
    """Checked librdkafka settings: hashable, picklable, without secrets in the repr.

    ``oauth_callback``: the option of that name, the function that makes tokens; or "".
    ``trust_option``: the one that says whom to trust, for messages; or "".
    """

    pairs: tuple[tuple[str, str], ...]
    oauth_callback: str = ""
    trust_option: str = ""

    def __getitem__(self, name: str) -> str:
        for known, value in self.pairs:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def max_request_bytes(self) -> int:
        """The largest record that the sink sends."""
        return int(self["message.max.bytes"])

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch of several records, uncompressed; librdkafka obeys both settings."""
        return min(int(self["batch.size"]), self.max_request_bytes)

    @property
    def compresses(self) -> bool:
        """Whether batches may be smaller than their records."""
        return self.get("compression.type", "none") != "none"


@dataclass(frozen=True)
class BlockBudget:
    """How long a send may wait, for room in the buffer and for a topic's metadata.

    KIP-912 contradicts itself on the default of ``includes_metadata``. Its prose and the option's
    name suggest True: one budget for both waits, as in producers without the KIP. KIP-286 expects a
    send with ``max_block_ms=0`` to buffer anyway, so 0 bounds only the wait for room.
    """

    max_block_ms: int
    includes_metadata: bool
    max_block_metadata_ms: int

    @property
    def is_shared(self) -> bool:
        """Whether ``max_block_ms`` bounds the wait for metadata too."""
        return self.includes_metadata and self.max_block_ms > 0

    @property
    def buffer_seconds(self) -> float:
        """How long a send may wait while the buffer is full and no record is acknowledged."""
        return self.max_block_ms / 1000

    @property
    def metadata_seconds(self) -> float:
        """How long a topic's records may wait for its metadata, from the first one buffered."""
        return (self.max_block_ms if self.is_shared else self.max_block_metadata_ms) / 1000

    @property
    def metadata_option(self) -> str:
        """The option that sets ``metadata_seconds``, for error messages."""
        return "kafka.max.block.ms" if self.is_shared else "kafka.max.block.metadata.ms"


@dataclass(frozen=True)
class MetadataLifetime:
    """How long metadata is kept (KIP-526)."""

    max_age_ms: int
    evict_ms: int

    @property
    def max_age_seconds(self) -> float:
        """The age at which metadata is fetched again."""
        return self.max_age_ms / 1000

    @property
    def evict_seconds(self) -> float:
        """How long a topic without new records is kept."""
        return self.evict_ms / 1000


@dataclass(frozen=True)
class RackOptions:
    """Where a producer is: the name of its rack, or the environment variable that contains it.

    ``is_preferred``: records without a key go to leaders in that rack (KIP-1123).
    """

    name: str | None
    variable: str | None
    is_preferred: bool


@dataclass(frozen=True)
class ProducerOptions:
    """What distinguishes producers: tasks with equal options share one."""

    client: ClientSettings
    buffer_memory_bytes: int
    budget: BlockBudget
    lifetime: MetadataLifetime
    #: None: a rejected record fails its task
    dead_letter_topic: str | None = None
    rack: RackOptions | None = None

    @property
    def is_transactional(self) -> bool:
        return "transactional.id" in self.client

    @property
    def needs_limits(self) -> bool:
        """Whether records wait until it is known what their topic's brokers reject.

        Such records become dead letters without being sent, and a transaction does not survive a
        batch that is rejected.
        """
        return self.is_transactional or self.dead_letter_topic is not None


@dataclass(frozen=True)
class ExactlyOnceOptions:
    """``delivery.guarantee=exactly-once``, and what it needs.

    ``partitions``: of every micro-batch, or FROM_DRIVER; None: ``foreach_batch`` sets it when it
    repartitions a micro-batch. ``prefix`` None: made from the query's id. ``first_batch``: the
    micro-batch that needs no ledger of earlier ones. ``is_batch``: not of a query, so that ids of
    micro-batches only have to grow.
    """

    partitions: int | None
    prefix: str | None
    ledger_topic: str
    first_batch: int
    transaction_timeout_ms: int
    is_batch: bool = False

"""How long a send may wait, for room in the buffer and for a topic's metadata (KIP-912)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_kafka_sink.config.client_settings import ClientSettings

#: What every buffered record costs librdkafka beside its value, so that the number of small records
#: is bounded too.
BYTES_PER_RECORD = 256


@dataclass(frozen=True)
class BlockBudget:
    """``max.block.ms`` and what may be spent beside it.

    The KIP contradicts itself on the default of ``includes_metadata``; after its prose and the
    option's name, True is what producers do without the KIP: one budget for both waits.
    """

    max_block_ms: int = 60_000
    includes_metadata: bool = True
    max_block_metadata_ms: int = 60_000

    @property
    def buffer_seconds(self) -> float:
        """How long a send may wait while the buffer is full and nothing leaves it."""
        return self.max_block_ms / 1000

    @property
    def metadata_seconds(self) -> float:
        """How long a topic's rows may wait, from the first one buffered, for its metadata."""
        milliseconds = self.max_block_ms if self.includes_metadata else self.max_block_metadata_ms
        return milliseconds / 1000

    @property
    def metadata_option(self) -> str:
        """The option that sets ``metadata_seconds``, for messages."""
        name = "max.block.ms" if self.includes_metadata else "max.block.metadata.ms"
        return f"kafka.{name}"


@dataclass(frozen=True)
class MetadataLifetime:
    """``metadata.max.age.ms`` and ``metadata.evict.ms`` (Java: ``metadata.max.idle.ms``)."""

    max_age_ms: int = 300_000
    evict_ms: int = 300_000

    @property
    def max_age_seconds(self) -> float:
        """When metadata is to be fetched again."""
        return self.max_age_ms / 1000

    @property
    def evict_seconds(self) -> float:
        """When a topic is forgotten that got no rows."""
        return self.evict_ms / 1000


@dataclass(frozen=True)
class ProducerOptions:
    """What tells producers apart: tasks whose options are equal share one."""

    client: ClientSettings
    buffer_memory_bytes: int
    budget: BlockBudget
    lifetime: MetadataLifetime

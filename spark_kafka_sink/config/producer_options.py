"""What a producer is made from: its client's settings, its buffer, its budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Roughly what each record in the queue costs librdkafka beside its value: so that small records
#: are bounded by their number.
BYTES_PER_RECORD = 256


@dataclass(frozen=True)
class ClientSettings(Mapping[str, str]):
    """Checked librdkafka settings: hashable, picklable, shows no secret in its repr."""

    pairs: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str:
        for known, value in self.pairs:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True)
class BlockBudget:
    """``max.block.ms`` and what may be spent beside it.

    The KIP contradicts itself on the default of ``includes_metadata``; after its prose and the
    option's name, True is what producers do without the KIP: one budget for both waits.
    """

    max_block_ms: int
    includes_metadata: bool
    max_block_metadata_ms: int

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

    max_age_ms: int
    evict_ms: int

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
    """What makes one producer unlike another: tasks for which they are equal use the same one."""

    client: ClientSettings
    buffer_memory_bytes: int
    budget: BlockBudget
    lifetime: MetadataLifetime

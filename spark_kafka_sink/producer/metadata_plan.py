"""[both] What is known about a topic, and which topics' metadata to request next (KIP-526).

The parts of a topic's state are immutable: an event replaces a part as a whole, so no field of an
earlier state stays.

============== ============================= =====================================================
is             becomes                       when
============== ============================= =====================================================
NoMetadata     Metadata, or TopicError       an answer arrives
Metadata       the same, stale               a leader or a broker was lost
Metadata       Metadata, or TopicError       an answer arrives
Metadata       NoMetadata                    the client says that the topic is missing
Metadata       NoMetadata                    a record names a partition that it lacks, and it is not
                                             recent
TopicError     Metadata, or TopicError       an answer arrives
TopicError     NoMetadata                    records arrive, and no earlier ones wait

NoLimits       KnownLimits                   an answer arrives
KnownLimits    ExpiredLimits                 they would reject a record, and are not recent
any            ExpiredLimits                 the brokers rejected a batch, unless the limits were
                                             unreadable in the last 10 s
any            KnownLimits                   an answer arrives
any            UnreadableLimits              no answer arrives, or an error, such as a missing right
============== ============================= =====================================================

Times are in seconds, of one clock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.config.producer_options import MetadataLifetime
from spark_kafka_sink.producer.topic_limits import TopicLimits
from spark_kafka_sink.records.partitioner import TopicPartitions

_FIRST_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 1.0


@dataclass(frozen=True)
class NoMetadata:
    """No answer yet, or none since records arrived. ``missing_since``: as in TopicError."""

    missing_since: float | None = None


@dataclass(frozen=True)
class TopicError:
    """The latest answer is an error.

    ``missing_since``: since when answers say that the topic does not exist; None: they do not.
    """

    code: int
    missing_since: float | None = None


@dataclass(frozen=True)
class Metadata:
    """``is_stale``: something showed that it has changed, such as a lost partition leader."""

    partitions: TopicPartitions
    refreshed_at: float
    is_stale: bool = False


MetadataState = NoMetadata | TopicError | Metadata


@dataclass(frozen=True)
class NoLimits:
    """It is not known yet, or not needed, what the topic's brokers reject."""


@dataclass(frozen=True)
class KnownLimits:
    """``max_batch_bytes``: larger batches are rejected, also where ``limits`` lack it."""

    limits: TopicLimits
    max_batch_bytes: int
    refreshed_at: float


@dataclass(frozen=True)
class ExpiredLimits:
    """Its records wait for new limits. ``max_batch_bytes``: as above."""

    max_batch_bytes: int


@dataclass(frozen=True)
class UnreadableLimits:
    """The latest request got no limits, so none reject a record. ``max_batch_bytes``: as above."""

    max_batch_bytes: int
    refreshed_at: float


LimitsState = NoLimits | KnownLimits | ExpiredLimits | UnreadableLimits


@dataclass(frozen=True)
class MetadataRequest:
    """Whether the topic's metadata is requested, and the earliest time of the next request."""

    is_in_flight: bool = False
    retry_at: float = 0.0
    backoff_seconds: float = _FIRST_BACKOFF_SECONDS

    def may_be_sent(self, now: float) -> bool:
        return not self.is_in_flight and now >= self.retry_at

    def sent(self) -> MetadataRequest:
        return MetadataRequest(True, self.retry_at, self.backoff_seconds)

    def succeeded(self) -> MetadataRequest:
        return MetadataRequest(False, self.retry_at)

    def delayed(self, now: float) -> MetadataRequest:
        """The next request waits for the longest backoff."""
        return MetadataRequest(self.is_in_flight, now + _MAX_BACKOFF_SECONDS)

    def failed(self, now: float) -> MetadataRequest:
        """The next request waits for ``backoff_seconds``, the one after it for twice as long."""
        longer = min(2 * self.backoff_seconds, _MAX_BACKOFF_SECONDS)
        return MetadataRequest(False, now + self.backoff_seconds, longer)


@dataclass
class TopicState:
    """``is_delegated``: a request got no answer, so the client gets the records, and fetches the
    metadata itself.
    """

    last_used: float
    metadata: MetadataState = field(default_factory=NoMetadata)
    request: MetadataRequest = field(default_factory=MetadataRequest)
    limits: LimitsState = field(default_factory=NoLimits)
    are_limits_in_flight: bool = False
    is_delegated: bool = False


_MIN_TARGET = 20


@dataclass(frozen=True)
class FetchPlan:
    """The topics of one request: ``urgent`` (T) and ``others`` (from U, the oldest first)."""

    urgent: list[str]
    others: list[str]

    @property
    def topics(self) -> list[str]:
        return self.urgent + self.others


def target_size(cached_topics: int, evict_seconds: float) -> float:
    """KIP-526's target for the number of topics in one request.

    Follows the KIP to the letter: it divides topics per second by ten, although its stated reason
    (a fetch about every ten seconds) calls for multiplying. So the target exceeds 20 only for very
    many topics.
    """
    return max(cached_topics / evict_seconds / 10, _MIN_TARGET)


def plan_fetch(
    topics: Mapping[str, TopicState],
    in_use: Container[str],
    now: float,
    lifetime: MetadataLifetime,
) -> FetchPlan:
    """The topics whose metadata KIP-526 fetches now, all in one request.

    Urgent topics (T) have no metadata, or an error and are in use, or stale metadata, or metadata
    older than ``metadata.max.age.ms``. Non-urgent topics (U) are older than half of that age. All
    of T are fetched, and the oldest of U up to the target size; without T, U is fetched once it has
    reached that size. Topics that are in flight or back off are in neither. ``in_use``: topics with
    incomplete sends.
    """
    urgent: list[str] = []
    aged: list[tuple[float, str]] = []
    cached = 0
    for topic, state in topics.items():
        metadata = state.metadata
        cached += isinstance(metadata, Metadata)
        if not state.request.may_be_sent(now):
            continue
        if isinstance(metadata, NoMetadata):
            urgent.append(topic)
        elif isinstance(metadata, TopicError):
            # Do not retry an errored topic that no record is waiting for.
            if topic in in_use:
                urgent.append(topic)
        else:
            age_seconds = now - metadata.refreshed_at
            if metadata.is_stale or age_seconds >= lifetime.max_age_seconds:
                urgent.append(topic)
            elif age_seconds >= lifetime.max_age_seconds / 2:
                aged.append((metadata.refreshed_at, topic))
    target = int(target_size(cached, lifetime.evict_seconds))
    oldest = [topic for _, topic in sorted(aged)]
    if urgent:
        return FetchPlan(sorted(urgent), oldest[: max(0, target - len(urgent))])
    return FetchPlan([], oldest[:target] if len(oldest) >= target else [])

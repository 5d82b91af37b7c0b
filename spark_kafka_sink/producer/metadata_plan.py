"""Which topics' metadata to request next (KIP-526)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from spark_kafka_sink.config.producer_options import MetadataLifetime
from spark_kafka_sink.producer.topic_state import (
    Metadata,
    NoMetadata,
    TopicError,
    TopicState,
    assert_never,
)

_SMALLEST_TARGET = 20


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
    return max(cached_topics / evict_seconds / 10, _SMALLEST_TARGET)


def plan_fetch(
    topics: Mapping[str, TopicState],
    in_use: Container[str],
    now: float,
    lifetime: MetadataLifetime,
) -> FetchPlan:
    """The topics whose metadata KIP-526 fetches now, all in one request.

    Urgent topics (T) are needed and have no metadata, or have stale metadata, or are older than
    ``metadata.max.age.ms``. Non-urgent topics (U) are older than half of that age. All of T are
    fetched, and the oldest of U up to the target size; without T, U is fetched once it has reached
    that size. Topics that are in flight or back off are in neither. ``in_use``: topics with
    incomplete deliveries.
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
        elif isinstance(metadata, Metadata):
            age_seconds = now - metadata.refreshed_at
            if metadata.is_stale or age_seconds >= lifetime.max_age_seconds:
                urgent.append(topic)
            elif age_seconds >= lifetime.max_age_seconds / 2:
                aged.append((metadata.refreshed_at, topic))
        else:
            assert_never(metadata)
    target = int(target_size(cached, lifetime.evict_seconds))
    oldest = [topic for _, topic in sorted(aged)]
    if urgent:
        return FetchPlan(sorted(urgent), oldest[: max(0, target - len(urgent))])
    return FetchPlan([], oldest[:target] if len(oldest) >= target else [])

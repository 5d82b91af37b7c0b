"""Which topics have metadata, which records await it, and what to request next (KIP-526)."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from spark_kafka_sink.config.producer_options import MetadataLifetime
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.librdkafka.error_codes import NON_RETRIABLE_TOPIC_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import Configuration, TopicDescription
from spark_kafka_sink.producer.topic_limits import TopicLimits, limits_from
from spark_kafka_sink.records.partitioner import UNKNOWN_PARTITIONS, TopicPartitions

_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 1.0

# No record waits for topics that are due only because of age, so search only this often.
_SEARCH_SECONDS = 1.0

_SMALLEST_TARGET = 20

#: Older limits refuse no record before the brokers have confirmed them.
RECENT_SECONDS = 10.0

#: Brokers that create topics need less. After that, a topic that they do not know is missing, and
#: its records become dead letters.
MISSING_SECONDS = 5.0


@dataclass
class TopicState:
    """What is known about a topic; times are in seconds, of one clock."""

    last_used: float
    #: when its latest metadata arrived; None: it has none
    refreshed_at: float | None = None
    partitions: TopicPartitions | None = None
    #: something showed that its metadata is stale, such as a lost partition leader
    is_update_requested: bool = False
    #: when the first of its records was buffered without metadata
    waiting_since: float | None = None
    #: the error of the latest answer
    error: int = ErrorCode.NO_ERROR
    #: since when answers say that it does not exist
    missing_since: float | None = None
    #: what its brokers refuse; None: not known yet, or not needed
    limits: TopicLimits | None = None
    #: when the latest answer about them arrived
    limits_refreshed_at: float = 0.0
    are_limits_in_flight: bool = False
    #: its records wait for limits that are newer than those
    awaits_new_limits: bool = False
    is_in_flight: bool = False
    #: a request got no answer: the client gets its records, and fetches the metadata itself
    is_delegated: bool = False
    #: not requested again before this time
    retry_at: float = 0.0
    backoff_seconds: float = _FIRST_BACKOFF_SECONDS


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

    Urgent topics (T) are needed and have no metadata, or have an update requested, or are older
    than ``metadata.max.age.ms``. Non-urgent topics (U) are older than half of that age. All of T
    are fetched, and the oldest of U up to the target size; without T, U is fetched once it has
    reached that size. Topics that are in flight or back off are in neither. ``in_use``: topics
    with incomplete deliveries.
    """
    urgent: list[str] = []
    aged: list[tuple[float, str]] = []
    cached = 0
    for topic, state in topics.items():
        cached += state.refreshed_at is not None
        if state.is_in_flight or now < state.retry_at:
            continue
        if state.refreshed_at is None:
            # Do not retry an errored topic that no record is waiting for.
            if topic in in_use or not state.error:
                urgent.append(topic)
        elif state.is_update_requested or now - state.refreshed_at >= lifetime.max_age_seconds:
            urgent.append(topic)
        elif now - state.refreshed_at >= lifetime.max_age_seconds / 2:
            aged.append((state.refreshed_at, topic))
    target = int(target_size(cached, lifetime.evict_seconds))
    oldest = [topic for _, topic in sorted(aged)]
    if urgent:
        return FetchPlan(sorted(urgent), oldest[: max(0, target - len(urgent))])
    return FetchPlan([], oldest[:target] if len(oldest) >= target else [])


class TopicMetadata:
    """Topics and the state of their metadata, on an injected clock. Sends nothing.

    With a ``dead_letter_topic``, a topic also needs its limits before its records are sendable.
    ``rack``: the client's.
    """

    def __init__(
        self,
        lifetime: MetadataLifetime,
        clock: Clock = time.monotonic,
        dead_letter_topic: str | None = None,
        rack: str | None = None,
    ) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._dead_letter_topic = dead_letter_topic
        self._rack = rack
        self._topics: dict[str, TopicState] = {}
        #: topics whose records await metadata, longest wait first; ``_refused`` is a subset
        self._waiting: dict[str, TopicState] = {}
        self._refused: dict[str, TopicState] = {}
        #: topics whose limits are to be requested, as soon as they have metadata
        self._limits_due: set[str] = set()
        self._search_at = 0.0

    # --- what the producer's records need ---------------------------------------------------------

    def add(self, topics: Iterable[str]) -> None:
        """Add topics that will be needed."""
        for topic in topics:
            self._use(topic)

    def await_metadata(self, topic: str) -> None:
        """Records were buffered for the topic: their budget starts unless it has metadata."""
        state = self._use(topic)
        if not self._is_known(state) and state.waiting_since is None:
            state.error = ErrorCode.NO_ERROR  # an answer from before these records may be outdated
            self._search_at = min(self._search_at, state.retry_at)
            self._start_waiting(topic, state)

    def release(self, topic: str) -> None:
        """The topic's last incomplete delivery is now complete."""
        self._stop_waiting(topic, self._use(topic))

    def acknowledged(self, topic: str) -> None:
        """Records were acknowledged: if they were delegated, the client has found metadata."""
        if topic in self._waiting and self._topics[topic].is_delegated:
            self._stop_waiting(topic, self._topics[topic])

    # --- what the brokers answer ------------------------------------------------------------------

    def request_update(self, topic: str) -> None:
        """Mark the topic's metadata as stale."""
        if topic in self._topics:
            self._topics[topic].is_update_requested = True
            self._search_at = 0.0

    def request_update_of_all(self) -> None:
        """A broker was lost: any topic may have lost a leader."""
        for topic in self._topics:
            self.request_update(topic)

    def update(self, answer: TopicDescription, *, is_in_use: bool = False) -> None:
        """Apply an answer. ``is_in_use``: the topic has incomplete deliveries.

        After an error, and while partitions have no leader, it is requested again after a backoff.
        """
        state = self._topics.get(answer.topic)
        if state is None:
            return  # evicted in the meantime
        state.is_in_flight, state.error = False, answer.code
        if answer.code == ErrorCode.NO_ERROR:
            self._apply_metadata(answer, state)
            return
        state.refreshed_at = state.partitions = None
        if answer.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            state.missing_since = None
        elif state.missing_since is None:
            state.missing_since = self._clock()
        if is_in_use:
            self._start_waiting(answer.topic, state)
        if answer.code in NON_RETRIABLE_TOPIC_ERRORS and state.waiting_since is not None:
            self._refused[answer.topic] = state
        self._back_off(state)

    def _apply_metadata(self, answer: TopicDescription, state: TopicState) -> None:
        state.refreshed_at, state.is_update_requested = self._clock(), False
        state.partitions = TopicPartitions(
            answer.partition_count, answer.available_partitions, self._near(answer)
        )
        state.is_delegated, state.missing_since = False, None
        if self._is_known(state):
            self._stop_waiting(answer.topic, state)
        if not self._is_sendable(state):
            self._limits_due.add(answer.topic)
        if len(answer.available_partitions) < answer.partition_count:
            state.is_update_requested = True
            self._back_off(state)
        else:
            state.backoff_seconds = _FIRST_BACKOFF_SECONDS

    def _near(self, answer: TopicDescription) -> frozenset[int] | None:
        if self._rack is None:
            return None
        racks = zip(answer.available_partitions, answer.leader_racks, strict=True)
        return frozenset(partition for partition, rack in racks if rack == self._rack)

    def fail_request(self, topics: Iterable[str]) -> list[str]:
        """A request failed as a whole: back off its topics. Returns those that records await."""
        failed = [topic for topic in topics if topic in self._topics]  # others were evicted
        for topic in failed:
            self._topics[topic].is_in_flight = False
            self._back_off(self._topics[topic])
        return [topic for topic in failed if topic in self._waiting]

    def update_limits(self, answer: Configuration) -> None:
        """Apply an answer.

        If the client may not read a topic's configuration, the limits that are known stay. Without
        any, the topic counts as one that has none.
        """
        state = self._topics.get(answer.resource)
        if state is None:
            return  # evicted in the meantime
        if not answer.code:
            state.limits = limits_from(answer.settings)
        elif state.limits is None:
            state.limits = TopicLimits()
        state.limits_refreshed_at = self._clock()
        state.are_limits_in_flight = state.awaits_new_limits = False
        if state.refreshed_at is not None:
            self._stop_waiting(answer.resource, state)

    def renew_limits(self, topic: str) -> None:
        """Let the topic's records wait until its limits have been fetched again.

        Not at the expense of their budget: they wait no longer than that one request.
        """
        self._use(topic).awaits_new_limits = True
        self._limits_due.add(topic)

    def delegate_to_client(self, topic: str) -> None:
        """Let the topic's records leave without metadata; their budget keeps running."""
        self._topics[topic].is_delegated = True

    # --- what to do next --------------------------------------------------------------------------

    def next_request(self, in_use: Container[str]) -> list[str]:
        """Topics to request now, all at once; marks them as in flight.

        Limits that have reached the maximum age become due, too.
        """
        now = self._clock()
        if now < self._search_at:
            return []
        due = plan_fetch(self._topics, in_use, now, self._lifetime).topics
        for topic in due:
            self._topics[topic].is_in_flight = True
        self._limits_due.update(topic for topic, s in self._topics.items() if self._has_aged(s))
        half_age = self._lifetime.max_age_seconds / 2
        pause = min(_SEARCH_SECONDS, half_age / 2, self._lifetime.evict_seconds / 2)
        retries = (s.retry_at for s in self._topics.values() if s.retry_at > now)
        self._search_at = min([now + pause, *retries])
        return due

    def next_limits_request(self) -> list[str]:
        """Topics whose limits to request now, all at once; marks them as in flight."""
        wanted, self._limits_due = self._limits_due, set()
        due = []
        for topic in sorted(wanted & self._topics.keys()):
            state = self._topics[topic]
            if state.refreshed_at is not None and not state.are_limits_in_flight:
                state.are_limits_in_flight = True
                due.append(topic)
        return due

    def evict_idle(self, in_use: Container[str]) -> list[str]:
        """Forget topics without new records for ``metadata.evict.ms``; returns them."""
        now = self._clock()
        if now < self._search_at:
            return []
        evicted = [
            topic
            for topic, state in self._topics.items()
            if topic not in in_use and now - state.last_used >= self._lifetime.evict_seconds
        ]
        for topic in evicted:
            del self._topics[topic]
        return evicted

    # --- questions --------------------------------------------------------------------------------

    def partitions(self, topic: str) -> TopicPartitions | None:
        """The partitions of a topic whose records are sendable, else None.

        Sendable: the topic has metadata, or is delegated to the client, which finds the partitions.
        """
        state = self._topics.get(topic)
        if state is None:
            return None
        if state.is_delegated:
            return state.partitions or UNKNOWN_PARTITIONS
        return state.partitions if self._is_sendable(state) else None

    def cross_rack_records(self, records: Mapping[tuple[str, int], int]) -> int | None:
        """How many of those records, by topic and partition, have a leader in another rack.

        By the present metadata of topics that have some. None: the client has no rack.
        """
        if self._rack is None:
            return None
        crossed = 0
        for (topic, partition), count in records.items():
            state = self._topics.get(topic)
            partitions = state.partitions if state is not None else None
            if partitions is not None and partition not in (partitions.near or ()):
                crossed += count
        return crossed

    def limits(self, topic: str) -> TopicLimits:
        """What the topic's brokers refuse, as far as known."""
        state = self._topics.get(topic)
        return (state.limits if state is not None else None) or TopicLimits()

    def are_limits_recent(self, topic: str) -> bool:
        """Whether the topic's limits are recent enough to refuse records."""
        return self._clock() - self._topics[topic].limits_refreshed_at <= RECENT_SECONDS

    def unusable(self) -> list[tuple[str, int]]:
        """Topics whose waiting records become dead letters, each with its error.

        They are forbidden or invalid, or have been missing for ``MISSING_SECONDS``.
        """
        if self._dead_letter_topic is None:
            return []
        missing_before = self._clock() - MISSING_SECONDS
        return [
            (topic, state.error)
            for topic, state in self._waiting.items()
            if self._becomes_dead_letters(topic, state)
            and (state.missing_since is None or state.missing_since <= missing_before)
        ]

    @property
    def is_awaited_by_any(self) -> bool:
        """Whether any records await metadata."""
        return bool(self._waiting)

    def is_awaited(self, topic: str) -> bool:
        """Whether records await its metadata."""
        return topic in self._waiting

    def first_failure(
        self, budget_seconds: float, topic: str | None = None
    ) -> tuple[str, int] | None:
        """The topic that has failed after the longest wait, with its latest error, else None.

        A topic fails on a non-retriable error, or after waiting ``budget_seconds``. With
        ``topic``, only that topic counts.
        """
        if topic is None:
            failing = chain(self._refused.items(), self._waiting.items())
            fatal = (each for each, s in failing if not self._becomes_dead_letters(each, s))
            topic = next(fatal, None)
        state = self._waiting.get(topic) if topic is not None else None
        if topic is None or state is None or state.waiting_since is None:
            return None
        if self._becomes_dead_letters(topic, state):
            return None
        is_overdue = self._clock() - state.waiting_since >= budget_seconds
        return (topic, state.error) if is_overdue or topic in self._refused else None

    def live(self) -> list[str]:
        """Topics that are not evicted."""
        return sorted(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    # --- the table --------------------------------------------------------------------------------

    def _is_known(self, state: TopicState) -> bool:
        has_limits = self._dead_letter_topic is None or state.limits is not None
        return state.refreshed_at is not None and has_limits

    def _is_sendable(self, state: TopicState) -> bool:
        return self._is_known(state) and not state.awaits_new_limits

    def _has_aged(self, state: TopicState) -> bool:
        """Whether its limits have reached the maximum age."""
        if state.limits is None:
            return False
        return self._clock() - state.limits_refreshed_at >= self._lifetime.max_age_seconds

    def _becomes_dead_letters(self, topic: str, state: TopicState) -> bool:
        return self._dead_letter_topic not in (None, topic) and (
            state.error in NON_RETRIABLE_TOPIC_ERRORS
            or state.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    def _use(self, topic: str) -> TopicState:
        now = self._clock()
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = TopicState(now)
            self._search_at = 0.0
        state.last_used = now
        return state

    def _start_waiting(self, topic: str, state: TopicState) -> None:
        if state.waiting_since is None:
            state.waiting_since = self._clock()
            self._waiting[topic] = state

    def _stop_waiting(self, topic: str, state: TopicState) -> None:
        state.waiting_since = None
        self._waiting.pop(topic, None)
        self._refused.pop(topic, None)

    def _back_off(self, state: TopicState) -> None:
        state.retry_at = self._clock() + state.backoff_seconds
        state.backoff_seconds = min(2 * state.backoff_seconds, _LONGEST_BACKOFF_SECONDS)
        self._search_at = min(self._search_at, state.retry_at)

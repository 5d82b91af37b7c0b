"""[both] Which topics have metadata, which records await it, what to request next (KIP-526)."""

from __future__ import annotations

import sys
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from spark_kafka_sink.config.producer_options import MISSING_TOPIC_SECONDS, MetadataLifetime
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.librdkafka.error_codes import NON_RETRIABLE_TOPIC_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import ConfigurationDescription, TopicDescription
from spark_kafka_sink.librdkafka.protocol import ProducerClient
from spark_kafka_sink.producer.metadata_plan import (
    ExpiredLimits,
    KnownLimits,
    LimitsState,
    Metadata,
    NoLimits,
    NoMetadata,
    TopicError,
    TopicState,
    UnreadableLimits,
    plan_fetch,
)
from spark_kafka_sink.producer.topic_limits import NO_LIMITS, TopicLimits, limits_from
from spark_kafka_sink.records.partitioner import UNKNOWN_PARTITIONS, TopicPartitions

# No record waits for topics that are due only because of age, so scan only this often.
_SCAN_SECONDS = 1.0

#: Answers older than this are requested again before a record is rejected because of them.
RECENT_SECONDS = 10.0


class _Outcome(Enum):
    """What the latest answer means for the records that wait for a topic's metadata."""

    WAIT = auto()  # they fail when kafka.max.block.ms, their budget, is used up
    FAIL = auto()  # forbidden or invalid, and there is no topic for dead letters
    # missing: they become dead letters if an answer MISSING_TOPIC_SECONDS later says so too
    WAIT_FOR_ANOTHER = auto()
    DEAD_LETTERS = auto()  # they become dead letters now


@dataclass
class _Wait:
    """``code``: of the latest answer, if that is an error."""

    since: float
    code: int = ErrorCode.NO_ERROR
    outcome: _Outcome = _Outcome.WAIT

    @property
    def ends_in_dead_letters(self) -> bool:
        return self.outcome in (_Outcome.WAIT_FOR_ANOTHER, _Outcome.DEAD_LETTERS)


class MetadataWaits:
    """Which topics' records wait for metadata, since when, and how they fail.

    With a ``dead_letter_topic``, records of another topic become dead letters if that is forbidden,
    invalid or missing. They fail if it only gives no metadata in time.
    """

    def __init__(self, clock: Clock = time.monotonic, dead_letter_topic: str | None = None) -> None:
        self._clock = clock
        self._dead_letter_topic = dead_letter_topic
        #: by topic; longest wait first
        self._waits: dict[str, _Wait] = {}
        #: topics by outcome, so that no call searches all of them
        self._failed: dict[str, None] = {}
        self._unusable: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def __contains__(self, topic: str) -> bool:
        return topic in self._waits

    def start(self, topic: str) -> None:
        """Records wait for the topic from now on, unless some do already."""
        self._waits.setdefault(topic, _Wait(self._clock()))

    def stop(self, topic: str) -> None:
        """No record waits for the topic any longer."""
        self.clear_error(topic)
        self._waits.pop(topic, None)

    def clear_error(self, topic: str) -> None:
        """The latest answer is no error."""
        self._set(topic, ErrorCode.NO_ERROR, _Outcome.WAIT)

    def note_silence(self, topic: str) -> None:
        """The latest request got no answer: a topic is no longer known to be missing."""
        wait = self._waits.get(topic)
        if wait is not None and wait.outcome is _Outcome.WAIT_FOR_ANOTHER:
            wait.outcome = _Outcome.WAIT

    def set_error(self, topic: str, error: TopicError) -> None:
        """The latest answer is an error."""
        self._set(topic, error.code, self._outcome(topic, error))

    def _outcome(self, topic: str, error: TopicError) -> _Outcome:
        is_final = error.code in NON_RETRIABLE_TOPIC_ERRORS
        has_dead_letters = self._dead_letter_topic not in (None, topic)
        if is_final:
            return _Outcome.DEAD_LETTERS if has_dead_letters else _Outcome.FAIL
        if error.missing_since is None or not has_dead_letters:
            return _Outcome.WAIT
        if self._clock() - error.missing_since < MISSING_TOPIC_SECONDS:
            return _Outcome.WAIT_FOR_ANOTHER
        return _Outcome.DEAD_LETTERS

    def _set(self, topic: str, code: int, outcome: _Outcome) -> None:
        wait = self._waits.get(topic)
        if wait is None:
            return
        wait.code, wait.outcome = code, outcome
        self._failed.pop(topic, None)
        self._unusable.pop(topic, None)
        if outcome is _Outcome.FAIL:
            self._failed[topic] = None
        elif outcome is _Outcome.DEAD_LETTERS:
            self._unusable[topic] = None

    def unusable(self) -> list[tuple[str, int]]:
        """Topics whose records become dead letters now, each with its error.

        They are forbidden or invalid, or answers say that they are missing, the first and the
        latest of them at least ``MISSING_TOPIC_SECONDS`` apart.
        """
        return [(topic, self._waits[topic].code) for topic in self._unusable]

    def first_failure(
        self, budget_seconds: float, topic: str | None = None
    ) -> tuple[str, int] | None:
        """The topic to fail for, with its latest error, or None.

        The first one with a non-retriable error, else the one that has waited longest, if it has
        waited for ``budget_seconds``. A topic whose records become dead letters never fails. With
        ``topic``, only that topic counts.
        """
        if topic is None:
            topic = next(iter(self._failed), None) or next(
                (name for name, wait in self._waits.items() if not wait.ends_in_dead_letters), None
            )
        wait = None if topic is None else self._waits.get(topic)
        if topic is None or wait is None or wait.ends_in_dead_letters:
            return None
        is_overdue = self._clock() - wait.since >= budget_seconds
        return (topic, wait.code) if is_overdue or wait.outcome is _Outcome.FAIL else None


@dataclass(frozen=True)
class SendableTopic:
    """A topic that has metadata, or is delegated: UNKNOWN_PARTITIONS.

    ``limits``: what its brokers reject, as far as they say. ``max_batch_bytes``: the largest batch
    that they accept, as far as it is known; unless ``is_max_known``, it is an estimate.
    """

    partitions: TopicPartitions
    limits: TopicLimits
    is_max_known: bool
    max_batch_bytes: int


def _max_batch_bytes(limits: LimitsState) -> int:
    return sys.maxsize if isinstance(limits, NoLimits) else limits.max_batch_bytes


@dataclass(frozen=True)
class Scan:
    """Which topics were forgotten, and which to request now, all at once."""

    evicted: list[str]
    due: list[str]


class TopicMetadata:
    """Topics and the state of their metadata, on an injected clock. Sends nothing.

    ``needs_limits``: a topic also needs its limits before its records are sendable. ``rack``: the
    client's.
    """

    def __init__(
        self,
        lifetime: MetadataLifetime,
        clock: Clock = time.monotonic,
        dead_letter_topic: str | None = None,
        rack: str | None = None,
        *,
        needs_limits: bool = False,
    ) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._needs_limits = needs_limits
        self._rack = rack
        self._topics: dict[str, TopicState] = {}
        self.waits = MetadataWaits(clock, dead_letter_topic)
        #: topics whose limits the next fetch requests; it drops those without metadata, and those
        #: with a request in flight, since their answers add them again if needed
        self._limits_due: set[str] = set()
        self._next_scan_at = 0.0

    # --- what the producer's records need ---------------------------------------------------------

    def add(self, topics: Iterable[str]) -> None:
        """Add topics that will be needed."""
        for topic in topics:
            self._use(topic)

    def await_metadata(self, topic: str) -> None:
        """Records were buffered for the topic: their budget starts unless it has metadata."""
        state = self._use(topic)
        if self._has_all_needed(state) or topic in self.waits:
            return
        if isinstance(state.metadata, TopicError):
            # The answer is from before these records, and may be outdated, so it decides nothing.
            # But its time counts, if the next answer also says that the topic is missing.
            state.metadata = NoMetadata(state.metadata.missing_since)
        # If only limits are missing, they are due or in flight since the answer with the metadata.
        if not isinstance(state.metadata, Metadata) and not state.request.is_in_flight:
            self._next_scan_at = min(self._next_scan_at, state.request.retry_at)
        self.waits.start(topic)

    def release(self, topic: str) -> None:
        """The topic's last incomplete send is complete: the time until eviction begins."""
        self._use(topic)
        self.waits.stop(topic)

    def on_acknowledged(self, topic: str) -> None:
        """Records were acknowledged: if they were delegated, the client has found metadata."""
        if topic in self.waits and self._topics[topic].is_delegated:
            self.waits.stop(topic)

    # --- what the brokers answer ------------------------------------------------------------------

    def request_update(self, topic: str) -> None:
        """Mark the topic's metadata as stale; the next scan requests it."""
        state = self._topics.get(topic)
        if state is None:
            return
        if isinstance(state.metadata, Metadata):
            state.metadata = replace(state.metadata, is_stale=True)
        self._next_scan_at = 0.0

    def on_client_lost_topic(self, topic: str) -> None:
        """The client says that the topic is missing: its records wait for the next answer.

        The client may say so for some seconds after an answer that it is there, so the next request
        is not sent at once.
        """
        state = self._use(topic)
        state.is_delegated = False
        if isinstance(state.metadata, Metadata):
            state.request = state.request.delayed(self._clock())
            self._drop_metadata(state)
        self.waits.start(topic)

    def hold_for_partition(self, topic: str, partition: int) -> bool:
        """Let the topic's records wait for the next answer, if only that may have this partition.

        Returns whether they wait; not if the latest answer has the partition, or is recent.
        """
        state = self._use(topic)
        metadata = state.metadata
        if not isinstance(metadata, Metadata) or partition < metadata.partitions.count:
            return False
        if self._is_recent(metadata):
            return False
        self._drop_metadata(state)
        self.waits.start(topic)
        return True

    def _drop_metadata(self, state: TopicState) -> None:
        state.metadata = NoMetadata()
        self._next_scan_at = min(self._next_scan_at, state.request.retry_at)

    def request_update_of_all(self) -> None:
        """A broker was lost: any topic may have lost a leader."""
        for topic in self._topics:
            self.request_update(topic)

    def update(self, answer: TopicDescription, *, is_in_use: bool = False) -> None:
        """Apply an answer. ``is_in_use``: the topic has incomplete sends.

        After an error, and while partitions have no leader, it is requested again after a backoff.
        """
        state = self._topics.get(answer.topic)
        if state is None:
            return  # evicted in the meantime
        if answer.code == ErrorCode.NO_ERROR:
            self._apply_metadata(answer, state)
            return
        state.metadata = TopicError(answer.code, self._missing_since(answer.code, state))
        if is_in_use:
            self.waits.start(answer.topic)  # for records that the client has, too
        self.waits.set_error(answer.topic, state.metadata)
        self._back_off(state)

    def _missing_since(self, code: int, state: TopicState) -> float | None:
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if isinstance(state.metadata, Metadata) or state.metadata.missing_since is None:
            return self._clock()
        return state.metadata.missing_since

    def _apply_metadata(self, answer: TopicDescription, state: TopicState) -> None:
        is_complete = len(answer.available_partitions) == answer.partition_count
        partitions = TopicPartitions(
            answer.partition_count, answer.available_partitions, self._near_partitions(answer)
        )
        state.metadata = Metadata(partitions, self._clock(), is_stale=not is_complete)
        state.is_delegated = False
        self.waits.clear_error(answer.topic)
        if self._has_all_needed(state):
            self.waits.stop(answer.topic)
        if not self._is_sendable(state):
            self._limits_due.add(answer.topic)
        if is_complete:
            state.request = state.request.succeeded()
        else:
            self._back_off(state)

    def _near_partitions(self, answer: TopicDescription) -> frozenset[int] | None:
        if self._rack is None or not any(answer.leader_racks):
            return None
        racks = zip(answer.available_partitions, answer.leader_racks, strict=True)
        return frozenset(partition for partition, rack in racks if rack == self._rack)

    def fail_request(self, topics: Iterable[str]) -> list[str]:
        """A request got no answer: back off its topics. Returns those with waiting records."""
        failed = [topic for topic in topics if topic in self._topics]  # others were evicted
        for topic in failed:
            self._back_off(self._topics[topic])
            self.waits.note_silence(topic)
        return [topic for topic in failed if topic in self.waits]

    def update_limits(self, answer: ConfigurationDescription) -> None:
        """Apply an answer. If there is none, or an error, only the brokers reject records."""
        state = self._topics.get(answer.resource)
        if state is None:
            return  # evicted in the meantime
        limits, most = limits_from(answer.settings), _max_batch_bytes(state.limits)
        if answer.code:
            state.limits = UnreadableLimits(most, self._clock())
        else:
            most = limits.max_batch_bytes if limits.has_max_batch_bytes else most
            state.limits = KnownLimits(limits, most, self._clock())
        state.are_limits_in_flight = False
        if isinstance(state.metadata, Metadata):
            self.waits.stop(answer.resource)

    def request_limits(self, topic: str) -> None:
        """Ask what the topic's brokers reject, unless they were asked; no record waits for it."""
        if isinstance(self._use(topic).limits, NoLimits):
            self._limits_due.add(topic)

    def hold_for_new_limits(self, topic: str, max_batch_bytes: int = sys.maxsize) -> None:
        """Let the topic's records wait until its limits have been fetched again.

        This does not use up their budget: they wait only for that one request.
        ``max_batch_bytes``: what brokers may accept if the answer does not say it.
        """
        state = self._use(topic)
        max_batch_bytes = min(max_batch_bytes, _max_batch_bytes(state.limits))
        if isinstance(state.limits, UnreadableLimits) and self._is_recent(state.limits):
            # The brokers did not say them just now, so they are not asked again.
            state.limits = replace(state.limits, max_batch_bytes=max_batch_bytes)
            return
        state.limits = ExpiredLimits(max_batch_bytes)
        self._limits_due.add(topic)

    def delegate_to_client(self, topic: str) -> None:
        """Let the topic's records be sent without metadata; their budget keeps running."""
        self._topics[topic].is_delegated = True

    # --- what to do next --------------------------------------------------------------------------

    def scan(self, in_use: Container[str]) -> Scan:
        """Look through all topics, if it is time to; ``in_use``: topics with incomplete sends.

        Forgets topics that nothing has used for ``metadata.evict.ms``, and marks those to request
        as in flight. Limits that have reached the maximum age become due, too.
        """
        now = self._clock()
        if now < self._next_scan_at:
            return Scan([], [])
        evicted = [
            topic
            for topic, state in self._topics.items()
            if topic not in in_use and now - state.last_used >= self._lifetime.evict_seconds
        ]
        for topic in evicted:
            del self._topics[topic]
        due = plan_fetch(self._topics, in_use, now, self._lifetime).topics
        for topic in due:
            state = self._topics[topic]
            state.request = state.request.sent()
        self._limits_due.update(
            topic for topic, s in self._topics.items() if self._are_limits_due_by_age(s, now)
        )
        half_age = self._lifetime.max_age_seconds / 2
        pause = min(_SCAN_SECONDS, half_age / 2, self._lifetime.evict_seconds / 2)
        times = (s.request.retry_at for s in self._topics.values())
        retries = (at for at in times if at > now)
        self._next_scan_at = min([now + pause, *retries])
        return Scan(evicted, due)

    def next_limits_request(self) -> list[str]:
        """Topics whose limits to request now, all at once; marks them as in flight."""
        wanted, self._limits_due = self._limits_due, set()
        due = []
        for topic in sorted(wanted & self._topics.keys()):
            state = self._topics[topic]
            if isinstance(state.metadata, Metadata) and not state.are_limits_in_flight:
                state.are_limits_in_flight = True
                due.append(topic)
        return due

    # --- questions --------------------------------------------------------------------------------

    def sendable(self, topic: str) -> SendableTopic | None:
        """What is known about a topic whose records are sendable, else None.

        Sendable: the topic has metadata, or is delegated to the client, which finds the partitions.
        """
        state = self._topics.get(topic)
        if state is None:
            return None
        if not (state.is_delegated or self._is_sendable(state)):
            return None
        metadata = state.metadata
        partitions = metadata.partitions if isinstance(metadata, Metadata) else UNKNOWN_PARTITIONS
        limits = self.limits(topic)
        is_known = limits is not None and limits.has_max_batch_bytes
        most = _max_batch_bytes(state.limits)
        return SendableTopic(partitions, limits or NO_LIMITS, is_known, most)

    def cross_rack_records(self, records: Mapping[tuple[str, int], int]) -> int | None:
        """How many of those records, by topic and partition, have no leader in the client's rack.

        By the present metadata; topics without it, or whose leaders name no racks, do not count.
        None: the client has no rack.
        """
        if self._rack is None:
            return None
        crossed = 0
        for (topic, partition), count in records.items():
            state = self._topics.get(topic)
            if state is None or not isinstance(state.metadata, Metadata):
                continue
            near = state.metadata.partitions.near
            if near is not None and partition not in near:
                crossed += count
        return crossed

    def limits(self, topic: str) -> TopicLimits | None:
        """What the topic's brokers reject, if they have said so."""
        state = self._topics.get(topic)
        if state is None or not isinstance(state.limits, KnownLimits):
            return None
        return state.limits.limits

    def are_limits_recent(self, topic: str) -> bool:
        """Whether the topic's limits are recent enough to reject records."""
        limits = self._topics[topic].limits
        return isinstance(limits, KnownLimits) and self._is_recent(limits)

    def _is_recent(self, answer: Metadata | KnownLimits | UnreadableLimits) -> bool:
        return self._clock() - answer.refreshed_at <= RECENT_SECONDS

    def live(self) -> list[str]:
        """Topics that are not evicted."""
        return sorted(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    # --- the table --------------------------------------------------------------------------------

    def _has_all_needed(self, state: TopicState) -> bool:
        """Whether the topic has all that its records wait for; limits may have expired."""
        has_limits = not self._needs_limits or not isinstance(state.limits, NoLimits)
        return isinstance(state.metadata, Metadata) and has_limits

    def _is_sendable(self, state: TopicState) -> bool:
        """Whether the topic has all that is needed, and no records wait for newer limits."""
        return self._has_all_needed(state) and not isinstance(state.limits, ExpiredLimits)

    def _are_limits_due_by_age(self, state: TopicState, now: float) -> bool:
        if not isinstance(state.limits, (KnownLimits, UnreadableLimits)):
            return False
        return now - state.limits.refreshed_at >= self._lifetime.max_age_seconds

    def _use(self, topic: str) -> TopicState:
        now = self._clock()
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = TopicState(now)
            self._next_scan_at = 0.0
        state.last_used = now
        return state

    def _back_off(self, state: TopicState) -> None:
        state.request = state.request.failed(self._clock())
        self._next_scan_at = min(self._next_scan_at, state.request.retry_at)


# One broker gets the request for all topics. If it does not answer, the next request has a longer
# timeout, and the client gets the records: it then requests metadata from other brokers too.
_FIRST_REQUEST_SECONDS = 5.0
_MAX_REQUEST_SECONDS = 20.0


class MetadataFetcher:
    """Sends one request per plan; never waits."""

    def __init__(self, client: ProducerClient, topics: TopicMetadata) -> None:
        self._client = client
        self._topics = topics
        self._request_seconds = _FIRST_REQUEST_SECONDS

    def connect(self) -> None:
        """Find the brokers now, so that the first topic request does not have to."""
        self._client.describe_cluster(self._request_seconds)

    def fetch(self, due: Sequence[str]) -> bool:
        """Request these topics, and the limits that are due; returns whether there were topics."""
        if limits_due := self._topics.next_limits_request():
            self._client.describe_topic_configs(limits_due, _FIRST_REQUEST_SECONDS)
        if not due:
            return False
        if not self._client.has_bootstrapped:
            # Before the client connects, so that its first two metadata requests name these topics.
            # Otherwise they name none, and ours is answered only after them.
            for topic in due:
                self._client.open_topic(topic)
        self._client.describe_topics(due, self._request_seconds)
        return True

    def on_description(self, answer: TopicDescription, *, is_in_use: bool) -> None:
        """The answer for one topic."""
        self._request_seconds = _FIRST_REQUEST_SECONDS
        self._topics.update(answer, is_in_use=is_in_use)
        is_missing = answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_missing and answer.topic in self._topics.waits:
            # DescribeTopics creates no topic. The client's metadata request does, which it sends
            # when the topic is opened for the first time.
            self._client.open_topic(answer.topic)

    def on_request_failed(self, topics: Iterable[str]) -> list[str]:
        """A request for these topics has no answer; returns the topics delegated to the client."""
        self._request_seconds = min(2 * self._request_seconds, _MAX_REQUEST_SECONDS)
        awaited = self._topics.fail_request(topics)
        for topic in awaited:
            self._topics.delegate_to_client(topic)
        return awaited

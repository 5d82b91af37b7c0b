"""What is known about one topic: its metadata, its limits, and the requests for them.

The parts are immutable: an event replaces a part as a whole, so no field of an earlier state stays.

============== ============================= =====================================================
is             becomes                       when
============== ============================= =====================================================
NoMetadata     Metadata, or TopicError       an answer arrives
Metadata       the same, stale               a leader or a broker was lost
Metadata       Metadata, or TopicError       an answer arrives
Metadata       NoMetadata                    the client says that the topic is missing
TopicError     Metadata, or TopicError       an answer arrives
TopicError     NoMetadata                    the first records arrive after the answer

NoLimits       KnownLimits                   an answer arrives
KnownLimits    RenewedLimits                 they would reject a record, and are not recent
any            RenewedLimits                 the brokers rejected a batch, unless unreadable of late
any            KnownLimits                   an answer arrives
any            UnreadableLimits              no answer arrives, or one that they may not be read
============== ============================= =====================================================

Times are in seconds, of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from spark_kafka_sink.producer.topic_limits import TopicLimits
from spark_kafka_sink.records.partitioner import TopicPartitions

_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 1.0


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
    """What its brokers reject is not known yet, or not needed."""


@dataclass(frozen=True)
class KnownLimits:
    limits: TopicLimits
    refreshed_at: float


@dataclass(frozen=True)
class RenewedLimits:
    """The topic's records wait for the answer. ``max_batch_bytes``: larger batches are rejected."""

    max_batch_bytes: int


@dataclass(frozen=True)
class UnreadableLimits:
    """The latest request got no limits, so none reject a record. ``max_batch_bytes``: as above."""

    max_batch_bytes: int
    refreshed_at: float


LimitsState = NoLimits | KnownLimits | RenewedLimits | UnreadableLimits


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
        return MetadataRequest(self.is_in_flight, now + _LONGEST_BACKOFF_SECONDS)

    def failed(self, now: float) -> MetadataRequest:
        """The next request waits twice as long as this one did."""
        longer = min(2 * self.backoff_seconds, _LONGEST_BACKOFF_SECONDS)
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


def assert_never(value: NoReturn) -> NoReturn:
    """Fails the type check if a variant is left out (``typing.assert_never`` of Python 3.11)."""
    raise AssertionError(value)

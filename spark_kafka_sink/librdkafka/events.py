"""What a client's event queue tells: plain values, read from C by ``event_reader``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReportedRecords:
    """``count`` rows of one send, for one partition (-1: not assigned yet), with one outcome.

    ``code`` 0: acknowledged. Otherwise they failed, and ``possibly_persisted`` says whether the
    brokers may have stored them all the same (``rd_kafka_message_status``).
    """

    delivery_id: int
    partition: int
    code: int
    possibly_persisted: bool
    count: int


@dataclass(frozen=True)
class TopicDescription:
    """What the brokers say of a topic; ``code`` 0: it exists, its metadata is there.

    ``available_partitions``: those that have a leader.
    """

    topic: str
    code: int
    partition_count: int
    available_partitions: tuple[int, ...]


@dataclass(frozen=True)
class BrokerUp:
    """A broker is connected and has accepted the login; needs ``statistics.interval.ms``."""


@dataclass(frozen=True)
class RequestFailed:
    """A request for metadata got no answer at all, for any topic."""

    code: int


@dataclass(frozen=True)
class BrokerError:
    """Something that went wrong between client and brokers; librdkafka retries by itself."""

    code: int
    text: str


Event = ReportedRecords | TopicDescription | BrokerUp | RequestFailed | BrokerError

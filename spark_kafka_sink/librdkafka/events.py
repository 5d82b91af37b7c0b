"""[both] The events of a client's queue: plain values, read from C by ``event_reader``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class AcknowledgedRecords:
    """Records that the brokers acknowledged; in three int64 arrays of equal length.

    ``counts`` records of the send ``send_ids``, for ``partitions`` of its topic. A pair of send
    and partition may appear more than once.
    """

    send_ids: npt.NDArray[np.int64]
    partitions: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    def counts_by_send(self) -> dict[int, int]:
        """How many records of each send."""
        return _totals(self.send_ids, self.counts)

    def counts_by_partition(self, send_ids: Sequence[int]) -> dict[int, int]:
        """How many records for each partition, of those sends."""
        which = np.isin(self.send_ids, send_ids)
        return _totals(self.partitions[which], self.counts[which])


def _totals(keys: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> dict[int, int]:
    unique, index = np.unique(keys, return_inverse=True)
    totals = np.bincount(index, counts).astype(np.int64)
    return dict(zip(unique.tolist(), totals.tolist(), strict=True))


@dataclass(frozen=True)
class FailedRecords:
    """``count`` records of one send, for one partition (-1: not assigned yet), with one error.

    ``possibly_persisted`` says whether the brokers may have stored them anyway
    (``rd_kafka_message_status``). ``positions``: which records of the send, in ascending order,
    if ``code`` is among ``REJECTIONS``. ``is_named``: brokers rejected their batch because of them,
    and said so (KIP-467).
    """

    send_id: int
    partition: int
    code: int
    possibly_persisted: bool
    count: int
    positions: tuple[int, ...] = ()
    is_named: bool = False

    @property
    def is_by_client(self) -> bool:
        """Of rejected records: whether a limit of the client's own did it, and not a broker's."""
        return self.partition < 0


class Operation(IntEnum):
    """What a user may do (``rd_kafka_AclOperation_t``)."""

    READ = 3
    WRITE = 4
    IDEMPOTENT_WRITE = 12


@dataclass(frozen=True)
class PartitionDescription:
    """A partition of a topic, and how many replicas it has, and has in sync."""

    id: int
    has_leader: bool
    replica_count: int
    in_sync_count: int


@dataclass(frozen=True)
class TopicDescription:
    """The brokers' answer about a topic; ``code`` 0: it exists, and this is its metadata.

    ``available_partitions``: those that have a leader; ``leader_racks``: the rack of each of these
    leaders, None if the broker has none (``broker.rack``). ``partitions``, all of them, and
    ``operations``, what the user may do: only if the request included the authorized operations.
    Brokers before Kafka 2.3, and others than Apache Kafka's, may leave the operations empty.
    """

    topic: str
    code: int
    partition_count: int
    available_partitions: tuple[int, ...]
    leader_racks: tuple[str | None, ...] = ()
    partitions: tuple[PartitionDescription, ...] = ()
    operations: frozenset[int] = frozenset()

    @property
    def may_write(self) -> bool:
        """False only if the brokers say so."""
        return not self.operations or Operation.WRITE in self.operations


@dataclass(frozen=True)
class ClusterDescription:
    """The cluster's brokers; ``code`` 0: they answered, with these node ids.

    ``controller_id`` is None without a controller; ``operations`` as of a topic.
    """

    code: int
    broker_ids: tuple[int, ...]
    cluster_id: str = ""
    controller_id: int | None = None
    operations: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ConfigurationDescription:
    """The settings of a topic or broker by name; ``code`` 0: they are known.

    ``resource``: the topic's name or broker's id. A request without an answer yields one of these
    for each of its resources. Secret and unset settings are empty.
    """

    resource: str
    code: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class ApiVersion:
    """The newest version of a request that a broker supports; needs ``debug=feature``.

    There is one for each request that it supports, whenever the client connects to it.
    """

    api_key: int
    newest: int


@dataclass(frozen=True)
class Statistics:
    """What the client counts; needs ``statistics.interval.ms``.

    ``is_connected``: a broker has accepted the login. ``retried_requests``: since the client was
    created. ``round_trip_ms``: median and 99th percentile of requests to the slowest broker, in the
    latest interval; None: there were none. ``awaits_connection``: an attempt to connect or to
    authenticate has had no answer for half a second. ``keeps_waiting``: a broker has accepted a
    connection, and not answered on it for two seconds. ``addresses``: what the brokers advertise,
    by node id.
    """

    is_connected: bool
    retried_requests: int
    round_trip_ms: tuple[float, float] | None
    awaits_connection: bool = False
    keeps_waiting: bool = False
    addresses: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenNeeded:
    """The client needs an OAUTHBEARER token: its first, or the successor of one that expires."""


@dataclass(frozen=True)
class TokenRequestFailed:
    """The token endpoint gave no token; the BrokerError that follows says why.

    ``status``: that of its HTTP answer; -1: there was no answer. None: not known, because the
    answer is longer than a log line.
    """

    status: int | None


@dataclass(frozen=True)
class RequestFailed:
    """A metadata request got no answer for any of its ``topics``."""

    code: int
    topics: tuple[str, ...]


@dataclass(frozen=True)
class BrokerError:
    """An error between client and brokers; librdkafka retries."""

    code: int
    text: str


Event = (
    AcknowledgedRecords
    | FailedRecords
    | TopicDescription
    | ClusterDescription
    | ConfigurationDescription
    | ApiVersion
    | Statistics
    | TokenNeeded
    | TokenRequestFailed
    | RequestFailed
    | BrokerError
)

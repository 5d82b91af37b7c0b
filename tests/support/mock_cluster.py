"""MockCluster: librdkafka's in-process broker, for tests without a Kafka."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_int, c_int16, c_int32, c_size_t, c_void_p
from types import TracebackType
from typing import Any

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka._prototypes import prototype
from spark_kafka_sink.librdkafka.client import Client

mock_cluster_new = prototype("rd_kafka_mock_cluster_new", c_void_p, c_void_p, c_int)
mock_cluster_destroy = prototype("rd_kafka_mock_cluster_destroy", None, c_void_p)
mock_cluster_bootstraps = prototype("rd_kafka_mock_cluster_bootstraps", c_char_p, c_void_p)
mock_topic_create = prototype("rd_kafka_mock_topic_create", c_int, c_void_p, c_char_p, c_int, c_int)
mock_partition_set_leader = prototype(
    "rd_kafka_mock_partition_set_leader", c_int, c_void_p, c_char_p, c_int32, c_int32
)
mock_broker_add = prototype("rd_kafka_mock_broker_add", c_int, c_void_p, c_int32)
mock_topic_set_error = prototype("rd_kafka_mock_topic_set_error", None, c_void_p, c_char_p, c_int)
mock_clear_request_errors = prototype("rd_kafka_mock_clear_request_errors", None, c_void_p, c_int16)
mock_push_request_errors = prototype(
    "rd_kafka_mock_push_request_errors_array",
    None, c_void_p, c_int16, c_size_t, POINTER(c_int),
)  # fmt: skip
# Its last arguments are pairs of an error code and a delay in milliseconds.
mock_push_request_error_rtts = prototype(
    "rd_kafka_mock_broker_push_request_error_rtts",
    c_int, c_void_p, c_int32, c_int16, c_size_t, c_int, c_int,
)  # fmt: skip
mock_coordinator_set = prototype(
    "rd_kafka_mock_coordinator_set", c_int, c_void_p, c_char_p, c_char_p, c_int32
)
mock_set_apiversion = prototype(
    "rd_kafka_mock_set_apiversion", c_int, c_void_p, c_int16, c_int16, c_int16
)
mock_broker_set_rtt = prototype("rd_kafka_mock_broker_set_rtt", c_int, c_void_p, c_int32, c_int)
mock_broker_set_down = prototype("rd_kafka_mock_broker_set_down", c_int, c_void_p, c_int32)
mock_broker_set_up = prototype("rd_kafka_mock_broker_set_up", c_int, c_void_p, c_int32)

PRODUCE = 0
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
INIT_PRODUCER_ID = 22
ADD_OFFSETS_TO_TXN = 25

# The controller in its metadata answers; the cluster has no broker with this id unless we add it.
CONTROLLER = 0


class MockCluster:
    """A mock cluster of ``brokers`` brokers on loopback ports (``rd_kafka_mock_cluster_new``).

    Brokers are numbered from 1. Broker 0 is the controller, and never leads a topic of
    ``create_topic``. Unknown topics are created automatically. Context manager.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._owner = Client({"bootstrap.servers": "", "client.id": "mock-cluster"})
        self._brokers = brokers
        self._cluster = mock_cluster_new(self._owner.handle, brokers)
        self.bootstrap_servers = str(mock_cluster_bootstraps(self._cluster).decode())
        self._caller = ThreadPoolExecutor(1)
        self._call(mock_broker_add, CONTROLLER)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        code = self._call(mock_topic_create, topic.encode(), partitions, 1)
        if code:
            raise ValueError(f"the mock cluster cannot create {topic}: error {code}")
        for partition in range(partitions):
            self.set_leader(topic, partition, 1 + partition % self._brokers)

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Move a partition to a leader; -1 means none."""
        self._call(mock_partition_set_leader, topic.encode(), partition, broker)

    def set_coordinator(self, group: str, broker: int) -> None:
        """Name a broker (counted from 1) as the coordinator of a consumer group."""
        self._call(mock_coordinator_set, b"group", group.encode(), broker)

    def set_topic_error(self, topic: str, code: int) -> None:
        """Let every metadata answer carry this error for the topic; 0 clears it."""
        self._call(mock_topic_set_error, topic.encode(), code)

    def push_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """Let the next requests of that kind be answered with these error codes, one each."""
        self._call(
            mock_push_request_errors, api_key, len(codes), (ctypes.c_int * len(codes))(*codes)
        )

    def clear_errors(self, api_key: int) -> None:
        """Forget the error codes that no request was answered with."""
        self._call(mock_clear_request_errors, api_key)

    def delay_answers(self, broker: int, api_key: int, count: int, milliseconds: int) -> None:
        """Delay the broker's next answers to requests of that kind."""
        for _ in range(count):
            self._call(mock_push_request_error_rtts, broker, api_key, 1, 0, milliseconds)

    def set_newest_version(self, api_key: int, version: int) -> None:
        """Let the brokers claim to support that kind of request up to a version; -1: not at all."""
        self._call(mock_set_apiversion, api_key, min(version, 0), version)

    def set_round_trip(self, broker: int, milliseconds: int) -> None:
        """Delay every answer of that broker (counted from 1)."""
        self._call(mock_broker_set_rtt, broker, milliseconds)

    def set_down(self, broker: int) -> None:
        self._call(mock_broker_set_down, broker)

    def set_up(self, broker: int) -> None:
        self._call(mock_broker_set_up, broker)

    def close(self) -> None:
        if self._cluster is None:
            return
        self._call(mock_cluster_destroy)
        self._cluster = None
        self._caller.shutdown()
        self._owner.close(Deadline(5))

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Call a function on the cluster, and wake its thread, which may oversleep by a second."""
        if self._cluster is None:
            raise RuntimeError("the mock cluster is closed")
        done = self._caller.submit(function, self._cluster, *arguments)
        host, _, port = self.bootstrap_servers.partition(",")[0].rpartition(":")
        while not wait([done], timeout=0.005).done:
            with suppress(OSError):  # the broker is down; the call then takes a second
                socket.create_connection((host, int(port)), timeout=1).close()
        return done.result()

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

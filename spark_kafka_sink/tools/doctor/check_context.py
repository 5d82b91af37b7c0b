"""CheckContext: what the checks of one diagnosis pass to later checks."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from spark_kafka_sink.clients.sockets import Server
from spark_kafka_sink.config.kerberos import PRINCIPAL, is_kerberos
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka.events import ClusterDescription, TopicDescription
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.tools.doctor.brokers import Brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")

_NO_CLUSTER = ClusterDescription(0, ())
_NO_TOPIC = TopicDescription("", 0, 0, ())


@dataclass
class CheckContext:
    """The options, and what the checks have learned so far.

    A check may read a field only if it needs the check that sets it (``diagnosis.CHECKS``).
    """

    #: may contain secrets
    options: Mapping[str, object] = field(repr=False)
    write_test_record: bool
    spark: SparkSession | None
    #: of the running check
    deadline: Deadline
    #: the partitions of the topics that the job creates if they are missing
    created_topics: Mapping[str, int] = field(default_factory=dict)
    #: the DataFrame's, if the caller has one
    schema: StructType | None = None

    # set by options
    parsed: SinkOptions | None = None
    # set by bootstrap_servers and tls: the servers that work
    servers: list[Server] = field(default_factory=list)
    tls_context: ssl.SSLContext | None = None
    # set by login
    brokers: Brokers | None = None
    advertised: Mapping[int, Server] = field(default_factory=dict)
    # set by cluster
    cluster: ClusterDescription = _NO_CLUSTER
    # set by topic, and by topic_settings
    topic: TopicDescription = _NO_TOPIC
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    # set by broker_settings
    broker_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def sink(self) -> SinkOptions:
        return _present(self.parsed)

    @property
    def settings(self) -> ClientSettings:
        """librdkafka's settings."""
        return self.sink.producer.client

    @property
    def topic_name(self) -> str:
        return _present(self.sink.topic)

    @property
    def client(self) -> Brokers:
        return _present(self.brokers)

    @property
    def user(self) -> str:
        """The user in ACLs, if the settings name it."""
        if "sasl.username" in self.settings:
            return f"User:{self.settings['sasl.username']}"
        if PRINCIPAL in self.settings and is_kerberos(self.settings):
            # Kafka's default rule; sasl.kerberos.principal.to.local.rules may be another.
            return f"User:{re.split('[/@]', self.settings[PRINCIPAL])[0]}"
        protocol = self.settings.get("security.protocol", "plaintext")
        return "User:ANONYMOUS" if protocol == "plaintext" else "User:..."

    def secrets(self) -> list[str]:
        """The secret values of the clients' settings, once they are known."""
        if self.parsed is None:
            return []
        serialization = self.parsed.serialization
        registry_values = () if serialization is None else serialization.registry.values()
        values = (*self.settings.values(), *registry_values)
        return [value for value in values if isinstance(value, Secret)]

    def close(self) -> None:
        if self.brokers is not None:
            self.brokers.close()


def _present(value: T | None) -> T:
    if value is None:
        raise RuntimeError("a check ran before one that it needs")
    return value

"""Brokers: asks a cluster about itself, with the sink's settings; changes nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from spark_kafka_sink.clients.local_files import add_local_files
from spark_kafka_sink.clients.oauth_token import resolve
from spark_kafka_sink.clients.session import concerns_login
from spark_kafka_sink.clients.sockets import Server, server
from spark_kafka_sink.config.added_settings import query_settings
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.inquirer import UNREACHABLE_SECONDS
from spark_kafka_sink.errors import AuthenticationFailed, BrokerUnavailable
from spark_kafka_sink.librdkafka.event_reader import awaits_connection
from spark_kafka_sink.threads import start_thread

_STATISTICS_MS = 100
_WAITING_US = 2_000_000  # a broker that closes a connection does so sooner
_POLL_SECONDS = 0.05
_FREE_SECONDS = 1.0
_BROKERS_DEFAULT = -1

#: the brokers do not support the request
UNSUPPORTED = (
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - a public constant
)

# A coordinator that has just been elected, or is loading its groups, answers soon.
_COORDINATOR_STARTS = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_RETRY_SECONDS = 0.1

# The client's log lines repeat its errors.
_quiet = logging.getLogger("spark_kafka_sink.tools.doctor.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class Brokers:
    """An AdminClient. Raises KafkaException if the client rejects the settings."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._learned: dict[int, Server] = {}
        self._error: KafkaError | None = None
        self._patience: Deadline | None = None
        #: whether a broker has accepted a connection, and then kept it waiting
        self.keep_waiting = False
        configuration: dict[str, Any] = {
            **settings,
            **query_settings(_STATISTICS_MS),
            "stats_cb": self._on_statistics,
            "error_cb": self._on_error,
        }
        self._admin: AdminClient | None = AdminClient(configuration, logger=_quiet)

    def log_in(self, deadline: Deadline) -> Mapping[int, Server]:
        """Wait until a broker accepts the login; returns the brokers' addresses by node id.

        They are the advertised listeners, which may be unreachable.
        Raises AuthenticationFailed or BrokerUnavailable.
        """
        previous: Mapping[int, Server] = {}
        while not deadline.expired:
            self._client.poll(deadline.slice(_POLL_SECONDS))
            if self._error is not None and _ends_login(self._error):
                raise AuthenticationFailed(self._error.str())
            learned = self._learned
            # The first statistics may be written while brokers are being added.
            if learned and learned is not previous and learned == previous:
                return learned
            previous = learned
            if not learned and self._patience is not None and self._patience.expired:
                break
        what = "they closed every connection" if self._patience else "no answer in time"
        if self.keep_waiting:
            what = "they accept connections, and keep them waiting"
        raise BrokerUnavailable(self._error.str() if self._error else what)

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.keep_waiting |= any(
            awaits_connection(broker, _WAITING_US) and broker["state"] != "CONNECT"
            for broker in brokers
        )
        self._learned = {
            broker["nodeid"]: server(broker["nodename"])
            for broker in brokers
            if broker["source"] == "learned"
        }

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - a public constant
            self._patience = self._patience or Deadline(UNREACHABLE_SECONDS)
        elif self._error is None or not _ends_login(self._error):
            self._error = error

    # --- requests: they raise KafkaException or TimeoutError --------------------------------------

    def cluster(self, deadline: Deadline) -> Any:
        """``confluent_kafka.admin.DescribeClusterResult``, with the operations of this user."""
        seconds = _seconds(deadline)
        return self._client.describe_cluster(
            include_authorized_operations=True, request_timeout=seconds
        ).result(seconds)

    def topic(self, name: str, deadline: Deadline) -> Any:
        """``confluent_kafka.admin.TopicDescription``; does not make brokers create the topic."""
        seconds = _seconds(deadline)
        answers = self._client.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=seconds
        )
        return answers[name].result(seconds)

    def creation_error(self, name: str, deadline: Deadline) -> KafkaError | None:
        """The error with which brokers would answer the creation of a topic, with their defaults.

        None if they would create it, or cannot tell. Creates nothing.
        """
        seconds = _seconds(deadline)
        answers = self._client.create_topics(
            [NewTopic(name, _BROKERS_DEFAULT, _BROKERS_DEFAULT)],
            validate_only=True,
            operation_timeout=seconds,
            request_timeout=seconds,
        )
        try:
            answers[name].result(seconds)
        except KafkaException as error:
            return None if error_code(error) in UNSUPPORTED else error.args[0]
        return None

    def group(self, name: str, deadline: Deadline) -> Any:
        """``confluent_kafka.ConsumerGroupDescription``, even of a group that does not exist."""
        while True:
            seconds = _seconds(deadline)
            answers = self._client.describe_consumer_groups(
                [name], include_authorized_operations=True, request_timeout=seconds
            )
            try:
                return answers[name].result(seconds)
            except KafkaException as error:
                if error_code(error) not in _COORDINATOR_STARTS or deadline.expired:
                    raise
            time.sleep(deadline.slice(_RETRY_SECONDS))

    # Brokers other than Apache Kafka may omit some settings, their values, or all of them.

    def topic_settings(self, name: str, deadline: Deadline) -> Mapping[str, str]:
        return self._settings(ConfigResource(ResourceType.TOPIC, name), deadline)

    def broker_settings(self, node_id: int, deadline: Deadline) -> Mapping[str, str]:
        return self._settings(ConfigResource(ResourceType.BROKER, str(node_id)), deadline)

    def _settings(self, resource: Any, deadline: Deadline) -> Mapping[str, str]:
        seconds = _seconds(deadline)
        (answer,) = self._client.describe_configs([resource], request_timeout=seconds).values()
        try:
            entries = answer.result(seconds)
        except KafkaException as error:
            if error_code(error) in UNSUPPORTED:
                return {}
            raise
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    @property
    def _client(self) -> AdminClient:
        if self._admin is None:
            raise RuntimeError("closed")
        return self._admin

    def close(self) -> None:
        """Free the client, in a daemon thread: a name look-up may delay that beyond our wait."""
        box, self._admin = [self._admin], None
        start_thread(box.clear, "rd_kafka_destroy").join(_FREE_SECONDS)


def confluent_settings(settings: ClientSettings) -> dict[str, Any]:
    """librdkafka's settings for confluent_kafka, which calls the function for tokens itself."""
    name = settings.oauth_callback
    return {**add_local_files(settings), **({"oauth_cb": resolve(name)} if name else {})}


def _ends_login(error: KafkaError) -> bool:
    is_tls = error.code() == KafkaError._SSL  # noqa: SLF001 - a public constant
    return is_tls or concerns_login(error.code(), error.str())


def error_code(error: KafkaException) -> int:
    return int(error.args[0].code())


def error_text(error: KafkaException) -> str:
    """The error's text; librdkafka leaves that of a group's error empty after ``request: ``."""
    text = str(error.args[0].str())
    return f"{text}{error.args[0].name()}" if text.endswith(": ") else text


def _seconds(deadline: Deadline) -> float:
    return max(0.001, deadline.remaining())

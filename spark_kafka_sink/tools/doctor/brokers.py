"""Brokers: asks a cluster about itself, with the sink's settings; changes nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.clients.kerberos import add_ticket
from spark_kafka_sink.clients.local_files import add_local_files
from spark_kafka_sink.clients.oauth_token import shared_token
from spark_kafka_sink.config.added_settings import query_settings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.inquirer import UNREACHABLE_SECONDS, Inquirer
from spark_kafka_sink.errors import BrokerUnavailable
from spark_kafka_sink.librdkafka.error_codes import error_text
from spark_kafka_sink.librdkafka.events import (
    ClusterDescription,
    ConfigurationDescription,
    TopicDescription,
)
from spark_kafka_sink.threads import start_thread

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

T = TypeVar("T", ClusterDescription, ConfigurationDescription, TopicDescription)


class RequestRejected(Exception):
    """The answer to a request is an error, of the brokers or the client, with this ``code``."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or error_text(code))
        self.code = code


class Brokers:
    """An inquirer and, for what it cannot ask, an AdminClient.

    Requests raise RequestRejected, TimeoutError, or AuthenticationFailed. Any thread may call them:
    a check that exceeds its time may still run beside the next one.
    """

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer
        self._lock = threading.Lock()  # held while a thread uses the inquirer
        self._admin: AdminClient | None = None

    @contextmanager
    def _access(self, deadline: Deadline) -> Iterator[Inquirer]:
        if not self._lock.acquire(timeout=deadline.remaining()):
            raise TimeoutError
        try:
            yield self._inquirer
        finally:
            self._lock.release()

    def authenticate(self, deadline: Deadline) -> Mapping[int, str]:
        """Wait until a broker accepts the client; returns the brokers' addresses by node id.

        They are the advertised listeners, which may be unreachable.
        Raises AuthenticationFailed or BrokerUnavailable.
        """
        timeout_seconds = deadline.remaining()
        with self._access(deadline) as inquirer:
            inquirer.client.describe_cluster(timeout_seconds, include_authorized_operations=True)
            until_unreachable = Deadline(UNREACHABLE_SECONDS)
            while not deadline.expired and not (inquirer.are_down and until_unreachable.expired):
                inquirer.listen(deadline)
                if inquirer.addresses:
                    return inquirer.addresses
            error = inquirer.unavailable(f"{timeout_seconds - deadline.remaining():.1f} s")
            raise _not_accepted(inquirer) if isinstance(error, BrokerUnavailable) else error

    @property
    def newest_versions(self) -> Mapping[int, int]:
        """The newest version of each request that the brokers have, by API key."""
        return self._inquirer.newest_versions

    def cluster(self, deadline: Deadline) -> ClusterDescription:
        with self._access(deadline) as inquirer:
            return _valid(inquirer.cluster(deadline))

    def topic(self, name: str, deadline: Deadline) -> TopicDescription:
        """Does not make brokers create the topic."""
        with self._access(deadline) as inquirer:
            return _valid(inquirer.topic(name, deadline))

    # Brokers other than Apache Kafka may omit some settings, their values, or all of them.

    def topic_settings(self, name: str, deadline: Deadline) -> Mapping[str, str]:
        with self._access(deadline) as inquirer:
            return _settings(inquirer.topic_configuration(name, deadline))

    def broker_settings(self, node_id: int, deadline: Deadline) -> Mapping[str, str]:
        with self._access(deadline) as inquirer:
            return _settings(inquirer.broker_configuration(node_id, deadline))

    # --- what only an AdminClient can ask ---------------------------------------------------------

    def creation_error(self, name: str, deadline: Deadline) -> RequestRejected | None:
        """The error with which brokers would answer the creation of a topic, with their defaults.

        None if they would create it, or cannot tell. Creates nothing.
        """
        new = NewTopic(name, _BROKERS_DEFAULT, _BROKERS_DEFAULT)
        try:
            self.create(new, deadline, validate_only=True)
        except RequestRejected as error:
            return None if error.code in UNSUPPORTED else error
        return None

    def create(self, topic: NewTopic, deadline: Deadline, *, validate_only: bool = False) -> None:
        """``validate_only``: creates nothing."""
        seconds = _seconds(deadline)
        answers = self._client.create_topics(
            [topic],
            validate_only=validate_only,
            operation_timeout=seconds,
            request_timeout=seconds,
        )
        _result(answers[topic.topic], deadline)

    def group_operations(self, name: str, deadline: Deadline) -> list[int]:
        """What this user may do with a consumer group, even one that does not exist.

        Empty if the brokers do not say.
        """
        while True:
            answers = self._client.describe_consumer_groups(
                [name], include_authorized_operations=True, request_timeout=_seconds(deadline)
            )
            try:
                described = _result(answers[name], deadline)
                return [operation.value for operation in described.authorized_operations or ()]
            except RequestRejected as error:
                if error.code not in _COORDINATOR_STARTS or deadline.expired:
                    raise
            time.sleep(deadline.slice(_RETRY_SECONDS))

    @property
    def _client(self) -> AdminClient:
        """It connects on its own, but with the inquirer's settings and token."""
        if self._admin is None:
            user_settings = self._inquirer.settings
            local = add_local_files(query_settings(user_settings, 0))
            settings: dict[str, Any] = {**add_ticket(local)}
            if user_settings.oauth_callback:
                settings["oauth_cb"] = partial(shared_token, user_settings)
            self._admin = AdminClient(settings, logger=_quiet)
            user, password = settings.get("sasl.username"), settings.get("sasl.password")
            if user and password:  # with white space at the beginning, as in ``Client``
                self._admin.set_sasl_credentials(user, password)
        return self._admin

    def close(self) -> None:
        """Free the clients; a name look-up may delay that beyond our wait."""
        box, self._admin = [self._admin], None
        freeing = start_thread(box.clear, "rd_kafka_destroy")
        deadline = Deadline(_FREE_SECONDS)
        if self._lock.acquire(timeout=deadline.remaining()):  # otherwise a check uses it
            self._inquirer.client.close(deadline)
        freeing.join(deadline.remaining())


def _not_accepted(inquirer: Inquirer) -> BrokerUnavailable:
    """What to raise if brokers accept connections, but not the client."""
    remedy: str = (
        "The listener may require a login, TLS or a client's certificate: check "
        "kafka.security.protocol, kafka.sasl.* and kafka.ssl.keystore.*; or the brokers limit "
        "connections (max.connections, max.connections.per.ip)"
    )
    what = "they closed every connection" if inquirer.are_down else "no answer in time"
    if inquirer.keep_waiting:
        what = "they accept connections, and keep them waiting"
        remedy = str(Advice.CONNECTIONS_ARE_LATE)
    problem = f": {inquirer.problem}" if inquirer.problem else ""
    return BrokerUnavailable(f"no broker accepts this client: {what}{problem}", remedy)


def _valid(answer: T | None) -> T:
    if answer is None:
        raise TimeoutError
    if answer.code:
        raise RequestRejected(answer.code)
    return answer


def _settings(answer: ConfigurationDescription | None) -> Mapping[str, str]:
    if answer is not None and answer.code in UNSUPPORTED:
        return {}
    return {name: value for name, value in _valid(answer).settings.items() if value}


def _result(answer: Future[Any], deadline: Deadline) -> Any:
    try:
        return answer.result(_seconds(deadline))
    except KafkaException as error:
        # librdkafka leaves the text of a group's error empty after ``request: ``.
        code, text = error.args[0].code(), str(error.args[0].str())
        text += error.args[0].name() if text.endswith(": ") else ""
        raise RequestRejected(code, text) from None
    except FutureTimeoutError:  # another class before Python 3.11
        raise TimeoutError from None


def _seconds(deadline: Deadline) -> float:
    return max(0.001, deadline.remaining())

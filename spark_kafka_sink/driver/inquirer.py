"""[driver] A client that asks brokers before any task, and what their answers and errors show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from spark_kafka_sink.advice import Advice, concerns_openssl
from spark_kafka_sink.clients.session import Session, concerns_login
from spark_kafka_sink.clients.sockets import concerns_clients_certificate, tls_explanation
from spark_kafka_sink.config.added_settings import preflight_settings
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import AuthenticationFailed, BrokerUnavailable, TokenUnavailable
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import ErrorCode, error_name
from spark_kafka_sink.librdkafka.events import (
    ApiVersion,
    BrokerError,
    ClusterDescription,
    ConfigurationDescription,
    RequestFailed,
    Statistics,
    TopicDescription,
)
from spark_kafka_sink.process_limits import thread_limit_reached

# Brokers that refuse all connections may be starting up. After start(), Spark adds 1 s to this, and
# 5 s or more in a new session; together this stays below 10 s.
UNREACHABLE_SECONDS = 3.0
# A connected broker that is slow to describe the topic must not delay the micro-batch.
_ANSWER_SECONDS = 0.25
#: for all requests of one question
CONFIGURATION_SECONDS = 3.0
_STATE_INTERVAL_MS = 10
_POLL_SECONDS = 0.1
_FREE_SECONDS = 1.0

Answer = TopicDescription | ClusterDescription | ConfigurationDescription
AnswerT = TypeVar("AnswerT", TopicDescription, ClusterDescription, ConfigurationDescription)


class NoAnswer(Exception):
    """Ends a check that is not to be cached."""


class Inquirer:
    """A client, and what is known about the brokers."""

    def __init__(self, settings: ClientSettings, *, reports_versions: bool = False) -> None:
        self.settings = settings
        #: of each request, what all brokers support that were connected so far
        self.newest_versions: dict[int, int] = {}
        #: whether the client has tried to connect to any of them; before, it needs its token
        self._were_tried = False
        self._are_down = False
        #: if one did not answer, its name may have other addresses, which the client tries next
        self._until_others_are_tried = Deadline(0.0)
        #: when to stop waiting for an answer; None while no broker is connected
        self.end_of_answers: Deadline | None = None
        #: the text of the client's latest error
        self.problem = ""
        new_client = partial(Client, reports_versions=reports_versions)
        self._session = Session(new_client, preflight_settings(settings, _STATE_INTERVAL_MS))
        self.client = self._session.client

    @property
    def are_down(self) -> bool:
        """All of them refuse connections or hang up, or their names do not resolve."""
        return self._are_down and self._until_others_are_tried.expired

    @property
    def answers_are_late(self) -> bool:
        return self.end_of_answers is not None and self.end_of_answers.expired

    def listen(self, deadline: Deadline) -> list[Answer]:
        """Return the answers received so far, or wait a moment for the next event.

        Raises AuthenticationFailed if a broker rejects the login, and LimitReached.
        """
        answers: list[Answer] = []
        for event in self._session.poll(deadline.slice(_POLL_SECONDS)):
            if isinstance(event, Statistics):
                self._were_tried |= event.awaits_connection or event.is_connected
                if event.awaits_connection:
                    self._until_others_are_tried = Deadline(UNREACHABLE_SECONDS)
                if event.is_connected:
                    self._are_down = False
                    self.end_of_answers = self.end_of_answers or Deadline(_ANSWER_SECONDS)
            elif isinstance(event, BrokerError):
                self._note(event)
            elif isinstance(event, RequestFailed):
                self.problem = self.problem or error_name(event.code)
            elif isinstance(event, ApiVersion):
                known = self.newest_versions.get(event.api_key, event.newest)
                self.newest_versions[event.api_key] = min(known, event.newest)
            elif isinstance(event, Answer):
                answers.append(event)
        return answers

    def _note(self, error: BrokerError) -> None:
        self._were_tried = True
        if concerns_login(error.code, error.text):
            if self._session.awaits_token:
                return  # the rejected token, which may be an old one, is being replaced
            raise self._session.login_error(error)
        concerns_tls = concerns_clients_certificate(error.text) or concerns_openssl(error.text)
        if error.code == ErrorCode.SSL or concerns_tls:
            raise AuthenticationFailed(tls_explanation(error.text, self.settings))
        if error.code == ErrorCode.CRIT_SYS_RESOURCE:
            raise thread_limit_reached(error.text)
        if error.code == ErrorCode.ALL_BROKERS_DOWN:
            # Also if a broker accepts connections and closes them; it may require a login.
            self._are_down, self.end_of_answers = True, None
        else:
            self.problem = error.text

    def wait_for(self, kind: type[AnswerT], deadline: Deadline) -> AnswerT | None:
        """The next answer of that kind, or None if none arrives by the deadline."""
        while not deadline.expired:
            for answer in self.listen(deadline):
                if isinstance(answer, kind):
                    return answer
        return None

    def unavailable(self, waited: str) -> BrokerUnavailable | TokenUnavailable:
        """What to raise if none of them has answered; ``waited``: how long."""
        if self._session.fetches_tokens and not self._were_tried:
            return self._session.late_token_error(waited)
        return BrokerUnavailable(
            f"no broker answered at {self.settings['bootstrap.servers']} within {waited}"
            f"{': ' * bool(self.problem)}{self.problem}. {Advice.NO_BROKER.remedy}"
        )

    def discard_token(self) -> None:
        """Let the next check get a new one."""
        self._session.discard_token()

    def broker_ids(self, deadline: Deadline) -> tuple[int, ...]:
        """The ids of all brokers; none if there is no answer by the deadline."""
        self.client.describe_cluster(deadline.remaining())
        cluster = self.wait_for(ClusterDescription, deadline)
        return () if cluster is None else cluster.broker_ids

    def broker_configuration(
        self, broker_ids: tuple[int, ...], deadline: Deadline
    ) -> ConfigurationDescription | None:
        """The settings of one of the brokers, or None if there is no answer by the deadline."""
        if not broker_ids:
            return None
        self.client.describe_broker_configs(broker_ids[0], deadline.remaining())
        return self.wait_for(ConfigurationDescription, deadline)

    def topic_configuration(
        self, topic: str, deadline: Deadline
    ) -> ConfigurationDescription | None:
        """The settings of a topic, or None if there is no answer by the deadline."""
        self.client.describe_topic_configs([topic], deadline.remaining())
        return self.wait_for(ConfigurationDescription, deadline)


@contextmanager
def asking(settings: ClientSettings, *, reports_versions: bool = False) -> Iterator[Inquirer]:
    """An inquirer, which is closed at the end."""
    brokers = Inquirer(settings, reports_versions=reports_versions)
    try:
        yield brokers
    except BaseException:
        brokers.discard_token()  # it may be the cause, such as the groups in it
        raise
    finally:
        brokers.client.close(Deadline(_FREE_SECONDS))


def topic_exists(options: SinkOptions, timeout_seconds: float) -> bool:
    """Whether a broker says within the timeout that the option's topic exists.

    Raises AuthenticationFailed or InvalidOption.
    """
    if options.topic is None:
        return False
    with asking(options.producer.client) as brokers:
        brokers.client.describe_topics([options.topic], timeout_seconds)
        answer = brokers.wait_for(TopicDescription, Deadline(timeout_seconds))
        return answer is not None and answer.code == ErrorCode.NO_ERROR


def newest_versions(settings: ClientSettings, deadline: Deadline) -> dict[int, int]:
    """The newest version of each request among the connected brokers, by API key.

    Empty if none answers by the deadline. Raises AuthenticationFailed or InvalidOption.
    """
    with asking(settings, reports_versions=True) as brokers:
        brokers.broker_ids(deadline)
        return brokers.newest_versions

"""[driver] A client that asks brokers before any task, and what their answers and errors show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from spark_kafka_sink.advice import Advice, advice_on_text, concerns_openssl
from spark_kafka_sink.clients.session import Session, concerns_login
from spark_kafka_sink.clients.sockets import concerns_clients_certificate, tls_explanation
from spark_kafka_sink.config.added_settings import query_settings
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
_POLL_SECONDS = 0.1
_FREE_SECONDS = 1.0

Answer = TopicDescription | RequestFailed | ClusterDescription | ConfigurationDescription


class NoAnswer(Exception):
    """Ends a check that is not to be cached."""


class Inquirer:
    """A client, and what is known about the brokers.

    ``statistics_ms``: how often the client says whether it is connected, also while nobody listens.
    """

    def __init__(
        self, settings: ClientSettings, *, reports_versions: bool = False, statistics_ms: int = 10
    ) -> None:
        self.settings = settings
        #: of each request, what all brokers support that were connected so far
        self.newest_versions: dict[int, int] = {}
        #: what they advertise, by node id
        self.addresses: Mapping[int, str] = {}
        self._latest_addresses: Mapping[int, str] = {}
        #: whether one has accepted a connection, and then kept it waiting
        self.keep_waiting = False
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
        self._session = Session(new_client, query_settings(settings, statistics_ms))
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

        Raises AuthenticationFailed if a broker rejects the authentication, and LimitReached.
        """
        answers: list[Answer] = []
        for event in self._session.poll(deadline.slice(_POLL_SECONDS)):
            if isinstance(event, Statistics):
                self._note_state(event)
            elif isinstance(event, BrokerError):
                self._note_error(event)
            elif isinstance(event, ApiVersion):
                known = self.newest_versions.get(event.api_key, event.newest)
                self.newest_versions[event.api_key] = min(known, event.newest)
            elif isinstance(event, Answer):
                answers.append(event)
                if isinstance(event, RequestFailed):
                    self.problem = self.problem or error_name(event.code)
        return answers

    def _note_state(self, state: Statistics) -> None:
        self.keep_waiting |= state.keeps_waiting
        self._were_tried |= state.awaits_connection or state.is_connected
        if state.awaits_connection:
            self._until_others_are_tried = Deadline(UNREACHABLE_SECONDS)
        if state.is_connected:
            self._are_down = False
            self.end_of_answers = self.end_of_answers or Deadline(_ANSWER_SECONDS)
        # The first statistics may be written while brokers are being added.
        if state.addresses == self._latest_addresses:
            self.addresses = state.addresses
        self._latest_addresses = state.addresses

    def _note_error(self, error: BrokerError) -> None:
        self._were_tried = True
        if concerns_login(error.code, error.text):
            if self._session.awaits_token:
                return  # the rejected token, which may be an old one, is being replaced
            raise self._session.login_error(error)
        concerns_tls = concerns_clients_certificate(error.text) or concerns_openssl(error.text)
        if error.code == ErrorCode.SSL or concerns_tls:
            raise AuthenticationFailed(*tls_explanation(error.text, self.settings))
        if error.code == ErrorCode.CRIT_SYS_RESOURCE:
            raise thread_limit_reached(error.text)
        if error.code == ErrorCode.ALL_BROKERS_DOWN:
            # Also if a broker accepts connections and closes them; it may require authentication.
            self._are_down, self.end_of_answers = True, None
        else:
            self.problem = error.text

    def unavailable(self, waited: str) -> BrokerUnavailable | TokenUnavailable:
        """What to raise if none of them has answered; ``waited``: how long."""
        if not self._were_tried and (self._session.fetches_tokens or self._session.awaits_token):
            return self._session.late_token_error(waited)
        return BrokerUnavailable(
            f"no broker answered at {self.settings['bootstrap.servers']} within {waited}"
            f"{': ' * bool(self.problem)}{self.problem}",
            advice_on_text(self.problem, Advice.NO_BROKER).remedy,
        )

    def discard_token(self) -> None:
        """Let the next check get a new one."""
        self._session.discard_token()

    # --- questions: None if there is no answer by the deadline ------------------------------------

    def _answers(self, deadline: Deadline) -> Iterator[Answer]:
        while not deadline.expired:
            yield from self.listen(deadline)

    def cluster(self, deadline: Deadline) -> ClusterDescription | None:
        """The brokers, and what this user may do with the cluster."""
        self.client.describe_cluster(deadline.remaining(), include_authorized_operations=True)
        for answer in self._answers(deadline):
            if isinstance(answer, ClusterDescription) and answer.broker_ids:
                return answer
        return None

    def topic(self, topic: str, deadline: Deadline) -> TopicDescription | None:
        """A topic, and what this user may do with it; does not make brokers create it."""
        self.client.describe_topics(
            [topic], deadline.remaining(), include_authorized_operations=True
        )
        for answer in self._answers(deadline):
            if isinstance(answer, TopicDescription) and answer.topic == topic:
                return answer
            if isinstance(answer, RequestFailed) and topic in answer.topics:
                return TopicDescription(topic, answer.code, 0, ())
        return None

    def broker_configuration(
        self, broker_id: int, deadline: Deadline
    ) -> ConfigurationDescription | None:
        """The settings of a broker."""
        self.client.describe_broker_configs(broker_id, deadline.remaining())
        return self._configuration(str(broker_id), deadline)

    def topic_configuration(
        self, topic: str, deadline: Deadline
    ) -> ConfigurationDescription | None:
        """The settings of a topic."""
        self.client.describe_topic_configs([topic], deadline.remaining())
        return self._configuration(topic, deadline)

    def _configuration(self, resource: str, deadline: Deadline) -> ConfigurationDescription | None:
        for answer in self._answers(deadline):
            if isinstance(answer, ConfigurationDescription) and answer.resource == resource:
                return answer
        return None


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
        answer = brokers.topic(options.topic, Deadline(timeout_seconds))
        return answer is not None and answer.code == ErrorCode.NO_ERROR

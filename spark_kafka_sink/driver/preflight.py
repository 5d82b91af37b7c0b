"""The driver's check before a micro-batch: a broker answers, accepts the login, has the topic.

Which brokers a Spark application has reached before is stored in a folder, shared by all its Python
workers. Without a folder, nothing is stored.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from spark_kafka_sink.advice import Advice, concerns_openssl, explain
from spark_kafka_sink.clients.session import Session, concerns_login
from spark_kafka_sink.clients.sockets import concerns_clients_certificate, tls_explanation
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.added_settings import preflight_settings
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import BlockBudget, ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.preconditions import unmet, unsupported
from spark_kafka_sink.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    InvalidOption,
    KafkaSinkError,
    TokenUnavailable,
    TopicUnavailable,
)
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import (
    NON_RETRIABLE_TOPIC_ERRORS,
    ErrorCode,
    error_name,
)
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


def were_reached(settings: ClientSettings, folder: Path | None) -> bool:
    """Whether ``mark_reached`` was called for these brokers with this folder.

    If nothing can be stored, they count as reached: ending a stream after a short outage is worse
    than reporting a wrong address late.
    """
    if folder is None:
        return False
    if not os.access(folder, os.W_OK | os.X_OK):
        return True
    try:
        status = _marker(settings, folder).lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def mark_reached(settings: ClientSettings, folder: Path | None) -> None:
    """Create an empty marker file for these brokers; never raises."""
    if folder is not None:
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
        with suppress(OSError):
            os.close(os.open(_marker(settings, folder), flags, 0o600))


def _marker(settings: ClientSettings, folder: Path) -> Path:
    """The file for these brokers. Its name contains no secret, not even hashed."""
    # A different protocol means other listeners, or the wrong protocol for this one.
    protocol = settings.get("security.protocol", "plaintext").lower()
    public = f"{protocol} {settings['bootstrap.servers']}"
    return folder / f"kafka-nb-reached-{hashlib.sha256(public.encode()).hexdigest()}"


_log = logging.getLogger("spark_kafka_sink")

# Brokers that refuse all connections may be starting up. After start(), Spark adds 1 s to this, and
# 5 s or more in a new session; together this stays below 10 s.
UNREACHABLE_SECONDS = 3.0
# A connected broker that is slow to describe the topic must not delay the micro-batch.
_ANSWER_SECONDS = 0.25
_CONFIGURATION_SECONDS = 3.0
_STATE_INTERVAL_MS = 10
_POLL_SECONDS = 0.1
_FREE_SECONDS = 1.0

Answer = TopicDescription | ClusterDescription | ConfigurationDescription
AnswerT = TypeVar("AnswerT", TopicDescription, ClusterDescription, ConfigurationDescription)


def check(options: SinkOptions, folder: Path | None = None) -> None:
    """Raise BrokerUnavailable, AuthenticationFailed or TopicUnavailable if no task could succeed.

    Runs once per process and configuration, so it runs again when Spark plans in a new process,
    which then needs the application's ``folder``. A failed check runs again.
    A rejected login or forbidden topic fails at once. Unreachable brokers fail the first
    micro-batch after a few seconds, but a later one only after its tasks' metadata budget, so that
    a stream survives a short outage. The tasks find out what the brokers do not answer in time.
    With exactly-once, brokers that cannot keep its promise raise InvalidOption, even without
    preflight, and settings of theirs that endanger it are logged as warnings.
    """
    if options.values[table.PREFLIGHT]:
        topics = tuple(filter(None, (options.topic, options.dead_letter_topic)))
        _check(options.producer.client, options.producer.budget, topics, folder)
    if options.exactly_once is not None:
        with suppress(_NoAnswer):
            _check_exactly_once(options.producer.client, options.exactly_once.ledger_topic)


def topic_exists(options: SinkOptions, timeout_seconds: float) -> bool:
    """Whether a broker says within the timeout that the option's topic exists.

    Raises AuthenticationFailed or InvalidOption.
    """
    if options.topic is None:
        return False
    with _open_client(options.producer.client) as brokers:
        brokers.client.fetch_metadata([options.topic], timeout_seconds)
        answer = brokers.wait_for(TopicDescription, Deadline(timeout_seconds))
        return answer is not None and answer.code == ErrorCode.NO_ERROR


def topic_settings(options: SinkOptions, *, from_cache: bool) -> Mapping[str, str]:
    """The settings of the option's topic; empty if the brokers do not or may not say in time.

    ``from_cache``: as this process has seen them before, if it has. Raises nothing.
    """
    if options.topic is None:
        return {}
    if not from_cache:
        _topic_settings.cache_clear()
    with suppress(_NoAnswer, KafkaSinkError):
        return _topic_settings(options.producer.client, options.topic)
    return {}


@cache
def _topic_settings(settings: ClientSettings, topic: str) -> Mapping[str, str]:
    """Without an answer, and of a topic that does not exist yet, the next call asks again."""
    deadline = Deadline(_CONFIGURATION_SECONDS)
    with _open_client(settings) as brokers:
        brokers.client.fetch_topic_configurations([topic], deadline.remaining())
        answer = brokers.wait_for(ConfigurationDescription, deadline)
    if answer is None or answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise _NoAnswer
    return answer.settings


def newest_versions(settings: ClientSettings, deadline: Deadline) -> dict[int, int]:
    """The newest version of each request among the connected brokers, by API key.

    Empty if none answers by the deadline. Raises AuthenticationFailed or InvalidOption.
    """
    with _open_client(settings, reports_versions=True) as brokers:
        _broker_ids(brokers, deadline)
        return brokers.newest_versions


def log_in(options: SinkOptions) -> None:
    """Raise BrokerUnavailable or AuthenticationFailed unless a broker accepts the login."""
    with _open_client(options.producer.client) as brokers:
        _reach(brokers, options.producer.budget, (), reached_before=False)


@cache
def _check(
    settings: ClientSettings, budget: BlockBudget, topics: tuple[str, ...], folder: Path | None
) -> None:
    with _open_client(settings) as brokers:
        descriptions = _reach(brokers, budget, topics, were_reached(settings, folder))
        mark_reached(settings, folder)
        for description in descriptions:
            _check_topic(brokers, description)


class _NoAnswer(Exception):
    """Ends a check that is not to be cached."""


@cache
def _check_exactly_once(settings: ClientSettings, topic: str) -> None:
    """Raise InvalidOption if the brokers cannot keep its promise; log which settings endanger it.

    Brokers that do not answer in time are asked again before the next micro-batch.
    """
    deadline = Deadline(_CONFIGURATION_SECONDS)
    with _open_client(settings, reports_versions=True) as brokers:
        broker_ids = _broker_ids(brokers, deadline)
        if not broker_ids:
            raise _NoAnswer
        if problem := unsupported(brokers.newest_versions):
            raise InvalidOption(f"{problem}. {Advice.EXACTLY_ONCE_UNSUPPORTED.remedy}")
        broker = _broker_configuration(brokers, broker_ids, deadline)
        brokers.client.fetch_topic_configurations([topic], deadline.remaining())
        topic_answer = brokers.wait_for(ConfigurationDescription, deadline)
    broker_settings = {} if broker is None else broker.settings
    topic_settings = {} if topic_answer is None else topic_answer.settings
    for sentence in unmet(broker_settings, topic, topic_settings):
        _log.warning("exactly-once: %s", sentence)


class _Brokers:
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


@contextmanager
def _open_client(settings: ClientSettings, *, reports_versions: bool = False) -> Iterator[_Brokers]:
    """A client, which is closed at the end."""
    brokers = _Brokers(settings, reports_versions=reports_versions)
    try:
        yield brokers
    except BaseException:
        brokers.discard_token()  # it may be the cause, such as the groups in it
        raise
    finally:
        brokers.client.close(Deadline(_FREE_SECONDS))


def _reach(
    brokers: _Brokers, budget: BlockBudget, topics: tuple[str, ...], reached_before: bool
) -> list[TopicDescription]:
    """Wait for a broker that accepts the login; returns its answer on topics if it comes soon.

    Raises BrokerUnavailable or AuthenticationFailed.
    """
    seconds = max(budget.metadata_seconds, UNREACHABLE_SECONDS)
    deadline = Deadline(seconds)
    until_unreachable = deadline if reached_before else Deadline(UNREACHABLE_SECONDS)
    if topics:
        brokers.client.fetch_metadata(topics, seconds, include_rights=True)
    else:
        brokers.client.connect(seconds)
    while not deadline.expired and not (brokers.are_down and until_unreachable.expired):
        is_late = brokers.answers_are_late  # then only read what has arrived
        answers = brokers.listen(Deadline(0.0) if is_late else deadline)
        # One answer is about all topics.
        if descriptions := [answer for answer in answers if isinstance(answer, TopicDescription)]:
            return descriptions
        if any(isinstance(answer, ClusterDescription) and not answer.code for answer in answers):
            return []
        if is_late and brokers.answers_are_late:
            return []
    waited = seconds - deadline.remaining()
    option = f" ({budget.metadata_option})" if waited == budget.metadata_seconds else ""
    raise brokers.unavailable(f"{round(waited, 1):g} s{option}")


def _check_topic(brokers: _Brokers, answer: TopicDescription) -> None:
    """Raise TopicUnavailable if the topic is forbidden, invalid, or missing and not created."""
    code, advice = answer.code, None
    if not answer.may_write:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        if _brokers_create_topics(brokers, Deadline(_CONFIGURATION_SECONDS)):
            return
        advice = Advice.TOPICS_NOT_CREATED
    elif code not in NON_RETRIABLE_TOPIC_ERRORS:
        return
    raise TopicUnavailable(
        f"topic {answer.topic}: {explain(code, advice)}", topic=answer.topic, code=error_name(code)
    )


def _brokers_create_topics(brokers: _Brokers, deadline: Deadline) -> bool:
    """Whether brokers create missing topics; True if they do not or may not say by the deadline.

    Raises AuthenticationFailed if a broker rejects the login in the meantime.
    """
    broker = _broker_configuration(brokers, _broker_ids(brokers, deadline), deadline)
    return broker is None or broker.settings.get("auto.create.topics.enable") != "false"


def _broker_ids(brokers: _Brokers, deadline: Deadline) -> tuple[int, ...]:
    """The ids of all brokers; none if there is no answer by the deadline."""
    brokers.client.connect(deadline.remaining())
    cluster = brokers.wait_for(ClusterDescription, deadline)
    return () if cluster is None else cluster.broker_ids


def _broker_configuration(
    brokers: _Brokers, broker_ids: tuple[int, ...], deadline: Deadline
) -> ConfigurationDescription | None:
    """The settings of one of the brokers, or None if there is no answer by the deadline."""
    if not broker_ids:
        return None
    brokers.client.fetch_broker_configuration(broker_ids[0], deadline.remaining())
    return brokers.wait_for(ConfigurationDescription, deadline)

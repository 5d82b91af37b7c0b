"""[driver] The check before a micro-batch: a broker answers, accepts the user, has the topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from spark_kafka_sink import application_files
from spark_kafka_sink.advice import Advice, explain
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import BlockBudget, ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver import exactly_once_check, inquirer
from spark_kafka_sink.driver.inquirer import (
    CONFIGURATION_SECONDS,
    Inquirer,
    NoAnswer,
    asking,
)
from spark_kafka_sink.errors import TopicUnavailable
from spark_kafka_sink.librdkafka.error_codes import (
    NON_RETRIABLE_TOPIC_ERRORS,
    ErrorCode,
    error_name,
)
from spark_kafka_sink.librdkafka.events import ClusterDescription, TopicDescription


def check(options: SinkOptions, folder: Path | None = None) -> None:
    """Raise BrokerUnavailable, AuthenticationFailed or TopicUnavailable if no task could succeed.

    Runs once per process and configuration, so it runs again when Spark plans in a new process,
    which then needs the application's ``folder``. A failed check runs again.
    A rejected user or forbidden topic fails at once. Unreachable brokers fail the first
    micro-batch after a few seconds, but a later one only after its tasks' metadata budget, so that
    a stream survives a short outage. The tasks find out what the brokers do not answer in time.
    With exactly-once, brokers that cannot keep its promise raise InvalidOption, even without
    preflight, and settings of theirs that endanger it are logged as warnings.
    """
    if options.values[table.PREFLIGHT]:
        topics = tuple(filter(None, (options.topic, options.dead_letter_topic)))
        _check(options.producer.client, options.producer.budget, topics, folder)
    if options.exactly_once is not None:
        with suppress(NoAnswer):
            exactly_once_check.check(options.producer.client, options.exactly_once.ledger_topic)


@contextmanager
def authenticated(options: SinkOptions) -> Iterator[Inquirer]:
    """An inquirer that a broker has accepted; raises BrokerUnavailable or AuthenticationFailed."""
    with asking(options.producer.client) as brokers:
        _reach(brokers, options.producer.budget, (), reached_before=False)
        yield brokers


@cache
def _check(
    settings: ClientSettings, budget: BlockBudget, topics: tuple[str, ...], folder: Path | None
) -> None:
    with asking(settings) as brokers:
        descriptions = _reach(brokers, budget, topics, were_reached(settings, folder))
        mark_reached(settings, folder)
        for description in descriptions:
            _check_topic(brokers, description)


def _reach(
    brokers: Inquirer, budget: BlockBudget, topics: tuple[str, ...], reached_before: bool
) -> list[TopicDescription]:
    """Wait for a broker that accepts the user; returns its answer on topics if it comes soon.

    Raises BrokerUnavailable or AuthenticationFailed.
    """
    seconds = max(budget.metadata_seconds, inquirer.UNREACHABLE_SECONDS)
    deadline = Deadline(seconds)
    until_unreachable = deadline if reached_before else Deadline(inquirer.UNREACHABLE_SECONDS)
    if topics:
        brokers.client.describe_topics(topics, seconds, include_authorized_operations=True)
    else:
        brokers.client.describe_cluster(seconds)
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


def _check_topic(brokers: Inquirer, answer: TopicDescription) -> None:
    """Raise TopicUnavailable if the topic is forbidden, invalid, or missing and not created."""
    code, advice = answer.code, None
    if not answer.may_write:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        if _brokers_create_topics(brokers, Deadline(CONFIGURATION_SECONDS)):
            return
        advice = Advice.TOPICS_NOT_CREATED
    elif code not in NON_RETRIABLE_TOPIC_ERRORS:
        return
    raise TopicUnavailable(
        f"topic {answer.topic}: {explain(code, advice)}", topic=answer.topic, code=error_name(code)
    )


def _brokers_create_topics(brokers: Inquirer, deadline: Deadline) -> bool:
    """Whether brokers create missing topics; True if they do not or may not say by the deadline.

    Raises AuthenticationFailed if a broker rejects the authentication in the meantime.
    """
    cluster = brokers.cluster(deadline)
    if cluster is None:
        return True
    broker = brokers.broker_configuration(cluster.broker_ids[0], deadline)
    return broker is None or broker.settings.get("auto.create.topics.enable") != "false"


# --- which brokers the application has reached before ---------------------------------------------


def were_reached(settings: ClientSettings, folder: Path | None) -> bool:
    """Whether ``mark_reached`` was called for these brokers with this folder.

    If nothing can be stored, they count as reached: ending a stream after a short outage is worse
    than reporting a wrong address late.
    """
    return folder is not None and application_files.is_marked(folder, "reached", _public(settings))


def mark_reached(settings: ClientSettings, folder: Path | None) -> None:
    """Never raises."""
    application_files.mark(folder, "reached", _public(settings))


def _public(settings: ClientSettings) -> str:
    # A different protocol means other listeners, or the wrong protocol for this one.
    protocol = settings.get("security.protocol", "plaintext").lower()
    return f"{protocol} {settings['bootstrap.servers']}"

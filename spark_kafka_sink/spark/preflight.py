"""Before the first task: is a broker there, is the login accepted, is there a topic."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import cache

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import BlockBudget, ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import AuthenticationFailed, BrokerUnavailable, InvalidOption
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import NON_RETRIABLE_TOPIC_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.error_texts import error_name
from spark_kafka_sink.librdkafka.events import (
    BrokerError,
    BrokerUp,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.error_messages import topic_unavailable

# Brokers that are only just starting refuse connections for a moment.
_PATIENCE_SECONDS = 3.0
# A connected broker that takes its time to tell of the topic does not hold up the micro-batch.
_TOPIC_SECONDS = 0.25
_STATE_INTERVAL_MS = 10
_POLL_SECONDS = 0.1
_FREE_SECONDS = 1.0

_LOGIN_ERRORS = frozenset({"_AUTHENTICATION", "_SSL"})
_UNREACHABLE_ERRORS = frozenset({"_ALL_BROKERS_DOWN", "_RESOLVE"})


def check(options: SinkOptions) -> None:
    """Raise BrokerUnavailable, AuthenticationFailed or TopicUnavailable if no task could succeed.

    A topic counts as there if the brokers do not deny it at once; else the tasks find out.
    Once a process and configuration: Spark plans every micro-batch of a query in one that it
    keeps. What failed is checked again.
    """
    if options.preflight:
        _check(options.producer.client, options.producer.budget, options.topic)


@cache
def _check(settings: ClientSettings, budget: BlockBudget, topic: str | None) -> None:
    try:
        client = Client(
            {
                **settings,
                "enable.idempotence": "false",
                "log_level": "0",
                "statistics.interval.ms": str(_STATE_INTERVAL_MS),
            }
        )
    except ValueError as error:
        raise InvalidOption(f"the Kafka client refuses its settings: {error}") from None
    try:
        _ask(client, settings, budget, topic)
    finally:
        client.close(Deadline(_FREE_SECONDS))


def _ask(client: Client, settings: ClientSettings, budget: BlockBudget, topic: str | None) -> None:
    seconds = max(budget.metadata_seconds, _PATIENCE_SECONDS)
    deadline, patience = Deadline(seconds), Deadline(_PATIENCE_SECONDS)
    if topic is None:
        client.connect(seconds)
    else:
        client.fetch_metadata([topic], seconds)
    servers, trouble, is_unreachable = settings["bootstrap.servers"], "", False
    end_of_answers: Deadline | None = None  # once connected
    while not deadline.expired and not (is_unreachable and patience.expired):
        if end_of_answers is not None and end_of_answers.expired:
            return
        for event in client.poll(deadline.slice(_POLL_SECONDS)):
            if isinstance(event, TopicDescription):
                _check_topic(event, settings, budget)
                return
            if isinstance(event, BrokerUp) and end_of_answers is None:
                end_of_answers = Deadline(_TOPIC_SECONDS if topic is not None else 0.0)
            if isinstance(event, BrokerError):
                _check_login(event, servers)
                is_unreachable |= error_name(event.code) in _UNREACHABLE_ERRORS
                trouble = event.text if error_name(event.code) != "_ALL_BROKERS_DOWN" else trouble
            if isinstance(event, RequestFailed):
                trouble = trouble or error_name(event.code)
    raise BrokerUnavailable(
        f"no broker answers at {servers}{': ' * bool(trouble)}{trouble}. See whether "
        "kafka.bootstrap.servers is right and reachable from the driver; preflight=false leaves "
        "this check out, for executors that reach what the driver does not"
    )


def _check_login(error: BrokerError, servers: str) -> None:
    if error_name(error.code) in _LOGIN_ERRORS:
        raise AuthenticationFailed(
            f"the brokers at {servers} refuse the login: {error.text}. See "
            "kafka.security.protocol, kafka.sasl.* and kafka.ssl.*"
        )


def _check_topic(answer: TopicDescription, settings: ClientSettings, budget: BlockBudget) -> None:
    is_missing = answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if answer.code in NON_RETRIABLE_TOPIC_ERRORS or (is_missing and not _creates_topics(settings)):
        raise topic_unavailable(answer.topic, answer.code)


def _creates_topics(settings: ClientSettings) -> bool:
    """Whether brokers create missing topics; True if they do not tell."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    admin = AdminClient({**settings, "log_level": "0"})
    try:
        broker = next(iter(admin.list_topics(timeout=_PATIENCE_SECONDS).brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        answer = admin.describe_configs([resource], request_timeout=_PATIENCE_SECONDS)
        entry = answer[resource].result(2 * _PATIENCE_SECONDS)["auto.create.topics.enable"]
    except (KafkaException, StopIteration, KeyError, FutureTimeoutError):
        return True  # the right to read it may be missing: the tasks will find out
    return str(entry.value).lower() != "false"

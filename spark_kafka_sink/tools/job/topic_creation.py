"""Creates the topics of a job's sink that are missing, if the configuration says so."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeoutError

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from spark_kafka_sink.advice import settings_error
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.preflight import log_in
from spark_kafka_sink.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    KafkaSinkError,
    TopicUnavailable,
)
from spark_kafka_sink.secret import redacted
from spark_kafka_sink.tools.doctor.brokers import (
    Brokers,
    confluent_settings,
    error_code,
    error_text,
)
from spark_kafka_sink.tools.doctor.result import counted
from spark_kafka_sink.tools.doctor.topic import creation_advice
from spark_kafka_sink.tools.job.configuration import Configuration
from spark_kafka_sink.tools.job.document import Path
from spark_kafka_sink.tools.job.model import TopicSettings
from spark_kafka_sink.tools.job.output import Output

_SECONDS = 30.0
_POLL_SECONDS = 0.1

# Errors that last until the file changes, unlike missing rights, and too few brokers for the
# replicas.
_MISTAKES = (
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
)


def create_missing(configuration: Configuration, output: Output) -> None:
    """Create the topics that ``sink.create_topics`` describes and that do not exist.

    Returns when every partition of them has a leader. An existing topic is not changed.
    Raises InvalidConfiguration, TopicUnavailable, AuthenticationFailed or BrokerUnavailable.
    """
    wanted = configuration.topics_to_create()
    if not wanted:
        return
    # With the sink's own client: confluent_kafka's does not tell why there is no token.
    log_in(configuration.sink_options)
    deadline = Deadline(_SECONDS)
    client = configuration.sink_options.producer.client
    try:
        admin = _Admin(confluent_settings(client))
    except KafkaException as error:
        raise settings_error(error_text(error)) from None
    try:
        _log_in(admin, client, deadline)
        for path, (topic, settings) in wanted.items():
            _create_if_missing(admin, topic, settings, path, configuration, output, deadline)
    finally:
        admin.close()


class _Admin(Brokers):
    def create(self, topic: str, settings: TopicSettings, deadline: Deadline) -> None:
        """Raises KafkaException or concurrent.futures.TimeoutError."""
        seconds = max(0.001, deadline.remaining())
        new = NewTopic(
            topic,
            num_partitions=settings.partitions,
            # -1: the brokers' default.replication.factor
            replication_factor=settings.replication_factor or -1,
            config=dict(settings.config),
        )
        answers = self._client.create_topics(
            [new], operation_timeout=seconds, request_timeout=seconds
        )
        answers[topic].result(seconds)

    def leaders(self, topic: str, deadline: Deadline) -> list[bool] | None:
        """Whether each partition has a leader; None if the topic does not exist."""
        try:
            partitions = self.topic(topic, deadline).partitions
        except KafkaException as error:
            if error_code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        return [p.leader is not None and p.leader.id >= 0 for p in partitions]


def _log_in(admin: _Admin, client: ClientSettings, deadline: Deadline) -> None:
    try:
        admin.log_in(deadline)
    except (AuthenticationFailed, BrokerUnavailable) as error:
        # Brokers have just accepted this login, so it is not wrong.
        problem = redacted(f"no broker answers at {client['bootstrap.servers']}: {error}")
        raise BrokerUnavailable(f"{problem}. Run doctor") from None


def _create_if_missing(
    admin: _Admin,
    topic: str,
    settings: TopicSettings,
    path: Path,
    configuration: Configuration,
    output: Output,
    deadline: Deadline,
) -> None:
    try:
        leaders = admin.leaders(topic, deadline)
        if leaders is not None:
            if len(leaders) != settings.partitions:
                output.say(
                    f"topic {topic} exists, with {counted(len(leaders), 'partition')} instead of "
                    f"{settings.partitions}; it is not changed"
                )
            return
        output.show_state(f"creating topic {topic}")
        admin.create(topic, settings, deadline)
        size = counted(settings.partitions, "partition")
        output.say(f"created topic {topic} with {size}")
        while not all(admin.leaders(topic, deadline) or [False]):
            time.sleep(_POLL_SECONDS)  # a broker may not know the new topic yet
    except KafkaException as error:
        # Another client may have created it in the meantime.
        if error_code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
            raise _creation_failure(topic, path, configuration, error) from None
    except FutureTimeoutError:
        raise BrokerUnavailable(
            f"topic {topic} was not created within {_SECONDS:g} s. Run doctor"
        ) from None


def _creation_failure(
    topic: str, path: Path, configuration: Configuration, error: KafkaException
) -> KafkaSinkError:
    code, name = error_code(error), error.args[0].name()
    advice = creation_advice(code)
    what = f"topic {topic} cannot be created: {error_text(error).rstrip('.')} ({name})"
    if advice is not None:
        what += f". {advice.remedy}"
    if code in _MISTAKES:
        return configuration.invalid(path, what)
    return TopicUnavailable(what, topic=topic, code=name)

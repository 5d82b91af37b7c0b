"""Creates the topics of a job's sink that are missing, if the configuration says so."""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.preflight import authenticated
from spark_kafka_sink.errors import BrokerUnavailable, KafkaSinkError, TopicUnavailable
from spark_kafka_sink.librdkafka.error_codes import error_name
from spark_kafka_sink.tools.doctor.brokers import Brokers, RequestRejected
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
    with (
        authenticated(configuration.sink_options) as inquirer,
        closing(Brokers(inquirer)) as brokers,
    ):
        deadline = Deadline(_SECONDS)
        for path, (topic, settings) in wanted.items():
            _create_if_missing(brokers, topic, settings, path, configuration, output, deadline)


def _leaders(brokers: Brokers, topic: str, deadline: Deadline) -> list[bool] | None:
    """Whether each partition has a leader; None if the topic does not exist."""
    try:
        partitions = brokers.topic(topic, deadline).partitions
    except RequestRejected as error:
        if error.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return [partition.has_leader for partition in partitions]


def _create_if_missing(
    brokers: Brokers,
    topic: str,
    settings: TopicSettings,
    path: Path,
    configuration: Configuration,
    output: Output,
    deadline: Deadline,
) -> None:
    try:
        leaders = _leaders(brokers, topic, deadline)
        if leaders is not None:
            if len(leaders) != settings.partitions:
                output.say(
                    f"topic {topic} exists, with {counted(len(leaders), 'partition')} instead of "
                    f"{settings.partitions}; it is not changed"
                )
            return
        output.show_state(f"creating topic {topic}")
        new = NewTopic(
            topic,
            num_partitions=settings.partitions,
            # -1: the brokers' default.replication.factor
            replication_factor=settings.replication_factor or -1,
            config=dict(settings.config),
        )
        brokers.create(new, deadline)
        size = counted(settings.partitions, "partition")
        output.say(f"created topic {topic} with {size}")
        while not all(_leaders(brokers, topic, deadline) or [False]):
            time.sleep(_POLL_SECONDS)  # a broker may not know the new topic yet
    except RequestRejected as error:
        # Another client may have created it in the meantime.
        if error.code != KafkaError.TOPIC_ALREADY_EXISTS:
            raise _creation_failure(topic, path, configuration, error) from None
    except TimeoutError:
        raise BrokerUnavailable(
            f"topic {topic} was not created within {_SECONDS:g} s. Run doctor"
        ) from None


def _creation_failure(
    topic: str, path: Path, configuration: Configuration, error: RequestRejected
) -> KafkaSinkError:
    code, name = error.code, error_name(error.code)
    advice = creation_advice(code)
    what = f"topic {topic} cannot be created: {str(error).rstrip('.')} ({name})"
    if advice is not None:
        what += f". {advice.remedy}"
    if code in _MISTAKES:
        return configuration.invalid(path, what)
    return TopicUnavailable(what, topic=topic, code=name)

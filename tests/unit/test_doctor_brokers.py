"""What Brokers makes of the clients' answers."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka.events import ConfigurationDescription
from spark_kafka_sink.tools.doctor.brokers import Brokers, RequestRejected

DESCRIPTION = SimpleNamespace(authorized_operations=[])


@pytest.fixture
def clients(monkeypatch):
    """The inquirer and the AdminClient of ``asked``, without methods; a test sets what it needs."""
    settings = parse({"kafka.bootstrap.servers": "a:1"}).producer.client
    clients = SimpleNamespace(
        admin=SimpleNamespace(),
        inquirer=SimpleNamespace(settings=settings, client=SimpleNamespace(close=lambda _: True)),
    )
    monkeypatch.setattr(
        "spark_kafka_sink.tools.doctor.brokers.AdminClient", lambda *_, **__: clients.admin
    )
    return clients


@pytest.fixture
def asked(clients):
    with closing(Brokers(clients.inquirer)) as brokers:
        yield brokers


def answer(value):
    """What an AdminClient answers: a future with a value or an error."""
    future = Future()
    if isinstance(value, KafkaError):
        future.set_exception(KafkaException(value))
    else:
        future.set_result(value)
    return future


@pytest.mark.parametrize(
    ("code", "reported", "settings"),
    [
        (0, {"a": "1", "b": ""}, {"a": "1"}),
        (KafkaError.UNSUPPORTED_VERSION, {}, {}),
        (KafkaError._UNSUPPORTED_FEATURE, {}, {}),
    ],
)
def test_settings_without_a_value_count_as_not_reported(asked, clients, code, reported, settings):
    described = ConfigurationDescription("any", code, reported)
    clients.inquirer.topic_configuration = lambda *_: described
    clients.inquirer.broker_configuration = lambda *_: described
    assert asked.topic_settings("t", Deadline(1)) == settings
    assert asked.broker_settings(1, Deadline(1)) == settings


def test_a_question_without_an_answer_is_late_and_one_with_an_error_rejected(asked, clients):
    clients.inquirer.topic = lambda *_: None
    with pytest.raises(TimeoutError):
        asked.topic("t", Deadline(1))
    clients.inquirer.topic = lambda *_: SimpleNamespace(code=3)
    with pytest.raises(RequestRejected, match="Unknown topic") as raised:
        asked.topic("t", Deadline(1))
    assert raised.value.code == 3


def test_two_checks_never_use_the_inquirer_at_once(clients):
    """As when one exceeds its time, and the next one or the end comes."""
    closed = []
    clients.inquirer.client.close = closed.append
    brokers = Brokers(clients.inquirer)

    def topic(name, deadline):
        with pytest.raises(TimeoutError):
            brokers.cluster(Deadline(0.01))
        brokers.close()
        return SimpleNamespace(code=0)

    clients.inquirer.topic = topic
    brokers.topic("t", Deadline(30))
    assert closed == []
    brokers.close()
    assert len(closed) == 1


def test_a_groups_coordinator_that_is_starting_is_asked_again(asked, clients):
    loading, elected = KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR
    answers = [KafkaError(loading), KafkaError(elected), DESCRIPTION]
    clients.admin.describe_consumer_groups = lambda names, **_: {names[0]: answer(answers.pop(0))}
    assert asked.group_operations("g", Deadline(30)) == []
    assert answers == []


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 0), (KafkaError.GROUP_AUTHORIZATION_FAILED, 30)],
)
def test_an_error_of_a_group_is_raised_at_the_deadline_or_at_once(asked, clients, code, seconds):
    error = KafkaError(code, "ConsumerGroupDescribe: ")  # as librdkafka words it
    clients.admin.describe_consumer_groups = lambda names, **_: {names[0]: answer(error)}
    with pytest.raises(RequestRejected, match=f"^ConsumerGroupDescribe: {error.name()}$") as raised:
        asked.group_operations("g", Deadline(seconds))
    assert raised.value.code == code

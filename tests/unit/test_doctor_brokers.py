"""What Brokers makes of the client's answers."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import AuthenticationFailed, BrokerUnavailable
from spark_kafka_sink.tools.doctor.brokers import Brokers, error_text

AUTHENTICATION = KafkaError._AUTHENTICATION

DESCRIPTION = SimpleNamespace(authorized_operations=[])


@pytest.fixture
def asked(monkeypatch):
    """Brokers whose client has no method; the test sets those it needs on ``asked.client``."""
    client = SimpleNamespace()
    monkeypatch.setattr(
        "spark_kafka_sink.tools.doctor.brokers.AdminClient", lambda *_, **__: client
    )
    with closing(Brokers({})) as brokers:
        brokers.client = client
        yield brokers


def answer(value):
    if isinstance(value, int):
        raise KafkaException(KafkaError(value))
    return value


class Answer:
    """What an AdminClient answers: a future with a value or an error."""

    def __init__(self, value):
        self.value = value

    def result(self, seconds):
        return answer(self.value)


@pytest.mark.parametrize(
    ("reported", "settings"),
    [
        ({"a": SimpleNamespace(value="1"), "b": SimpleNamespace(value=None)}, {"a": "1"}),
        (KafkaError.UNSUPPORTED_VERSION, {}),
        (KafkaError._UNSUPPORTED_FEATURE, {}),
    ],
)
def test_settings_without_a_value_count_as_not_reported(asked, reported, settings):
    asked.client.describe_configs = lambda resources, **_: {"resource": Answer(reported)}
    assert asked.topic_settings("t", Deadline(1)) == settings
    assert asked.broker_settings(1, Deadline(1)) == settings


def test_a_groups_coordinator_that_is_starting_is_asked_again(asked):
    loading, elected = KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR
    answers = [loading, elected, DESCRIPTION]
    asked.client.describe_consumer_groups = lambda names, **_: {names[0]: Answer(answers.pop(0))}
    assert asked.group("g", Deadline(30)) is DESCRIPTION
    assert answers == []


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 0), (KafkaError.GROUP_AUTHORIZATION_FAILED, 30)],
)
def test_an_error_of_a_group_is_raised_at_the_deadline_or_if_it_stays(asked, code, seconds):
    asked.client.describe_consumer_groups = lambda names, **_: {names[0]: Answer(code)}
    with pytest.raises(KafkaException) as raised:
        asked.group("g", Deadline(seconds))
    assert raised.value.args[0].code() == code


def test_a_connection_that_is_lost_before_the_login_is_no_rejected_login(asked):
    lost = "b:1: SASL PLAIN mechanism handshake failed: Local: Broker transport failure: (n/a)"
    asked.client.poll = lambda seconds: asked._on_error(KafkaError(AUTHENTICATION, lost))
    with pytest.raises(BrokerUnavailable, match="handshake failed"):
        asked.log_in(Deadline(0.1))
    rejected = "b:1: SASL X mechanism handshake failed: Broker: Unsupported SASL mechanism"
    asked.client.poll = lambda seconds: asked._on_error(KafkaError(AUTHENTICATION, rejected))
    with pytest.raises(AuthenticationFailed, match="Unsupported"):
        asked.log_in(Deadline(30))


def test_an_error_without_a_text_is_named():
    error = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, "ConsumerGroupDescribe: ")
    assert error_text(KafkaException(error)) == "ConsumerGroupDescribe: COORDINATOR_NOT_AVAILABLE"

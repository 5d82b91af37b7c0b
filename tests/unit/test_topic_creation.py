"""Topics that a job creates: what fails before or without a broker's answer."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from job_output import Said

from spark_kafka_sink.errors import AuthenticationFailed, BrokerUnavailable, TokenUnavailable
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.tools.doctor.brokers import RequestRejected
from spark_kafka_sink.tools.job import topic_creation
from spark_kafka_sink.tools.job.configuration import check
from spark_kafka_sink.tools.job.document import Document


def create_missing(**options):
    document = {
        "name": "numbers",
        "source": {"format": "rate"},
        "sink": {
            "options": {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **options},
            "create_topics": {"topic": {"partitions": "1"}},
        },
        "checkpoint": "/nowhere",
    }
    configuration = check(Document(json.dumps(document), "job.yaml"), {"CLIENT_SECRET": "hunter2"})
    topic_creation.create_missing(configuration, Said())


TOKENS = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER"}


def test_a_function_for_tokens_that_cannot_be_imported_is_named():
    with pytest.raises(AuthenticationFailed, match="No module named 'no_such_module'") as caught:
        create_missing(**TOKENS, **{"oauth.callback": "no_such_module:make"})
    assert "oauth.callback=no_such_module:make" in str(caught.value)
    assert caught.value.is_permanent


def test_an_identity_provider_that_is_away_does_not_end_the_job():
    endpoint = {
        "kafka.sasl.oauthbearer.client.id": "me",
        "kafka.sasl.oauthbearer.client.secret": "${env:CLIENT_SECRET}",
        "kafka.sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    }
    with pytest.raises(TokenUnavailable, match=r"from http://127\.0\.0\.1:1/token"):
        create_missing(**TOKENS, **endpoint)
    with pytest.raises(TokenUnavailable, match="the token service is closed"):
        create_missing(**TOKENS, **{"oauth.callback": "token_functions:fails"})


class SlowBrokers:
    """They accept the client, but create no topic in time."""

    def __init__(self, inquirer):
        pass

    def topic(self, name, deadline):
        raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def create(self, topic, deadline):
        raise TimeoutError

    def close(self):
        pass


def test_a_topic_that_is_not_created_in_time_is_no_broker_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(topic_creation, "authenticated", nullcontext)
    monkeypatch.setattr(topic_creation, "Brokers", SlowBrokers)
    with pytest.raises(BrokerUnavailable, match=r"^topic t was not created within 30 s\. Run"):
        create_missing()

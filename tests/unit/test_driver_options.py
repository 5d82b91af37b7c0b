"""What the driver adds to parsed options, beyond trust stores and Amazon's region."""

from __future__ import annotations

import pytest

from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.librdkafka.client import Client


def client(settings):
    options = {f"kafka.{name}": value for name, value in settings.items()}
    return read_options({"kafka.bootstrap.servers": "a:1", **options}).producer.client


@pytest.mark.parametrize(
    "settings",
    [
        {"queuing.strategy": "lifo"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"},
        {"security.protocol": "SSL", "ssl.truststore.certificates": "no PEM"},
    ],
    ids=" ".join,
)
def test_what_librdkafka_rejects_as_a_whole_is_rejected(settings):
    with pytest.raises(InvalidOption, match="the Kafka client rejects its settings"):
        client(settings)


def test_librdkafka_accepts_a_shortest_backoff_above_the_longest():
    """As Java's client does."""
    assert client({"reconnect.backoff.ms": "1000", "reconnect.backoff.max.ms": "10"})


def test_files_that_may_exist_only_on_executors_are_not_looked_for():
    files = {"security.protocol": "ssl", "ssl.ca.location": "/on/the/executors/alone.pem"}
    assert files.items() <= client(files).items()


def test_parsing_needs_no_machine_and_what_it_leaves_cannot_be_sent_with():
    """Neither Java nor the store is here; librdkafka has no such setting."""
    store = {"ssl.truststore.location": "/no/such.jks", "security.protocol": "ssl"}
    options = {f"kafka.{name}": value for name, value in store.items()}
    parsed = parse({"kafka.bootstrap.servers": "a:1", **options})
    with pytest.raises(InvalidOption, match=r"ssl\.truststore\.location"):
        Session(Client, parsed.producer.client)

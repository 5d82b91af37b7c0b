"""One Kafka with and without logins, and one Spark session with Spark's own sink."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from identity_provider import identity_provider
from local_cluster import LocalCluster, Security
from pyspark.sql import SparkSession
from spark_jars import avro_jar, kafka_jars
from topics import Topics
from users import USERS

_KAFKAS = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True)
class Brokers:
    """``login_servers`` want a user or a token; tokens are at ``token_url``."""

    servers: str
    login_servers: str
    token_url: str


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    with identity_provider() as provider, pytest.MonkeyPatch.context() as patch:
        tokens = {
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.client.oauthbearer.sasl.jaas.config": f"{_KAFKAS}."
            "OAuthBearerLoginModule required;",
            "listener.name.client.oauthbearer.sasl.server.callback.handler.class": f"{_KAFKAS}."
            "OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url}"
        patch.setenv("KAFKA_OPTS", f"{os.environ.get('KAFKA_OPTS', '')} {allowed}")
        with LocalCluster(settings=tokens, security=Security(users=USERS)) as kafka:
            yield Brokers(kafka.internal_servers, kafka.bootstrap_servers, provider.token_url)


@pytest.fixture
def topics(brokers: Brokers) -> Iterator[Topics]:
    topics = Topics(brokers.servers)
    yield topics
    topics.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark-kafka-sink programs")
        .config("spark.jars", f"{kafka_jars()},{avro_jar()}")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()

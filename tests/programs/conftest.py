"""One Kafka with and without logins, and one Spark session with Spark's own sink."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from identity_provider import identity_provider
from judging import (
    PREAMBLE,
    RUN,
    Outcome,
    Seen,
    expected_verdict,
    explanation,
    run_sparks_own,
    table,
    verdict,
)
from local_cluster import LocalCluster, Security
from program import Place, Program
from pyspark.sql import SparkSession
from spark_jars import session_with_sparks_own_sink
from topics import Topics
from users import USERS

from spark_kafka_sink import register

# Years ago: beyond the retention of nearly every topic.
_OLD_MS = 1_500_000_000_000
_KAFKAS = "org.apache.kafka.common.security.oauthbearer"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of docs/migration.md."""
    reports = [
        report for name in ("passed", "failed") for report in terminalreporter.getreports(name)
    ]
    seen = [dict(report.user_properties).get("program") for report in reports]
    if rows := [Seen(*row) for row in seen if row]:
        terminalreporter.section("programs")
        terminalreporter.write_line(table(rows))


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
    with session_with_sparks_own_sink("spark-kafka-sink programs") as session:
        yield session


@pytest.fixture(scope="session")
def source(brokers: Brokers) -> Iterator[str]:
    """A topic of old records, with keys, headers and duplicates."""
    topics = Topics(brokers.servers)
    topic = topics.create(partitions=3)
    producer = Producer({"bootstrap.servers": brokers.servers})
    for number in range(12):
        producer.produce(
            topic,
            value=f"v{number % 5}",
            key=f"k{number % 5}",
            partition=number % 3,
            headers=[("n", b"%d" % (number % 5))],
            timestamp=_OLD_MS + number,
        )
    assert producer.flush(30) == 0
    yield topic
    topics.close()


@pytest.fixture(scope="session")
def judgements() -> dict[str, Outcome]:
    """What Spark's own sink made of each program."""
    return {}


@pytest.fixture
def compare(
    spark: SparkSession,
    brokers: Brokers,
    topics: Topics,
    source: str,
    judgements: dict[str, Outcome],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Callable[[Program, str], None]:
    """Runs a program with Spark's own sink, if it has not yet, and with this one in a way."""

    def place(name: str) -> Place:
        (tmp_path / name).mkdir()
        return Place(
            spark=spark,
            servers=brokers.servers,
            login_servers=brokers.login_servers,
            token_url=brokers.token_url,
            source=source,
            topic=topics.create(partitions=3),
            second_topic=topics.create(partitions=3),
            folder=tmp_path / name,
            preamble=PREAMBLE.get(name, ""),
        )

    def compare(program: Program, way: str) -> None:
        if program.name not in judgements:
            judgements[program.name] = run_sparks_own(program, place("judge"), topics)
        judge = judgements[program.name]
        outcome = RUN[way](program, place(way), topics)
        register(spark)  # Ctrl-C has taken the session away from the main thread
        seen = verdict(judge, outcome)
        record_property("program", (program.name, way, seen, bool(program.demands)))
        # Otherwise the program shows nothing.
        assert judge.error or judge.records
        assert judge.error or judge.is_sent_by_java or program.has_own_process
        assert not outcome.is_sent_by_java, "Spark's own sink has written it"
        assert seen == expected_verdict(program), explanation(judge, outcome)
        assert program.refused.lower() in outcome.error.lower(), explanation(judge, outcome)

    return compare

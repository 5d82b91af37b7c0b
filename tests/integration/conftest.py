"""A real Kafka and a Spark session for all integration tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from exactly_once_sink import SETTINGS, Sink
from idle_clients import close_idle_clients
from kafka_proxy import KafkaProxy, proxied_kafka
from local_cluster import LocalCluster
from pyspark import java_gateway
from pyspark.sql import SparkSession
from spark_jars import session_with_sparks_own_sink
from standalone import standalone_cluster
from streams import write_by_foreach_batch, write_by_format, write_from_driver
from topics import Topics

from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_registry import LocalRegistry


@pytest.fixture(scope="module", autouse=True)
def no_idle_clients() -> Iterator[None]:
    yield
    close_idle_clients()


@pytest.fixture(scope="session")
def shared_kafka() -> Iterator[tuple[KafkaProxy, LocalCluster]]:
    """With Kafka's own settings, reached directly and through a proxy."""
    with proxied_kafka() as proxied:
        yield proxied


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    existing = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    return existing or request.getfixturevalue("shared_kafka")[1].internal_servers


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """Creates no topics, checks rights, and soon aborts transactions whose time is up."""
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with LocalKafka(settings=SETTINGS | rights) as kafka:
        yield kafka


@pytest.fixture
def own_topics(kafka: LocalKafka) -> Iterator[Topics]:
    """Topics of ``kafka``, which some modules replace by one with other settings."""
    is_cluster = isinstance(kafka, LocalCluster)
    servers = kafka.internal_servers if is_cluster else kafka.bootstrap_servers
    with closing(Topics(servers)) as topics:
        yield topics


@pytest.fixture
def sink(kafka: LocalKafka, own_topics: Topics) -> Sink:
    return Sink(kafka.bootstrap_servers, own_topics)


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[str]:
    """The URL of a real one."""
    existing = os.environ.get("SCHEMA_REGISTRY_URL")
    if existing:
        yield existing
        return
    with LocalRegistry() as registry:
        yield registry.url


@pytest.fixture
def topics(request: pytest.FixtureRequest) -> Iterator[Topics]:
    """Topics of the broker that all share, or of the module's own if it has a ``kafka``."""
    if hasattr(request.module, "kafka"):
        yield request.getfixturevalue("own_topics")
    else:
        with closing(Topics(request.getfixturevalue("bootstrap_servers"))) as topics:
            yield topics


@pytest.fixture
def proxy(shared_kafka: tuple[KafkaProxy, LocalCluster]) -> KafkaProxy:
    return shared_kafka[0]


@pytest.fixture
def proxied(proxy: KafkaProxy) -> Iterator[Topics]:
    """Topics behind the proxy, which delays nothing before and after the test."""
    proxy.metadata_delay_seconds = proxy.produce_delay_seconds = 0.0
    topics = Topics(f"127.0.0.1:{proxy.port}")
    yield topics
    proxy.metadata_delay_seconds = proxy.produce_delay_seconds = 0.0
    topics.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session_with_sparks_own_sink("spark-kafka-sink tests") as session:
        yield session


@pytest.fixture
def uncaught(spark: SparkSession) -> Iterator[list[object]]:
    """What threads of the driver's JVM died of during the test."""
    errors: list[object] = []

    class Handler:
        def uncaughtException(self, thread, error):  # noqa: N802 - Java's name
            frames = [frame.toString() for frame in list(error.getStackTrace())[:5]]
            errors.append((thread.getName(), error.toString(), frames))

        class Java:
            implements = ("java.lang.Thread$UncaughtExceptionHandler",)

    java_gateway.ensure_callback_server_started(spark.sparkContext._gateway)
    thread = spark.sparkContext._jvm.java.lang.Thread
    before = thread.getDefaultUncaughtExceptionHandler()
    thread.setDefaultUncaughtExceptionHandler(Handler())
    yield errors
    thread.setDefaultUncaughtExceptionHandler(before)


@pytest.fixture(
    params=[write_by_format, write_by_foreach_batch, write_from_driver],
    ids=["format", "foreach_batch", "from_driver"],
)
def write(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Writes a DataFrame to a Kafka, with options."""
    return request.param


@pytest.fixture(scope="module")
def master() -> Iterator[str]:
    """The URL of a standalone cluster: two workers whose own Python lacks all packages."""
    # Not pytest's folder, which stays: every executor unpacks the archives of its application.
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with folder, standalone_cluster(Path(folder.name), hosts=["127.0.0.1"] * 2) as master:
        yield master

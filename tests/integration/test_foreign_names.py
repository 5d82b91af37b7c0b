"""Whose settings are: the table, and what Kafka's and Spark's own classes define."""

from __future__ import annotations

import os
import re

import pytest
from java_classes import java_classes, newest_class_path, spark_class_path

from spark_kafka_sink.config.unknown_options import owner, source_owner
from spark_kafka_sink.tools.local_kafka import KAFKA_VERSION
from spark_kafka_sink.tools.local_servers.downloads import fetch_jars

PRODUCER = "org.apache.kafka.clients.producer.ProducerConfig"
SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
#: class, what has its names, and the words for whose they are
CLIENTS = [
    ("org.apache.kafka.clients.consumer.ConsumerConfig", "configNames", "Kafka's consumer"),
    ("org.apache.kafka.clients.admin.AdminClientConfig", "configNames", "Kafka's admin client"),
]
OTHERS = [
    ("org.apache.kafka.storage.internals.log.LogConfig", "configNames", "topics"),
    ("org.apache.kafka.server.config.AbstractKafkaConfig", "CONFIG_DEF", "Kafka's brokers"),
    ("org.apache.kafka.streams.StreamsConfig", "configDef", "Kafka Streams"),
]
CONNECT = [
    "org.apache.kafka.connect.runtime.WorkerConfig",
    "org.apache.kafka.connect.runtime.distributed.DistributedConfig",
    "org.apache.kafka.connect.runtime.standalone.StandaloneConfig",
]
#: Those who write it mean the number of a topic's replicas.
OTHER_OWNER = {"replication.factor": "topics"}

_MORE_JARS = {
    "kafka-streams": "aa3a70c72cb04c72eabcf6d04762c3a3ca8522e93654eca9180e7877172433c4",
    "connect-runtime": "9c4a4a815302a23db37785729594f6362719fda62e6a74d812d1e2719995ec99",
    "connect-api": "7938f71e76e3b03cfba284a987a07d925533710166499264652e05eaba709429",
}


@pytest.fixture(scope="module")
def newest():
    more = [
        fetch_jars("org.apache.kafka", name, KAFKA_VERSION, {jar: digest}, transitive=False) / jar
        for name, digest in _MORE_JARS.items()
        for jar in [f"{name}-{KAFKA_VERSION}.jar"]
    ]
    with java_classes(os.pathsep.join([newest_class_path(), *map(str, more)])) as classes:
        yield classes


@pytest.fixture(scope="module")
def sparks():
    with java_classes(spark_class_path()) as classes:
        yield classes


def names_by_owner(classes, members):
    """The names that classes define, in lower case, by the words for whose they are."""
    result: dict[str, set[str]] = {}
    for class_name, member, words in members:
        names = {name.lower() for name in classes.names(class_name, member)}
        result[words] = result.get(words, set()) | names - classes.producer_names
    return result


def wrong_owners(names):
    """The names whose owner in the table is none of those that have it."""
    result = {}
    for name in set().union(*names.values()):
        allowed = {words for words, found in names.items() if name in found}
        if owner(name) not in {*allowed, OTHER_OWNER.get(name)}:
            result[name] = owner(name)
    return result


def test_every_setting_of_the_newest_kafka_has_its_owner(newest):
    names = names_by_owner(newest, CLIENTS + OTHERS)
    workers = set().union(*(newest.constants(name, "_CONFIG") for name in CONNECT))
    names["Kafka Connect"] = workers - newest.producer_names
    assert wrong_owners(names) == {}


def test_every_setting_of_the_clients_that_spark_uses_has_its_owner(sparks):
    assert wrong_owners(names_by_owner(sparks, CLIENTS)) == {}


@pytest.mark.parametrize("version", ["newest", "sparks"])
def test_no_setting_of_javas_producer_is_anothers(version, request):
    classes = request.getfixturevalue(version)
    assert "acks" in classes.producer_names
    assert {name for name in classes.producer_names if owner(name)} == set()


def test_every_option_of_sparks_kafka_source_has_its_owner(sparks):
    texts = sparks.constants(SOURCE)
    names = {text for text in texts if re.fullmatch(r"[a-z]+(\.[a-z]+)?", text)}
    names -= {"topic", "includeheaders"}  # options of sinks, too
    assert "subscribe" in names
    assert {name: source_owner(name) for name in names} == dict.fromkeys(
        names, "Spark's Kafka source"
    )


def test_an_option_without_a_prefix_may_be_a_setting_of_another_client():
    assert source_owner("group.id") == "Kafka's consumer"
    assert source_owner("spark.kafka.ssl.truststore.password") == "Spark's configuration"


def test_a_name_without_a_dot_is_no_setting_that_lacks_its_prefix():
    assert owner("listeners") == "Kafka's brokers"
    assert source_owner("listeners") is None

"""What a broker forbids fails at once, and the error says so."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from topics import Topics

from spark_kafka_sink.tools.local_kafka import LocalKafka

AT_ONCE_SECONDS = 15.0  # Spark's own start included; a budget would be 60 s
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def guarded_kafka():
    with LocalKafka(settings=AUTHORIZER) as kafka:
        yield kafka


@pytest.fixture
def forbid(guarded_kafka):
    """Make a topic on which one operation is denied, and perhaps another allowed."""
    topics = Topics(guarded_kafka.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": guarded_kafka.bootstrap_servers, "log_level": 2})

    def rule(topic, operation, permission):
        everybody = ResourcePatternType.LITERAL, "User:ANONYMOUS", "*"
        return AclBinding(ResourceType.TOPIC, topic, *everybody, operation, permission)

    def forbid(operation, but_allow=None):
        topic = topics.create()
        rules = [rule(topic, operation, AclPermissionType.DENY)]
        if but_allow:
            rules.append(rule(topic, but_allow, AclPermissionType.ALLOW))
        for future in admin.create_acls(rules).values():
            future.result(10)
        return topic

    return forbid


def save(spark, servers, topic, **options):
    df = spark.createDataFrame([("v",)], "value string").coalesce(1)
    writer = df.write.format("kafka-nb").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).options(**options).mode("append").save()


@pytest.mark.parametrize("preflight", ["true", "false"])
def test_a_topic_that_may_not_be_described_fails_at_once(spark, guarded_kafka, forbid, preflight):
    topic = forbid(AclOperation.DESCRIBE)
    started = time.monotonic()
    with pytest.raises(Exception, match=f"TopicUnavailable: topic {topic}: .*AUTHORIZATION_FAILED"):
        save(spark, guarded_kafka.bootstrap_servers, topic, preflight=preflight)
    assert time.monotonic() - started < AT_ONCE_SECONDS


@pytest.mark.parametrize(
    ("preflight", "error"), [("true", "TopicUnavailable"), ("false", "DeliveryFailed")]
)
def test_a_topic_that_may_not_be_written_fails_at_once(
    spark, guarded_kafka, forbid, preflight, error
):
    topic = forbid(AclOperation.WRITE, but_allow=AclOperation.DESCRIBE)
    started = time.monotonic()
    with pytest.raises(Exception, match=f"{error}: topic {topic}.*AUTHORIZATION_FAILED.*grant"):
        save(spark, guarded_kafka.bootstrap_servers, topic, preflight=preflight)
    assert time.monotonic() - started < AT_ONCE_SECONDS

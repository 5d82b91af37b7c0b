"""What a broker forbids fails at once, and the error says so."""

from __future__ import annotations

import time

import pytest
from acls import Acls
from confluent_kafka.admin import AclOperation

AT_ONCE_SECONDS = 15.0  # Spark's own start included; a budget would be 60 s


@pytest.fixture
def forbid(kafka, own_topics):
    """Make a topic on which one operation is denied."""
    acls = Acls(kafka.bootstrap_servers)

    def forbid(operation):
        topic = own_topics.create()
        acls.deny("ANONYMOUS", topic, operation)
        return topic

    return forbid


def save(spark, servers, topic, **options):
    df = spark.createDataFrame([("v",)], "value string").coalesce(1)
    writer = df.write.format("kafka-nb").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).options(**options).mode("append").save()


@pytest.mark.parametrize("preflight", ["true", "false"])
def test_a_topic_that_may_not_be_described_fails_at_once(spark, kafka, forbid, preflight):
    topic = forbid(AclOperation.DESCRIBE)
    started = time.monotonic()
    with pytest.raises(Exception, match=f"TopicUnavailable: topic {topic}: .*AUTHORIZATION_FAILED"):
        save(spark, kafka.bootstrap_servers, topic, preflight=preflight)
    assert time.monotonic() - started < AT_ONCE_SECONDS


@pytest.mark.parametrize(
    ("preflight", "error"), [("true", "TopicUnavailable"), ("false", "DeliveryFailed")]
)
def test_a_topic_that_may_not_be_written_fails_at_once(spark, kafka, forbid, preflight, error):
    topic = forbid(AclOperation.WRITE)
    started = time.monotonic()
    with pytest.raises(Exception, match=f"{error}: topic {topic}.*AUTHORIZATION_FAILED.*Grant"):
        save(spark, kafka.bootstrap_servers, topic, preflight=preflight)
    assert time.monotonic() - started < AT_ONCE_SECONDS

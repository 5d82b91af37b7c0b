"""Topics that a job creates, in a real Kafka."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from job_output import Said

from spark_kafka_sink.errors import BrokerUnavailable, InvalidConfiguration, TopicUnavailable
from spark_kafka_sink.tools.job.configuration import check
from spark_kafka_sink.tools.job.document import Document
from spark_kafka_sink.tools.job.topic_creation import create_missing

SECONDS = 30.0


@pytest.fixture
def admin(bootstrap_servers):
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})


@pytest.fixture
def name(admin):
    """Of a topic that does not exist yet; it is deleted at the end."""
    name = f"created-{uuid.uuid4().hex[:8]}"
    yield name
    known = admin.list_topics(timeout=SECONDS).topics
    ours = [topic for topic in known if topic.startswith(name)]
    for future in admin.delete_topics(ours).values() if ours else ():
        future.result(SECONDS)


def configuration(servers, create, **options):
    document = {
        "name": "numbers",
        "source": {"format": "rate"},
        "sink": {
            "options": {"kafka.bootstrap.servers": servers, **options},
            "create_topics": create,
        },
        "checkpoint": "/nowhere",
    }
    return check(Document(json.dumps(document, indent=1), "job.yaml"), {})


def partitions(admin, topic):
    return len(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)


def test_missing_topics_are_created_as_the_file_says(bootstrap_servers, admin, name):
    said = Said()
    create = {
        "topic": {
            "partitions": "6",
            "replication_factor": "1",
            "config": {"retention.ms": "86400000"},
        },
        "dead.letter.topic": {"partitions": "2"},
    }
    options = {"on.record.error": "dead-letter", "dead.letter.topic": f"{name}-dead"}
    create_missing(configuration(bootstrap_servers, create, topic=name, **options), said)
    assert said.messages == [
        f"created topic {name} with 6 partitions",
        f"created topic {name}-dead with 2 partitions",
    ]
    assert (partitions(admin, name), partitions(admin, f"{name}-dead")) == (6, 2)
    resource = ConfigResource(ResourceType.TOPIC, name)
    (answer,) = admin.describe_configs([resource]).values()
    assert answer.result(SECONDS)["retention.ms"].value == "86400000"


def test_a_topic_that_exists_stays_as_it_is(bootstrap_servers, admin, topics):
    topic, said = topics.create(partitions=3), Said()
    create_missing(
        configuration(bootstrap_servers, {"topic": {"partitions": "3"}}, topic=topic), said
    )
    assert said.messages == []
    create_missing(
        configuration(bootstrap_servers, {"topic": {"partitions": "6"}}, topic=topic), said
    )
    assert said.messages == [
        f"topic {topic} exists, with 3 partitions instead of 6; it is not changed"
    ]
    assert partitions(admin, topic) == 3


def test_a_setting_unknown_to_brokers_is_a_mistake_with_its_place(bootstrap_servers, admin, name):
    create = {"topic": {"partitions": "1", "config": {"retention.mss": "1"}}}
    with pytest.raises(InvalidConfiguration) as raised:
        create_missing(configuration(bootstrap_servers, create, topic=name), Said())
    line = str(raised.value).splitlines()[1]
    assert line.startswith("job.yaml:12:4: sink.create_topics.topic: topic created-")
    assert "retention.mss" in line
    assert name not in admin.list_topics(timeout=SECONDS).topics


def test_more_replicas_than_there_are_brokers_may_be_right_later(bootstrap_servers, name):
    create = {"topic": {"partitions": "1", "replication_factor": "10000"}}
    with pytest.raises(TopicUnavailable, match=r"cannot be created: .*replication") as raised:
        create_missing(configuration(bootstrap_servers, create, topic=name), Said())
    assert (raised.value.topic, raised.value.code) == (name, "INVALID_REPLICATION_FACTOR")


def test_a_name_that_differs_in_a_dot_is_a_mistake_with_its_place(bootstrap_servers, topics, name):
    topics.create(name=f"{name}_raw")
    create = {"topic": {"partitions": "1"}}
    with pytest.raises(InvalidConfiguration, match=rf"collides .*{name}_raw.* \(TOPIC_EXCEPTION"):
        create_missing(configuration(bootstrap_servers, create, topic=f"{name}.raw"), Said())


def test_brokers_that_are_away_are_named():
    create = {"topic": {"partitions": "1"}}
    with pytest.raises(BrokerUnavailable, match=r"no broker answered at 127\.0\.0\.1:1 "):
        create_missing(configuration("127.0.0.1:1", create, topic="t"), Said())


def test_without_the_key_no_broker_is_asked():
    create_missing(configuration("127.0.0.1:1", {}, topic="t"), Said())

"""What a new producer requests, and how many metadata answers it awaits."""

from __future__ import annotations

import pyarrow as pa
import pytest
from kafka_proxy import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE

from spark_kafka_sink.config.client_settings import DEFAULTS
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.spark.task import write_partition

ANSWER_SECONDS = 0.3
ATTEMPTS = 5
CLIENT_ID = DEFAULTS["client.id"]
MAX_METADATA_REQUESTS = 10  # 3 to 5 were seen


@pytest.fixture(autouse=True)
def new_producer():
    yield
    process_cache().close(5)


@pytest.mark.parametrize("count", [1, 50])
def test_the_first_records_leave_after_two_answers(proxy, proxied, count):
    # On a busy machine, more may arrive before the records leave.
    assert 2 in (answers_before_records(proxy, proxied, count) for _ in range(ATTEMPTS))


def answers_before_records(proxy, proxied, count):
    names = [proxied.create() for _ in range(count)]
    batch = pa.record_batch({"topic": pa.array(names), "value": pa.array(names)})
    option = {"topic": names[0]} if count == 1 else {}
    proxy.metadata_delay_seconds = ANSWER_SECONDS
    settings = {"kafka.bootstrap.servers": proxied.bootstrap_servers, **option}
    proxy.reset()
    report = write_partition([batch], parse(settings))
    process_cache().close(5)
    proxy.metadata_delay_seconds = 0.0
    assert report.sent_records == dict.fromkeys(names, 1)
    assert proxy.metadata_requests[0].topics == count
    assert proxy.answers_before_records >= 2
    return proxy.answers_before_records


@pytest.mark.parametrize("delay_seconds", [0.0, ANSWER_SECONDS])
def test_a_new_producer_sends_few_requests(proxy, proxied, delay_seconds):
    # On a busy machine, requests may come too early for the broker, and are repeated.
    attempts = (requests_of_a_producer(proxy, proxied, delay_seconds) for _ in range(ATTEMPTS))
    assert any(map(is_few, attempts))


def is_few(requests):
    # It awaits two of them; more overlap, and how many depends on when which connection is ready.
    metadata = requests.pop(METADATA)
    # Of its two connections it keeps one.
    return metadata < MAX_METADATA_REQUESTS and requests == {
        API_VERSIONS: 2,
        INIT_PRODUCER_ID: 1,
        PRODUCE: 1,
    }


def requests_of_a_producer(proxy, proxied, delay_seconds):
    """Its requests by API key."""
    topic = proxied.create()
    proxy.metadata_delay_seconds = delay_seconds
    settings = {"kafka.bootstrap.servers": proxied.bootstrap_servers, "topic": topic}
    proxy.reset()
    write_partition([pa.record_batch({"value": ["a"]})], parse(settings))
    process_cache().close(5)
    proxy.metadata_delay_seconds = 0.0
    return {key: n for (client, key), n in proxy.requests.items() if client == CLIENT_ID}

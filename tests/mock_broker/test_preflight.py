"""The driver's check, against a broker that answers."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink.errors import TopicUnavailable
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.spark import preflight


@pytest.fixture(autouse=True)
def forget():
    preflight._check.cache_clear()
    yield
    preflight._check.cache_clear()


@pytest.mark.parametrize("max_block_ms", ["0", "60000"])
def test_a_topic_that_is_there_passes_whatever_a_send_may_wait(options, max_block_ms):
    preflight.check(options(kafka_max_block_ms=max_block_ms))


def test_a_forbidden_topic_fails(options, cluster):
    cluster.set_topic_error("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicUnavailable, match="topic t"):
        preflight.check(options())


def test_a_connected_broker_that_takes_its_time_does_not_hold_up_the_micro_batch(options, cluster):
    cluster.set_round_trip(0, 3_600_000)  # the controller, which is asked for the topic
    started = time.monotonic()
    preflight.check(options())
    assert time.monotonic() - started < 2

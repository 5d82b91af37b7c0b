"""What the sink adds to the user's settings, for each use of a client."""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.added_settings import group_settings, query_settings, sending_settings
from spark_kafka_sink.config.options import parse

GIVEN = {"kafka.bootstrap.servers": "b:1", "kafka.max.request.size": "2000"}
DEAD_LETTERS = {"on.record.error": "dead-letter", "dead.letter.topic": "d"}


def producer_options(**settings):
    return parse({**GIVEN, **settings}).producer


def test_a_client_with_a_topic_for_dead_letters_sends_larger_records_than_the_user_allows():
    without, with_topic = producer_options(), producer_options(**DEAD_LETTERS)
    assert sending_settings(without)["message.max.bytes"] == "2000"
    assert sending_settings(with_topic)["message.max.bytes"] == str(with_topic.buffer_memory_bytes)
    assert with_topic.client.max_request_bytes == 2000


@pytest.mark.parametrize("largest", ["60000", "5000000"])
def test_a_topic_for_dead_letters_makes_no_batch_larger_than_the_producer_reckons_with(largest):
    options = producer_options(**DEAD_LETTERS, **{"kafka.max.request.size": largest})
    assert int(sending_settings(options)["batch.size"]) == options.client.max_batch_bytes


def test_a_client_with_a_topic_for_dead_letters_soon_calls_a_topic_missing():
    name = "topic.metadata.propagation.max.ms"
    assert sending_settings(producer_options())[name] == "2000000"
    assert sending_settings(producer_options(**DEAD_LETTERS))[name] == "5000"


@pytest.mark.parametrize(
    ("settings", "used"), [({}, "20"), ({"kafka.reconnect.backoff.ms": "7"}, "7")]
)
def test_a_clients_pause_between_connections_to_a_coordinator_is_short(settings, used):
    assert group_settings(producer_options(**settings).client, "g")["reconnect.backoff.ms"] == used


def test_each_use_keeps_the_users_settings_and_the_function_for_tokens():
    options = producer_options(
        **{
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "oauth.callback": "module:function",
        }
    )
    for added in (
        sending_settings(options),
        query_settings(options.client, 10),
        group_settings(options.client, "g"),
    ):
        assert added.oauth_callback == "module:function"
        assert added["bootstrap.servers"] == "b:1"


def test_a_client_that_only_asks_needs_no_permission_to_write():
    client = producer_options().client
    assert client["enable.idempotence"] == "true"
    assert query_settings(client, 10)["enable.idempotence"] == "false"

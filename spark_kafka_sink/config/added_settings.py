"""[both] The settings that the sink adds to the user's, for each use of a client.

``Client`` itself sets two more: they make its event mode, and let it connect late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_kafka_sink.config.producer_options import (
    MISSING_TOPIC_SECONDS,
    ClientSettings,
    ProducerOptions,
)

_MAX_INT = 2**31 - 1
# A small buffer becomes free in parts, and so does one behind a quota or a slow network: after a
# request of a whole buffer's size, brokers may hold back the answer for longer than max.block.ms.
_BATCHES_IN_BUFFER = 16
_MAX_MESSAGE_BYTES = 1_000_000_000  # librdkafka's maximum of message.max.bytes


def _add(settings: ClientSettings, added: Mapping[str, str]) -> ClientSettings:
    pairs = tuple(sorted({**settings, **added}.items()))
    return replace(settings, pairs=pairs)


def producer_settings(translated: ClientSettings, buffer_memory_bytes: int) -> ClientSettings:
    """The settings of the producer that tasks with equal options share.

    The producer bounds its own buffer and fetches metadata itself, so librdkafka's limits must not
    take effect first, and its periodic refresh is off.
    """
    added = {
        "batch.size": str(
            min(int(translated["batch.size"]), -(-buffer_memory_bytes // _BATCHES_IN_BUFFER))
        ),
        "queue.buffering.max.kbytes": str(_MAX_INT),
        "queue.buffering.max.messages": "0",  # no limit
        # librdkafka fails the records of a missing topic after this time. The send's budget must
        # expire first, with an error that names it. Above 2,147,483 an int in librdkafka overflows.
        "topic.metadata.propagation.max.ms": "2000000",
        "topic.metadata.refresh.interval.ms": "-1",
        # librdkafka's maximum; afterwards it drops metadata that it did not refresh.
        "metadata.max.age.ms": "86400000",
    }
    return _add(translated, added)


def transactional(
    settings: ClientSettings, transactional_id: str, timeout_ms: int
) -> ClientSettings:
    """The producer's settings with a transaction; none of its waits lasts longer."""
    added = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": str(timeout_ms),
        "delivery.timeout.ms": str(min(int(settings["delivery.timeout.ms"]), timeout_ms)),
        "socket.timeout.ms": str(min(int(settings["socket.timeout.ms"]), timeout_ms)),
    }
    return _add(settings, added)


def sending_settings(options: ProducerOptions) -> ClientSettings:
    """The settings of a producer's client.

    Apart from ``options.client``, because with a topic for dead letters the client rejects less
    than those settings say, and earlier: the producer applies the user's limits itself.
    """
    # The text of many topics is long.
    added = {"statistics.interval.ms": "5000"}
    if options.dead_letter_topic is not None:
        # A dead letter is larger than its record.
        largest = min(options.buffer_memory_bytes, _MAX_MESSAGE_BYTES)
        added["message.max.bytes"] = str(largest)
        # But not a batch, whose size the producer reckons with.
        added["batch.size"] = str(options.client.max_batch_bytes)
        # The client drops the records of a deleted topic early, and the engine takes them back.
        added["topic.metadata.propagation.max.ms"] = str(round(MISSING_TOPIC_SECONDS * 1000))
    return _add(options.client, added)


def query_settings(settings: ClientSettings, statistics_interval_ms: int) -> ClientSettings:
    """For clients that only ask: preflight's and doctor's.

    The statistics say whether a client is connected; its errors say what its log lines would.
    """
    added = {
        # A user without permission to write must be able to authenticate, too.
        "enable.idempotence": "false",
        "log_level": "0",
        "statistics.interval.ms": str(statistics_interval_ms),
    }
    return _add(settings, added)


def group_settings(settings: ClientSettings, group: str) -> ClientSettings:
    """For a consumer that reads and writes a group's offsets, and never joins the group."""
    added = {
        "group.id": group,
        # It fetches nothing. librdkafka compares them with receive.message.max.bytes.
        "message.max.bytes": "1000",
        "fetch.max.bytes": "1000",
        "enable.auto.commit": "false",
        # Only stable offsets are read.
        "isolation.level": "read_committed",
        # How long a commit, and the end of the client, waits for a lost coordinator.
        "session.timeout.ms": "1000",
        # Between requests for an offset that is not stable, or that is still being loaded.
        "retry.backoff.ms": "50",
        "retry.backoff.max.ms": "50",
        # Half of it is the pause between two connections, even if none has failed.
        "reconnect.backoff.ms": str(min(20, int(settings.get("reconnect.backoff.ms", 20)))),
        # Errors are events, and an idle client would log that its brokers are down.
        "log_level": "0",
        # They say whether the client still awaits a connection.
        "statistics.interval.ms": "1000",
    }
    return _add(settings, added)

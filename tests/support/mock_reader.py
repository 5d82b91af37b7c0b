"""Reads topics of the mock broker with an independent consumer."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition


def read(bootstrap_servers: str, topic: str, count: int, partitions: int = 1) -> list:
    """The first ``count`` messages, in the order of partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g", "log_level": 2})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages = []
    end_of_patience = time.monotonic() + 20
    while len(messages) < count:
        messages += [m for m in consumer.consume(1000, timeout=0.1) if not m.error()]
        assert time.monotonic() < end_of_patience, f"read {len(messages)} of {count}"
    consumer.close()
    return sorted(messages, key=lambda m: (m.partition(), m.offset()))


def last_offset(bootstrap_servers: str, topic: str) -> int:
    """How many messages were ever written to partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g", "log_level": 2})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    consumer.close()
    return end

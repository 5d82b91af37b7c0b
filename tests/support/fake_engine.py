"""The producer's engine on a fake client and a fake clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from client_events import reported
from fake_client import FakeClient
from fake_clock import FakeClock

from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.config.added_settings import transactional
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.librdkafka.events import ConfigurationDescription, Event, TopicDescription
from spark_kafka_sink.producer.engine import Engine
from spark_kafka_sink.producer.sends import Send
from spark_kafka_sink.records.arrow import split_by_topic

DLQ = "dlq"
DEAD_LETTERS = {"on.record.error": "dead-letter", "dead.letter.topic": DLQ}


class FakeEngine(Engine):
    """Does what tests say that the client and the brokers do. ``transaction``: the id of one."""

    def __init__(self, transaction: str | None = None, **settings: str) -> None:
        self.client = FakeClient()
        self.clock = FakeClock()
        options = parse({"kafka.bootstrap.servers": "b:1", **settings}).producer
        if transaction is not None:
            options = replace(options, client=transactional(options.client, transaction, 60_000))
        super().__init__(options, self.client, self.clock)
        self._session = Session(lambda *_, **__: self.client, options.client, self.clock)

    def send_values(self, topic: str, values: Sequence[str], **columns: Any) -> Send:
        """Send records, and what has become due by then; there is room for them."""
        batch = pa.record_batch({"value": pa.array(values), **columns})
        (records,) = split_by_topic(batch, topic, timestamp_column="timestamp").records
        send = self.send(records)
        assert send is not None
        self.send_due()
        return send

    def sent(self, send: Send) -> list[int]:
        """The positions of the send's records, in the order in which the client got them."""
        return [at for number, at in self.client.positions if number == send.send_id]

    @property
    def dead(self) -> dict[tuple[str, str], int]:
        """The dead letters, by topic and error."""
        return dict(self.sends.report.dead_letters)

    def answer(self, *events: Event) -> None:
        """Handle events of the client."""
        self.client.events += events
        self.on_events(self._session.poll())
        self.send_due()

    def know(self, *topics: str, partitions: int = 1, **settings: str) -> None:
        """The brokers answer about topics and, below the names of Python, their settings."""
        described = {name.replace("_", "."): value for name, value in settings.items()}
        for topic in topics:
            self.answer(TopicDescription(topic, 0, partitions, tuple(range(partitions))))
            self.answer(ConfigurationDescription(topic, 0, described))

    def report(
        self,
        send: Send,
        positions: Sequence[int],
        code: int = 0,
        partition: int = 0,
        *,
        is_named: bool = False,
    ) -> None:
        """librdkafka's report on records of one partition."""
        self.client.unreported[send.topic] -= len(positions)
        self.answer(
            reported(
                send.send_id,
                partition,
                code,
                len(positions),
                tuple(positions) if code else (),
                is_named=is_named,
            )
        )


def dead_letter_engine(transaction: str | None = None, **settings: str) -> FakeEngine:
    """With a topic for dead letters."""
    return FakeEngine(transaction, **DEAD_LETTERS, **settings)

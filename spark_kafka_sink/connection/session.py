"""Session: a client and its login; the one loop that reads a client's events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Generic, TypeVar

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.connection.oauth_token import TokenFunction
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import BrokerError, Event, TokenNeeded
from spark_kafka_sink.librdkafka.protocol import EventClient

ClientT = TypeVar("ClientT", bound=EventClient)


class Session(Generic[ClientT]):
    """Used by one thread at a time, like its client."""

    def __init__(
        self, client: ClientT, settings: ClientSettings, clock: Clock = time.monotonic
    ) -> None:
        self.client = client
        self._tokens = TokenFunction(settings, clock)

    def poll(self, seconds: float = 0.0) -> Iterator[Event]:
        """Yield the client's events, waiting that long for the first, except those of the login.

        Passes tokens on to the client meanwhile. Read it to the end.
        """
        for event in self.client.poll(seconds):
            if isinstance(event, TokenNeeded):
                self._tokens.call()
                continue
            if isinstance(event, BrokerError) and event.code == ErrorCode.AUTHENTICATION:
                self._tokens.discard()
            yield event
        self._tokens.pass_on(self.client)

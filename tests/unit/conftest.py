"""A registry of schemas in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from stub_registry import StubRegistry, running_stub

from spark_kafka_sink.schemas import known_schemas


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with running_stub() as stub:
        yield stub


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets schemas and clients, but those of other tests: their connections are open."""

    def forget() -> None:
        monkeypatch.setattr(known_schemas, "_known", {})
        monkeypatch.setattr(known_schemas, "_client", cache(known_schemas._client.__wrapped__))

    return forget

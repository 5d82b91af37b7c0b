"""Dead letters as the sink makes them, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Producer

_SECONDS = 30.0

Headers = Sequence[tuple[str, bytes | None]]


def dead_letter(
    error: str,
    topic: str | None,
    *,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: Headers = (),
    timestamp: int = 0,
    **added: str | None,
) -> dict[str, Any]:
    """Arguments of ``Producer.produce``. ``timestamp``: in ms, 0: now.

    ``added``: values of headers ``kafka-nb.``, in which a dot stands for an underscore, and nothing
    for a last one.
    """
    all_added = {
        "error": error,
        "message": f"refused: {error}",
        "topic": topic,
        "partition": None,
        "query_id": "a-query",
        "batch_id": "7",
        "task_partition": "1",
        "row": "42",
        **added,
    }
    names = {name: f"kafka-nb.{name.rstrip('_').replace('_', '.')}" for name in all_added}
    ours = [(names[name], text and text.encode()) for name, text in all_added.items()]
    return {"key": key, "value": value, "timestamp": timestamp, "headers": [*headers, *ours]}


def produce(servers: str, topic: str, letters: Iterable[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for letter in letters:
        producer.produce(topic, **letter)
    assert producer.flush(_SECONDS) == 0

"""[both] A consumer group's offset, read and written by a consumer that never joins it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.client import Client, milliseconds
from spark_kafka_sink.librdkafka.error_codes import ErrorCode

_PARTITION = 0


@dataclass(frozen=True)
class CommittedOffset:
    """A group's offset for partition 0 of a topic, with the text committed with it."""

    offset: int
    metadata: str


@dataclass(frozen=True)
class OffsetAnswer:
    """``code`` 0: the answer is known, and ``committed`` is None if the group has no offset."""

    code: int
    committed: CommittedOffset | None = None


class GroupClient(Client):
    """A consumer handle of the setting ``group.id``.

    It finds the group's coordinator at once, in the background.

    Admin requests for offsets would need only one handle for all groups, but librdkafka's can abort
    the process when a coordinator moves or is lost (its issues 3663, 4605, 5040 and 5397).
    If the user may not see the group, a BrokerError event says so, and requests time out.
    """

    _KIND = c.CONSUMER

    def __init__(self, settings: Mapping[str, str], *, asks_for_tokens: bool = False) -> None:
        super().__init__(settings, asks_for_tokens=asks_for_tokens)
        # Events about the group join the others.
        c.poll_set_consumer(self.handle)
        self._bootstrap()
        # The look-up of the coordinator begins only when the main thread wakes; this call wakes it.
        with partition_list(self.handle, "") as partitions:
            c.committed(self.handle, partitions, 0)


def fetch_offset(client: GroupClient, topic: str, seconds: float) -> OffsetAnswer:
    """The group's offset for partition 0 of the topic; waits that long.

    Only a stable offset: while a transaction that will change it is open, or is being ended, there
    is no answer (``rd_kafka_committed``).
    """
    with partition_list(client.handle, topic) as partitions:
        code = c.committed(client.handle, partitions, milliseconds(seconds))
        element = partitions.contents.elems[0]
        code = code or element.err
        if code == ErrorCode.GROUP_ID_NOT_FOUND:  # Apache Kafka answers that there is no offset
            return OffsetAnswer(ErrorCode.NO_ERROR)
        if code or element.offset < 0:
            return OffsetAnswer(code)
        size = element.metadata_size
        text = ctypes.string_at(element.metadata, size) if size else b""
        return OffsetAnswer(0, CommittedOffset(element.offset, text.decode(errors="replace")))


def store_offset(client: GroupClient, topic: str, offset: CommittedOffset, seconds: float) -> int:
    """Commit the group's offset for partition 0 of the topic; waits that long; returns a code.

    (``rd_kafka_commit_queue``, because ``rd_kafka_commit`` has no time-out)
    """
    queue = c.queue_new(client.handle)
    try:
        with partition_list(client.handle, topic, offset) as partitions:
            code = int(c.commit_queue(client.handle, partitions, queue, None, None))
        if code:
            return code
        event = c.queue_poll(queue, milliseconds(seconds))
        if not event:
            return ErrorCode.TIMED_OUT
        try:
            return int(c.event_error(event))
        finally:
            c.event_destroy(event)
    finally:
        c.queue_destroy(queue)


@contextmanager
def partition_list(handle: int, topic: str, offset: CommittedOffset | None = None) -> Iterator[Any]:
    """A list of partition 0 of the topic, with its offset if there is one, for that handle."""
    partitions = c.partition_list_new(1)
    try:
        element = c.partition_list_add(partitions, topic.encode(), _PARTITION).contents
        if offset is not None:
            text = offset.metadata.encode()
            element.offset = offset.offset
            # The list frees it.
            element.metadata = c.mem_malloc(handle, len(text))
            ctypes.memmove(element.metadata, text, len(text))
            element.metadata_size = len(text)
        yield partitions
    finally:
        c.partition_list_destroy(partitions)

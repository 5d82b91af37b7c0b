"""Offsets of consumer groups, read and written without a consumer."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.deadline import Deadline
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


class OffsetsClient(Client):
    """A consumer handle that never consumes or joins its group.

    In a producer's handle, librdkafka dereferences a null pointer if a broker answers a request for
    offsets with NOT_COORDINATOR (librdkafka's issue 5040). ``group``: one that the user may read.
    """

    _KIND = c.CONSUMER

    def __init__(
        self, settings: Mapping[str, str], group: str, *, asks_for_tokens: bool = False
    ) -> None:
        # Warnings would only list settings that consumers do not have.
        own = {"group.id": group, "log_level": "3"}
        super().__init__({**settings, **own}, asks_for_tokens=asks_for_tokens)


def fetch_offsets(
    client: OffsetsClient, groups: Sequence[str], topic: str, seconds: float
) -> Mapping[str, OffsetAnswer]:
    """The groups' offsets for partition 0 of the topic, requested at once; waits that long.

    Only stable offsets: while a transaction that will change one is open, or is being ended, its
    code is UNSTABLE_OFFSET_COMMIT (``rd_kafka_ListConsumerGroupOffsets``).
    """

    def request(queue: int, options: int) -> None:
        error = c.admin_options_set_require_stable_offsets(options, 1)
        if error:
            c.error_destroy(error)
        for group in groups:
            with partition_list(client, topic) as partitions:
                wanted = c.list_group_offsets_new(group.encode(), partitions)
            array = (ctypes.c_void_p * 1)(wanted)
            c.list_group_offsets(client.handle, array, 1, options, queue)
            c.list_group_offsets_destroy(wanted)

    answers = {group: OffsetAnswer(ErrorCode.TIMED_OUT) for group in groups}
    operation = c.ADMIN_OP_LISTCONSUMERGROUPOFFSETS
    for event in _events(client, operation, request, len(groups), seconds):
        result = c.event_list_group_offsets_result(event)
        answers.update(_answers(event, result, c.list_group_offsets_result_groups, groups))
    return answers


def store_offset(
    client: OffsetsClient, group: str, topic: str, offset: CommittedOffset, seconds: float
) -> int:
    """Commit a group's offset for partition 0 of the topic; waits that long; returns a code.

    (``rd_kafka_AlterConsumerGroupOffsets``)
    """

    def request(queue: int, options: int) -> None:
        with partition_list(client, topic, offset) as partitions:
            wanted = c.alter_group_offsets_new(group.encode(), partitions)
        array = (ctypes.c_void_p * 1)(wanted)
        c.alter_group_offsets(client.handle, array, 1, options, queue)
        c.alter_group_offsets_destroy(wanted)

    answers = {group: OffsetAnswer(ErrorCode.TIMED_OUT)}
    for event in _events(client, c.ADMIN_OP_ALTERCONSUMERGROUPOFFSETS, request, 1, seconds):
        result = c.event_alter_group_offsets_result(event)
        answers.update(_answers(event, result, c.alter_group_offsets_result_groups, [group]))
    return answers[group].code


@contextmanager
def partition_list(
    client: Client, topic: str, offset: CommittedOffset | None = None
) -> Iterator[Any]:
    """A list of partition 0 of the topic, with its offset if there is one."""
    partitions = c.partition_list_new(1)
    try:
        element = c.partition_list_add(partitions, topic.encode(), _PARTITION).contents
        if offset is not None:
            text = offset.metadata.encode()
            element.offset = offset.offset
            # The list frees it.
            element.metadata = c.mem_malloc(client.handle, len(text))
            ctypes.memmove(element.metadata, text, len(text))
            element.metadata_size = len(text)
        yield partitions
    finally:
        c.partition_list_destroy(partitions)


def _events(
    client: Client, operation: int, request: Any, count: int, seconds: float
) -> Iterator[int]:
    """Send requests, and yield their result events; fewer than ``count`` if the time is up."""
    deadline = Deadline(seconds)
    queue = c.queue_new(client.handle)
    try:
        with client.admin_options(operation, seconds) as options:
            request(queue, options)
        while count and (event := c.queue_poll(queue, milliseconds(deadline.remaining()))):
            count -= 1
            try:
                yield event
            finally:
                c.event_destroy(event)
    finally:
        c.queue_destroy(queue)


def _answers(
    event: int, result: int, result_groups: Any, asked: Sequence[str]
) -> dict[str, OffsetAnswer]:
    if c.event_error(event):
        # It does not say for which of the groups.
        return dict.fromkeys(asked, OffsetAnswer(c.event_error(event)))
    count = ctypes.c_size_t()
    groups = result_groups(result, ctypes.byref(count))
    return {c.group_result_name(groups[i]).decode(): _answer(groups[i]) for i in range(count.value)}


def _answer(group: int) -> OffsetAnswer:
    error = c.group_result_error(group)
    if error:
        return OffsetAnswer(int(c.error_code(error)))
    partitions = c.group_result_partitions(group).contents
    if not partitions.cnt:
        return OffsetAnswer(ErrorCode.NO_ERROR)
    element = partitions.elems[0]
    if element.err or element.offset < 0:
        return OffsetAnswer(element.err)
    text = ctypes.string_at(element.metadata, element.metadata_size) if element.metadata else b""
    return OffsetAnswer(0, CommittedOffset(element.offset, text.decode(errors="replace")))

"""[both] librdkafka's calls for transactions, on a client with the setting ``transactional.id``."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.client import Client, milliseconds
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset, partition_list


@dataclass(frozen=True)
class CallFailed:
    """Why a call failed, and what may be done next, according to librdkafka.

    ``is_retriable``: the call may be repeated, and resumes.
    ``requires_abort``: the transaction can only be aborted.
    """

    code: int
    text: str
    is_retriable: bool
    requires_abort: bool


def init_transactions(client: Client, seconds: float) -> CallFailed | None:
    """Fence earlier clients of the same ``transactional.id``, and end their transaction.

    Calls the coordinator, and waits that long (``rd_kafka_init_transactions``).
    """
    return _failure(c.init_transactions(client.handle, milliseconds(seconds)))


def begin_transaction(client: Client) -> CallFailed | None:
    """Begin a transaction, in this client only (``rd_kafka_begin_transaction``)."""
    return _failure(c.begin_transaction(client.handle))


def transaction_failure(client: Client) -> CallFailed | None:
    """Why the open transaction can only be aborted; None if it can go on.

    librdkafka answers with the reason when asked to begin another one, and sends no request.
    """
    failure = begin_transaction(client)
    return failure if failure is not None and failure.requires_abort else None


class OffsetCall:
    """Makes an offset part of the transaction (``rd_kafka_send_offsets_to_transaction``).

    librdkafka aborts the transaction when the call times out, so there is only one call. It checks
    the time only when a broker answers or disconnects, so the call has a thread of its own.
    """

    def __init__(
        self, client: Client, group: str, topic: str, offset: CommittedOffset, seconds: float
    ) -> None:
        def call(handle: int) -> CallFailed | None:
            metadata = c.group_metadata_new(group.encode())
            try:
                with partition_list(handle, topic, offset) as offsets:
                    return _failure(
                        c.send_offsets_to_transaction(
                            handle, offsets, metadata, milliseconds(seconds)
                        )
                    )
            finally:
                c.group_metadata_destroy(metadata)

        self._outcome = client.start_call(call)

    def join(self, seconds: float) -> bool:
        """Wait that long for the end of the call; returns whether it has ended."""
        return bool(wait([self._outcome], seconds).done)

    def outcome(self) -> CallFailed | None:
        """None if the call has succeeded; a retriable failure while it still runs."""
        if not self._outcome.done():
            return CallFailed(
                ErrorCode.TIMED_OUT,
                "no answer from the coordinator",
                is_retriable=True,
                requires_abort=False,
            )
        return self._outcome.result()


def commit_transaction(client: Client, seconds: float) -> CallFailed | None:
    """Commit; waits that long (``rd_kafka_commit_transaction``). Flush, and poll reports, first."""
    return _failure(c.commit_transaction(client.handle, milliseconds(seconds)))


def abort_transaction(client: Client, seconds: float) -> CallFailed | None:
    """Abort; waits that long (``rd_kafka_abort_transaction``).

    It waits for reports that only ``Client.poll`` reads: alternate short calls with it.
    """
    return _failure(c.abort_transaction(client.handle, milliseconds(seconds)))


def _failure(error: Any) -> CallFailed | None:
    if not error:
        return None
    try:
        return CallFailed(
            int(c.error_code(error)),
            c.error_string(error).decode(errors="replace"),
            bool(c.error_is_retriable(error)),
            bool(c.error_txn_requires_abort(error)),
        )
    finally:
        c.error_destroy(error)

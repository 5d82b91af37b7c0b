"""[both] Reads and writes the ledger's offsets; repeats requests that brokers cannot answer yet."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from spark_kafka_sink.advice import Advice, advice_on_broker_error
from spark_kafka_sink.clients.idle_clients import IdleClients
from spark_kafka_sink.clients.session import Session, explained
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.added_settings import group_settings
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded, KafkaSinkError, TransactionFailed
from spark_kafka_sink.librdkafka.error_codes import ErrorCode, error_name, error_text
from spark_kafka_sink.librdkafka.events import BrokerError, Statistics
from spark_kafka_sink.librdkafka.group_offsets import (
    CommittedOffset,
    GroupClient,
    OffsetAnswer,
    fetch_offset,
    store_offset,
)
from spark_kafka_sink.process_limits import free_address_space
from spark_kafka_sink.threads import per_process

# If brokers do not name the coordinator, that is noticed only when the request times out.
_FIRST_REQUEST_SECONDS = 1.0
_REQUEST_SECONDS = 5.0
# A new client needs six round trips for its first answer. If it were replaced before that, slow
# brokers would have even more to do.
_RECONNECT_SECONDS = 4.0
# Its three connections may each try a dead address first, for 7 s with the default.
_CONNECTED_SECONDS = 25.0
_PAUSE_SECONDS = 0.05
_FREE_SECONDS = 0.8
# How long another thread may read the events of an idle client: a handler of log lines may hang.
_ACCESS_SECONDS = 1.0
# Those of the batch marker and the layout, which all tasks of a query read, and of commit entries.
# Each has a connection and some threads, and reserves address space.
_MAX_IDLE = 10
_MAX_IDLE_WITHOUT_SPACE = 3
#: each client has some threads and connections
CLIENTS_AT_ONCE = 16

T = TypeVar("T")

_REJECTED: Mapping[int, Advice] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Advice.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Advice.LEDGER_TOPIC_FORBIDDEN,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Advice.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def never() -> bool:
    return False


@dataclass(frozen=True)
class BrokerWait:
    """A wait for the brokers: its deadline, the option that sets it, and its purpose.

    ``is_woken``: whether nobody needs the answer any more.
    """

    deadline: Deadline
    option: str
    purpose: str
    is_woken: Callable[[], bool] = never

    def capped(self, seconds: float) -> BrokerWait:
        """The same wait with a shorter deadline."""
        return replace(self, deadline=self.deadline.capped(seconds))

    def error(self, code: int, text: str = "", broker_error: str = "") -> KafkaSinkError:
        """The error for the brokers' latest answer, or for none and why it did not come."""
        answer = f"{text or error_text(code)} ({error_name(code)})"
        if code in _REJECTED:
            return TransactionFailed(
                f"{self.purpose}: {answer}. {_REJECTED[code].remedy}", code=error_name(code)
            )
        last = f"; last broker error: {broker_error}" if broker_error else ""
        advice = advice_on_broker_error(broker_error) or Advice.COORDINATOR_IS_LATE.remedy
        return DeadlineExceeded(
            f"{self.purpose}: {answer}, until the time-out ({self.option}){last}. {advice}"
        )

    def is_over(self, code: int) -> bool:
        return self.deadline.expired or code in _REJECTED

    def raise_if_woken(self) -> None:
        if self.is_woken():
            raise InterruptedError(f"{self.purpose}: woken up")

    def pause(self, seconds: float = _PAUSE_SECONDS) -> None:
        time.sleep(self.deadline.slice(seconds))


class GroupOffset:
    """The offset of a group for partition 0 of a topic. Connects at once, in the background.

    Used by one thread, and closed at the end, or lent to one task after another
    (``borrow_offset``).
    """

    def __init__(self, settings: ClientSettings, topic: str, group: str) -> None:
        self.group = group
        self._settings = settings
        self._topic = topic
        #: the latest that explains why requests time out
        self._broker_error = ""
        self._lock = threading.Lock()  # held while a thread uses the client
        self._is_closed = False
        #: the client may have lost its coordinator without noticing
        self._was_idle = False
        self._connect()

    def _connect(self) -> None:
        self._session = Session(GroupClient, group_settings(self._settings, self.group))
        self._client = self._session.client
        #: code with which the brokers reject the request for the coordinator
        self._rejection_code = ErrorCode.NO_ERROR
        self._until_connected = Deadline(_CONNECTED_SECONDS)
        #: during the latest request an address did not answer; the client then tries the next one
        self._awaited_connection = False

    def read(self, wait: BrokerWait) -> CommittedOffset | None:
        """The group's stable offset, None if it has none; an error is never "no offset".

        Raises TransactionFailed, DeadlineExceeded, or InterruptedError if the wait is woken up.
        """
        return self._repeat(lambda seconds: fetch_offset(self._client, self._topic, seconds), wait)

    def write(self, offset: CommittedOffset, wait: BrokerWait) -> None:
        """Commit the group's offset. Raises TransactionFailed or DeadlineExceeded."""

        def store(seconds: float) -> OffsetAnswer:
            return OffsetAnswer(store_offset(self._client, self._topic, offset, seconds))

        self._repeat(store, wait)

    def _repeat(
        self, request: Callable[[float], OffsetAnswer], wait: BrokerWait
    ) -> CommittedOffset | None:
        seconds = _FIRST_REQUEST_SECONDS
        last_code: int = ErrorCode.TIMED_OUT
        while True:
            wait.raise_if_woken()
            self._log_in(wait)
            self._awaited_connection = False
            answer = request(wait.deadline.slice(seconds))
            was_idle, self._was_idle = self._was_idle, False
            if answer.code == ErrorCode.NO_ERROR:
                return answer.committed
            self._handle_events()
            code = self._rejection_code or answer.code
            # The deadline cuts the last request short: what brokers have answered says more.
            last_code = code if code != ErrorCode.TIMED_OUT else last_code
            if wait.is_over(last_code):
                raise wait.error(last_code, broker_error=self._broker_error)
            wait.pause()
            is_late = seconds >= _RECONNECT_SECONDS and (
                not self._awaited_connection or self._until_connected.expired
            )
            if answer.code != ErrorCode.TIMED_OUT or was_idle or is_late:
                # The client may keep asking a broker that hangs, or is no longer the coordinator.
                self._client.close(Deadline(_FREE_SECONDS))
                self._connect()
            seconds = min(2 * seconds, _REQUEST_SECONDS)

    def _log_in(self, wait: BrokerWait) -> None:
        """Handle the client's events, and give a new client its token: requests wait for it."""
        while True:
            self._handle_events()
            if wait.deadline.expired or not self._session.awaits_token:
                return
            wait.pause()

    def _handle_events(self) -> None:
        for event in self._session.poll():
            if isinstance(event, Statistics):
                self._awaited_connection |= event.awaits_connection
            if not isinstance(event, BrokerError):
                continue
            if event.code in _REJECTED:
                self._rejection_code = ErrorCode(event.code)
            elif event.code != ErrorCode.ALL_BROKERS_DOWN:  # which says no reason
                self._broker_error = explained(event, self._settings)

    @property
    def is_outdated(self) -> bool:
        """Whether a file of its settings was replaced since its client was created."""
        return self._session.is_outdated

    def acquire(self) -> bool:
        """Whether this thread, and no other, uses the client from now on, until ``release``."""
        return self._lock.acquire(timeout=_ACCESS_SECONDS)

    def release(self) -> None:
        self._was_idle = True
        self._lock.release()

    def read_events(self) -> None:
        """Handle the client's events, unless another thread uses it: it may need a token."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_closed:
                    self._handle_events()
            finally:
                self._lock.release()

    def close(self, timeout_seconds: float = _FREE_SECONDS) -> None:
        """Free the client, unless another thread keeps using it; waits that long until it is."""
        if self.acquire():
            self._is_closed = True
            self._client.close(Deadline(timeout_seconds))
            self._lock.release()


@contextmanager
def borrow_offset(options: SinkOptions, topic: str, group: str) -> Iterator[GroupOffset]:
    """A group's offset for one task or micro-batch; each of its calls asks the brokers.

    Only its connection may be older. It is kept for the next task unless this one fails.
    """
    idle = _idle_offsets()
    key = options.producer.client, topic, group
    offset = idle.take(key)
    if offset is not None and offset.is_outdated:
        offset.close()
        offset = None
    if offset is None or not offset.acquire():
        offset = GroupOffset(*key)
        offset.acquire()
    try:
        yield offset
    except BaseException:
        offset.release()
        offset.close()
        raise
    offset.release()
    if not idle.keep(key, offset, options.values[table.PRODUCER_CACHE_TIMEOUT] / 1000):
        offset.close()


@per_process
def _idle_offsets() -> IdleClients[tuple[ClientSettings, str, str], GroupOffset]:
    return IdleClients(_most_idle)


def _most_idle() -> int:
    return _MAX_IDLE if free_address_space() == math.inf else _MAX_IDLE_WITHOUT_SPACE


def in_parts(items: list[T]) -> list[list[T]]:
    """``items``, each of which needs a client: parts of at most ``CLIENTS_AT_ONCE``."""
    return [items[i : i + CLIENTS_AT_ONCE] for i in range(0, len(items), CLIENTS_AT_ONCE)]


def read_offsets(
    settings: ClientSettings, topic: str, groups: Sequence[str], wait: BrokerWait
) -> dict[str, CommittedOffset | None]:
    """The stable offsets of groups; raises what ``GroupOffset.read`` raises.

    Of one of the ``in_parts``.
    """
    with ExitStack() as stack:
        offsets = [
            stack.enter_context(closing(GroupOffset(settings, topic, group))) for group in groups
        ]
        return {offset.group: offset.read(wait) for offset in offsets}

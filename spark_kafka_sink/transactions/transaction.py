"""[both] Transaction: one transaction of one client, from its creation to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import Enum

from spark_kafka_sink.advice import Advice, advice_on
from spark_kafka_sink.config.added_settings import transactional
from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import (
    DeliveryFailed,
    InvalidOption,
    KafkaSinkError,
    ProducerClosed,
    TransactionFailed,
    TransactionFenced,
    TransactionTimeout,
    add_sentence,
)
from spark_kafka_sink.librdkafka import transaction_calls as calls
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import REJECTIONS, ErrorCode, error_name
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.librdkafka.transaction_calls import CallFailed
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.rejection import RejectedRecords
from spark_kafka_sink.transactions.offset_calls import BrokerWait

# Calls wait this long at a time; in between, events are handled, such as the need for a token.
_CALL_SECONDS = 0.1
# With an abort, readers need not wait for the transaction's time-out. It is not needed for safety.
_ABORT_SECONDS = 5.0


class TransactionState(Enum):
    CREATED = "created"
    INITIALIZED = "earlier clients are fenced, and their transactions have ended"
    OPEN = "records and an offset may be sent"
    COMMITTED = "committed"
    #: aborted, fenced, or with an outcome that only the brokers know: never used again
    ENDED = "ended"


class Transaction:
    """A producer for a single transaction.

    librdkafka lacks KIP-890, so a request to end a transaction that arrives late could end the
    next one of the same producer epoch. With a new client for each, it has an old epoch.
    Used by one thread. Every method raises TransactionFenced once another client has taken over the
    id, TransactionFailed if the brokers reject the call, DeadlineExceeded when its wait expires.
    """

    def __init__(self, options: ProducerOptions, transactional_id: str, timeout_ms: int) -> None:
        settings = transactional(options.client, transactional_id, timeout_ms)
        self.producer = NonBlockingProducer(replace(options, client=settings))
        self.state = TransactionState.CREATED
        self._dead_letter_topic = options.dead_letter_topic
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        #: when the first record or offset was sent; the brokers begin a little later
        self._opened_at: float | None = None

    def start(self, topics: Sequence[str]) -> None:
        """Begin in the background what ``initialize`` waits for; call that next."""
        self._prefetch(topics)
        with self.producer.exclusive_client() as client:
            if calls.init_transactions(client, 0.0) is None:
                self.state = TransactionState.INITIALIZED
        self.producer.poll()  # the client may need a token before it connects

    def _prefetch(self, topics: Sequence[str]) -> None:
        # Not only for the records: librdkafka requests a producer id half a second after its
        # start, or as soon as it finds a broker.
        self.producer.prefetch(topics)

    def initialize(self, topics: Sequence[str], wait: BrokerWait) -> None:
        """Fence earlier clients, end their transactions; fetch the topics' metadata meanwhile.

        Raises InvalidOption if the brokers do not allow the transaction's time-out.
        """
        if self.state is TransactionState.CREATED:
            self._prefetch(topics)
            failure = self._repeat(calls.init_transactions, wait)
            if failure is not None:
                raise self._call_error(failure, wait)
            self.state = TransactionState.INITIALIZED

    def begin(self) -> None:
        with self.producer.exclusive_client() as client:
            failure = calls.begin_transaction(client)
        if failure is not None:
            raise self._error(failure, "beginning the transaction")
        self.state = TransactionState.OPEN

    def send(self, records: RecordColumns) -> None:
        """Send records in the transaction; raises the first failure of any record.

        Raises TransactionTimeout too, and what ``NonBlockingProducer.send`` raises.
        """
        self.check_age()
        with self._raising_cause():
            self.producer.send(records)

    def send_dead_letters(self, rejected: RejectedRecords) -> None:
        """Send dead letters for rows in the transaction; raises like ``send``."""
        self.check_age()
        with self._raising_cause():
            self.producer.send_dead_letters(rejected)

    def flush(self, seconds: float) -> None:
        """Wait until all records are acknowledged."""
        self.check_age()
        with self._raising_cause():
            self.producer.flush(seconds)

    def send_offset(
        self, group: str, topic: str, offset: CommittedOffset, wait: BrokerWait
    ) -> None:
        """Make the group's offset part of the transaction.

        Until the transaction ends, the stable offset of that group cannot be read.
        """
        self.check_age()
        seconds = wait.deadline.remaining()
        with self.producer.exclusive_client() as client:
            call = calls.OffsetCall(client, group, topic, offset, seconds)
        while not call.join(wait.deadline.slice(_CALL_SECONDS)) and not wait.deadline.expired:
            self.producer.poll()
        failure = call.outcome()
        if failure is not None:
            raise self._call_error(failure, wait)

    def commit(self, wait: BrokerWait) -> None:
        """Commit records and offsets, after ``flush``.

        If the wait expires while the brokers commit, only they know the outcome.
        """
        self.check_age()
        # From here on, the transaction may be committed even if this call fails.
        self.state = TransactionState.ENDED
        failure = self._repeat(calls.commit_transaction, wait)
        if failure is not None:
            if failure.requires_abort:
                self.state = TransactionState.OPEN
            raise self._call_error(failure, wait)
        self.state = TransactionState.COMMITTED

    def close(self) -> None:
        """Abort the transaction if it is open, and free the client; always returns in time."""
        try:
            if self.state is TransactionState.OPEN:
                self.state = TransactionState.ENDED
                self._abort(Deadline(_ABORT_SECONDS))
        finally:
            self.producer.close(0)

    def _abort(self, deadline: Deadline) -> None:
        while True:
            try:
                with self.producer.exclusive_client() as client:
                    failure = calls.abort_transaction(client, deadline.slice(_CALL_SECONDS))
                with suppress(InterruptedError):  # of what may have caused this abort
                    self.producer.poll()
            except KafkaSinkError:
                return  # the error that caused the abort says more
            if failure is None or not failure.is_retriable or deadline.expired:
                return
            if failure.code != ErrorCode.TIMED_OUT:
                time.sleep(deadline.slice(_CALL_SECONDS))  # the call for an offset has not returned

    def _repeat(
        self, call: Callable[[Client, float], CallFailed | None], wait: BrokerWait
    ) -> CallFailed | None:
        """Repeat a resumable call until it succeeds, fails, or the wait expires."""
        while True:
            with self.producer.exclusive_client() as client:
                failure = call(client, wait.deadline.slice(_CALL_SECONDS))
            self.producer.poll()
            if failure is None or not failure.is_retriable or wait.deadline.expired:
                return failure
            wait.raise_if_woken()
            if failure.code != ErrorCode.TIMED_OUT:
                wait.pause()

    def _call_error(self, failure: CallFailed, wait: BrokerWait) -> KafkaSinkError:
        is_fenced = failure.code == ErrorCode.FENCED
        if not is_fenced and (failure.is_retriable or wait.is_over(failure.code)):
            return wait.error(failure.code, failure.text, self.producer.broker_error)
        return self._error(failure, wait.purpose)

    def _error(self, failure: CallFailed, purpose: str) -> KafkaSinkError:
        if failure.code == ErrorCode.FENCED:
            return self._fenced()
        if failure.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            return InvalidOption(
                f"kafka.transaction.timeout.ms={self._timeout_ms} is more than the brokers allow "
                f"(transaction.max.timeout.ms). {Advice.INVALID_TRANSACTION_TIMEOUT.remedy}"
            )
        name, advice = error_name(failure.code), advice_on(failure.code)
        reason = f"{failure.text} ({name}){f'. {advice}' if advice else ''}"
        return self._failed(f"{purpose}: {reason}", name)

    def _failed(self, reason: str, code: str) -> TransactionFailed:
        return TransactionFailed(
            f"{reason}. The next attempt, or the restarted query, sends all rows again", code=code
        )

    def _fenced(self) -> KafkaSinkError:
        if self._age_seconds * 1000 >= self._timeout_ms:
            return self._timed_out()
        outcome = "nothing that this attempt sent becomes visible"
        if self.state is TransactionState.ENDED:
            outcome = "the ledger shows whether this attempt was committed first"
        return TransactionFenced(
            f"another attempt of this task has taken over the transaction {self._id}; {outcome}. "
            f"{Advice.TRANSACTION_FENCED.remedy}"
        )

    def _timed_out(self) -> TransactionTimeout:
        return TransactionTimeout(
            f"the transaction {self._id} has been open for {self._age_seconds:.1f} s, and "
            f"kafka.transaction.timeout.ms={self._timeout_ms}; the brokers abort it. "
            f"{Advice.TRANSACTION_TIMED_OUT.remedy}"
        )

    @property
    def _age_seconds(self) -> float:
        return 0.0 if self._opened_at is None else time.monotonic() - self._opened_at

    def check_age(self) -> None:
        """Raise TransactionTimeout if the brokers may have aborted the transaction by now."""
        if self._opened_at is None:
            self._opened_at = time.monotonic()
        if self._age_seconds * 1000 >= self._timeout_ms:
            raise self._timed_out()

    @contextmanager
    def _raising_cause(self) -> Iterator[None]:
        """Records fail for the client's own reasons after it was fenced, and while it is idle
        because its transaction has failed: raise the cause instead.
        """
        try:
            yield
        except ProducerClosed:
            raise
        except KafkaSinkError as error:
            with self.producer.exclusive_client() as client:
                fatal = client.fatal_error()
                failure = calls.transaction_failure(client) if fatal is None else None
            if fatal is not None:
                failure = CallFailed(
                    fatal.code, fatal.text, is_retriable=False, requires_abort=False
                )
            if failure is None:
                raise
            if failure.code == ErrorCode.TIMED_OUT:  # records expired: their own error says more
                self.check_age()
                raise
            if isinstance(error, DeliveryFailed) and error.code == error_name(failure.code):
                cause: KafkaSinkError = self._failed(f"sending records: {error}", error.code)
                is_of_dead_letters = error.topic == self._dead_letter_topic
            else:
                cause = self._error(failure, "sending records")
                # Another record failed because of it; librdkafka's text names the topic.
                is_of_dead_letters = f" for {self._dead_letter_topic} [" in failure.text
            may_become_dead_letters = self._dead_letter_topic is not None and not is_of_dead_letters
            if failure.code in REJECTIONS and may_become_dead_letters:
                add_sentence(cause, str(Advice.REJECTED_IN_TRANSACTION))
            raise cause from error


def fence(
    options: ProducerOptions,
    transactional_ids: Sequence[str],
    timeout_ms: int,
    topics: Sequence[str],
    wait: BrokerWait,
) -> None:
    """Take over transactional ids, all at once; wait until their current transactions have ended.

    At most ``CLIENTS_AT_ONCE`` of them, because each needs a client. A transaction whose commit has
    begun is committed, any other is aborted. Raises what ``Transaction.initialize`` raises.
    """
    with ExitStack() as stack:
        successors = []
        for transactional_id in transactional_ids:
            successor = Transaction(options, transactional_id, timeout_ms)
            stack.callback(successor.close)
            successor.start(topics)
            successors.append(successor)
        for successor in successors:
            successor.initialize(topics, wait)

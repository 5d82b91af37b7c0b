"""[both] The error tree, ordered by what the user can do.

Every error can be pickled with its fields, because Spark passes some of them from a Python worker
to the driver.
"""

from __future__ import annotations

import copy
import re
from typing import Any


def _rebuild(cls: type[KafkaSinkError], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.__dict__.update(fields)
    return error


class KafkaSinkError(Exception):
    """Root of all errors that this package raises. Their messages say what to do."""

    #: Whether a restart of the query would fail in the same way, or do harm: a login that is
    #: rejected too often may be locked.
    is_permanent = False

    def __str__(self) -> str:
        # Some have two sentences: the problem, and what to do, which doctor shows apart.
        return ". ".join(map(str, self.args))

    def __reduce__(self) -> Any:
        # Exception.__reduce__ calls the constructor with args only, without our fields.
        return _rebuild, (type(self), self.args, self.__dict__)


def headline(error: KafkaSinkError) -> KafkaSinkError:
    """A copy to raise the error from: a traceback begins with its cause, here its own message.

    Spark shows users whole tracebacks of Python processes, and often only their first line. So
    errors leave the sink by ``raise error.with_traceback(None) from headline(error)``, without the
    sink's frames. A function that did so would be one more frame.
    """
    return copy.copy(error)


def add_sentence(error: KafkaSinkError, sentence: str) -> None:
    """Add what only the caller knows to an error's message, such as the fate of the records."""
    error.args = (f"{error}. {sentence}",)


class InvalidOption(KafkaSinkError):
    """An option is unknown, malformed, missing or contradicts another. Raised on the driver.

    ``option``: the one whose name or value is wrong, whatever the others are; None if options
    contradict each other, or one is missing.
    """

    is_permanent = True

    def __init__(self, message: str, *, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class InvalidConfiguration(KafkaSinkError):
    """A job's configuration file has mistakes, which the message lists.

    Raised before the query starts.
    """

    is_permanent = True


class InvalidSchema(KafkaSinkError):
    """The DataFrame's columns cannot become Kafka records. Raised on the driver."""

    is_permanent = True


class SchemaMismatch(InvalidSchema):
    """A column does not fit the schema with which it is to be serialized. Raised on the driver; by
    a task for the latest schema of a topic that comes from the column.

    ``problems``: one sentence for each field.
    """

    def __init__(self, message: str, *, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class UnsupportedType(SchemaMismatch):
    """The serialization format lacks the Spark type of a column. Raised on the driver."""


class SchemaIncompatible(KafkaSinkError):
    """The schema registry rejects a schema as incompatible with earlier versions of ``subject``.

    Make new fields nullable, or change the subject's compatibility level.
    """

    is_permanent = True

    def __init__(self, message: str, *, subject: str) -> None:
        super().__init__(message)
        self.subject = subject


class SchemaNotFound(KafkaSinkError):
    """The schema registry lacks the schema in ``subject``, and the query may not register it.

    Register the schema, or set ``auto.register.schemas=true``.
    """

    def __init__(self, message: str, *, subject: str) -> None:
        super().__init__(message)
        self.subject = subject


class RegistryUnavailable(KafkaSinkError):
    """The schema registry does not answer in time, or answers with an error of its own.

    Check that ``schema.registry.url`` is right and reachable; then start the query again. A running
    query needs the registry only for topics that it has not written to.
    """


class RegistryRejected(KafkaSinkError):
    """The schema registry rejects the login, the permissions or the request.

    ``RegistryRefused``: the former name; deprecated.
    """

    is_permanent = True


class UnsupportedSaveMode(KafkaSinkError):
    """A save mode that a Kafka topic does not support: write with ``mode("append")``."""

    is_permanent = True


class InvalidRecord(KafkaSinkError):
    """A row cannot become a Kafka record. Nothing of its Arrow batch was sent.

    Filter or repair the row that the message names, or set ``on.record.error=dead-letter``.
    """

    is_permanent = True


class BrokerUnavailable(KafkaSinkError):
    """No broker answers. Raised on the driver, before any task starts."""


class AuthenticationFailed(KafkaSinkError):
    """The brokers reject the login, or TLS fails. Raised on the driver."""

    is_permanent = True


class TokenUnavailable(AuthenticationFailed):
    """There is no token for the login now. Raised on the driver; with Kerberos, also by tasks.

    The token endpoint does not answer in time, or only with an error of its own (HTTP 408, 429,
    5xx); or the function of ``oauth.callback``, or AWS's signer, raised an error or did not return
    in time; or Kerberos' KDC does not answer. Once this is solved, start the query again.
    """

    is_permanent = False


class TopicUnavailable(KafkaSinkError):
    """``topic`` cannot be written to: it is forbidden, invalid, or missing and not created.

    ``code``: librdkafka's name for the error.
    """

    def __init__(self, message: str, *, topic: str, code: str) -> None:
        super().__init__(message)
        self.topic = topic
        self.code = code


class ProducerClosed(KafkaSinkError):
    """The producer is closed, or another thread is closing it, as when a task is stopped."""


class DeliveryFailed(KafkaSinkError):
    """A broker or the client rejected records. Spark's next attempt sends the whole partition
    again.

    ``topic``, ``partition`` (-1: not yet assigned) and ``code`` (librdkafka's name for the error)
    are those of the first error.
    """

    def __init__(self, message: str, *, topic: str, partition: int, code: str) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.code = code


class DeadlineExceeded(KafkaSinkError):
    """A wait expired before the brokers had acknowledged all records.

    They cannot be reached, or do not keep up. If they are only slow, raise the option that the
    message names.
    """


class BufferExhausted(DeadlineExceeded):
    """The send buffer stayed full for ``kafka.max.block.ms``. Nothing of the send was accepted.

    Check that the brokers keep up; raise ``kafka.buffer.memory`` or ``kafka.max.block.ms``.
    ``accepted_rows``: 0; deprecated.
    """

    accepted_rows = 0


class MetadataTimeout(DeadlineExceeded):
    """A topic's metadata did not arrive within its budget (KIP-912). ``topic``: the first such one.

    Check that the brokers are reachable; raise ``kafka.max.block.ms``, or
    ``kafka.max.block.metadata.ms`` with ``kafka.max.block.ms.include.metadata=false``.
    """

    def __init__(self, message: str, *, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class LedgerAhead(KafkaSinkError):
    """Exactly-once: Kafka already has a later micro-batch than the one that Spark runs now.

    Restore the newer checkpoint. The message says how to write the old micro-batches again on
    purpose.
    """

    is_permanent = True


class LedgerLost(KafkaSinkError):
    """Exactly-once: the consumer groups that record what was committed are missing or outdated.

    Find out whether the micro-batch is in the topics, then start a new ledger with
    ``exactly.once.first.batch``.
    """

    is_permanent = True


class ReplayDiffers(KafkaSinkError):
    """Exactly-once: a partition that is already committed has different rows this time, for
    instance because the query is not deterministic.
    """

    is_permanent = True


class RowsIncomplete(KafkaSinkError):
    """Exactly-once: Spark ended a task before it had passed all rows, so nothing was committed.

    Look for the error that ended the query, unless it was stopped.
    """


class MicroBatchTooLarge(KafkaSinkError):
    """With ``send.from=driver``, the micro-batch has more than ``driver.max.rows`` rows, or more
    bytes than the driver can hold. With exactly-once, none of them is visible; otherwise some may
    be in Kafka.

    A query runs this micro-batch again with the same rows: raise ``driver.max.rows`` or the
    driver's memory, or set ``send.from=executors``. For later ones, limit the source, such as with
    ``maxOffsetsPerTrigger``. Split a batch with exactly-once into several.
    """

    is_permanent = True


class PartitionsChanged(KafkaSinkError):
    """Exactly-once: the number of Spark partitions is not ``exactly.once.partitions``, or not the
    one with which the micro-batch began.

    Leave the query as it was until the micro-batch is complete.
    """

    is_permanent = True


class TransactionFailed(KafkaSinkError):
    """The brokers rejected a step of a transaction. ``code``: librdkafka's name for the error."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class TransactionFenced(KafkaSinkError):
    """Another attempt of the same task has replaced this one, and decides what becomes visible.

    This is normal if Spark repeats or speculates tasks, or if the query has just restarted. If it
    keeps happening, two queries use the same ``transactional.id.prefix`` or checkpoint: stop one.
    """


class TransactionTimeout(KafkaSinkError):
    """A task kept its transaction open for longer than ``kafka.transaction.timeout.ms``.

    A query runs this micro-batch again with the same rows: raise that option. Then make later ones
    smaller, or use more partitions.
    """


class LimitReached(KafkaSinkError):
    """The Python process gets no more memory or threads. Raised by a task, or on the driver.

    The limit may be ``spark.executor.pyspark.memory``, ``ulimit -u``, or a container's
    ``pids.max``.
    """


class LibraryUnavailable(KafkaSinkError):
    """librdkafka, PySpark or a library of an extra is missing, too old, or cannot be loaded."""

    is_permanent = True


class LocalServerError(KafkaSinkError):
    """A local Apache Kafka or schema registry could not be fetched, started or stopped."""


# --- errors in Spark's text about a failed query -------------------------------------------------

_OUR_ERROR = re.compile(r"spark_kafka_sink\.errors\.(\w+): ([^\n]*)")
# What Python code of the user, or of Spark, has raised: in the end, not in the first line.
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(rf"{re.escape(_TRACEBACK)}\n(?:[ \t][^\n]*\n|\n)*(\S[^\n]*)")
# Java's error follows.
_PY4J = re.compile(
    r"\A\s*(?:py4j\.protocol\.Py4JJavaError: )?An error occurred while calling .*\n: "
)


def sink_error_name(text: str) -> str | None:
    """The class name of the sink's own error; None if the query failed for another reason."""
    matches = _OUR_ERROR.findall(text)
    return matches[-1][0] if matches else None


def sink_error(text: str) -> str:
    """The sink's own error as ``Name: message``, or else what Spark or Python says in a line."""
    matches = _OUR_ERROR.findall(text)
    if matches:
        return ": ".join(matches[-1])
    is_traceback = text.strip().partition("\n")[0].endswith(_TRACEBACK)
    if is_traceback and (raised := list(_RAISED.finditer(text))):
        text = text[raised[-1].start(1) :]
    return _PY4J.sub("", text).strip().partition("\n")[0]


def own_error(text: str) -> KafkaSinkError | None:
    """The sink's own error with its message, but without its fields, or None."""
    matches = _OUR_ERROR.findall(text)
    if not matches:
        return None
    name, message = matches[-1]
    cls: type[KafkaSinkError] = globals().get(name, KafkaSinkError)
    return cls.__new__(cls, message)

"""[driver] warm_up: starts a session's workers and producers before its first real micro-batch."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.option import option_texts
from spark_kafka_sink.config.options import asks_for_driver, for_warm_up
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.inquirer import topic_exists
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.driver.preflight import check
from spark_kafka_sink.errors import sink_error
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.spark.datasource import FORMAT, ensure_registered
from spark_kafka_sink.spark.foreach_batch import foreach_batch
from spark_kafka_sink.spark.micro_batch import warn_of_session
from spark_kafka_sink.spark.private_api import has_data_sources, is_classic
from spark_kafka_sink.threads import start_call

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("spark_kafka_sink")

_MIN_WAIT_SECONDS = 0.001  # Spark does not accept 0
_TOPIC_SECONDS = 5.0
_LATE = "not finished in time"
QUERY_NAME = "kafka-nb warm-up"


@dataclass(frozen=True)
class WarmUpResult:
    """The outcome of ``warm_up``.

    - ``seconds``: how long it took.
    - ``micro_batch_seconds``: of these, the micro-batch without rows; 0.0 if it did not finish, or
      if there was none.
    - ``topic``: the topic whose metadata the producers now have, or have requested, or "".
    - ``problem``: why the session may not be warm, or "".
    """

    seconds: float
    micro_batch_seconds: float
    topic: str
    problem: str


def warm_up(
    spark: SparkSession, options: Mapping[str, object], timeout_seconds: float = 60.0
) -> WarmUpResult:
    """Run one micro-batch without rows through ``format("kafka-nb")``; changes nothing in Kafka.

    Starts what a session's first micro-batch would wait for: Spark's Python workers, a producer in
    each that may run a task, its connections and, but not under Spark Connect, the metadata of the
    option ``topic`` if it exists. Before Spark 4.0, it uses ``foreach_batch``. With
    ``send.from=driver``, it runs no micro-batch, and only creates the driver's producer; under
    Spark Connect or with exactly-once, not even that.

    Pass the ``options`` of the query that follows, and start it soon: Spark stops workers that are
    idle for a minute. It never raises; the result and the log say what went wrong. Issues the same
    warnings as ``register``. May run in its own thread. On a distant server of Spark Connect, a
    small folder ``/tmp/kafka-nb-warm-up-*`` stays.
    """
    started = time.monotonic()
    deadline = Deadline(timeout_seconds)
    micro_batch_seconds, topic, problem = 0.0, "", ""
    try:
        texts = option_texts(options)
        # A client of Spark Connect may be far from the brokers.
        topic_call = start_call(_existing_topic, "warm-up", texts) if is_classic(spark) else None
        if asks_for_driver(texts):  # executors need neither Python workers nor this package
            topic = _await_topic(topic_call, deadline)
        else:
            ensure_registered(spark)
            warn_of_session(spark)
            rows = _no_rows(spark)
            topic = _await_topic(topic_call, deadline)
            passed = for_warm_up(texts)
            if not topic:
                passed = {k: v for k, v in passed.items() if k.lower() != table.TOPIC.name}
            with _checkpoint(is_local=is_classic(spark)) as checkpoint:
                micro_batch_seconds, problem = _run(rows, passed, checkpoint, deadline)
    except Exception as error:  # noqa: BLE001 - the application must continue
        problem = sink_error(str(error)) or type(error).__name__
    if problem:
        _log.warning("warm-up: %s", problem)
    seconds = time.monotonic() - started
    return WarmUpResult(seconds, micro_batch_seconds, "" if problem else topic, problem)


def _await_topic(existing_topic: Future[str] | None, deadline: Deadline) -> str:
    """Raises the error of the call, or TimeoutError."""
    if existing_topic is None:
        return ""
    wait([existing_topic], deadline.remaining())
    if not existing_topic.done():
        raise TimeoutError(_LATE)
    return existing_topic.result()


def _existing_topic(options: Mapping[str, str]) -> str:
    """The option ``topic``, if preflight is on and the brokers have that topic; else "".

    With ``send.from=driver``, its metadata is requested by the producer that will send the rows.
    """
    parsed = read_options(options)
    check(parsed)
    exists = parsed.values[table.PREFLIGHT] and topic_exists(parsed, _TOPIC_SECONDS)
    topic = (exists and parsed.topic) or ""
    if not parsed.is_sent_from_driver:
        return topic
    if parsed.exactly_once is not None:
        return ""  # each micro-batch has a new producer
    with process_cache().borrow(parsed) as producer:
        producer.prefetch(filter(None, [topic]))
    return topic


@contextmanager
def _checkpoint(*, is_local: bool) -> Iterator[str]:
    """A new path on the driver's machine, which Spark creates; deleted if it is on this one too."""
    # The server of Spark Connect need not have the folder for this machine's temporary files.
    parent = tempfile.gettempdir() if is_local else "/tmp"  # noqa: S108 - a new name
    path = f"{parent}/kafka-nb-warm-up-{uuid.uuid4()}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(
    rows: DataFrame, options: dict[str, str], checkpoint: str, deadline: Deadline
) -> tuple[float, str]:
    writer = rows.writeStream
    if has_data_sources():
        writer = writer.format(FORMAT).options(**options)
    else:
        writer = writer.foreachBatch(foreach_batch(options))
    writer = writer.queryName(QUERY_NAME).option("checkpointLocation", f"file://{checkpoint}")
    # The query ends after one micro-batch; stopping it during a second one would end its workers.
    query = writer.trigger(availableNow=True).start()
    try:
        seconds = max(_MIN_WAIT_SECONDS, deadline.remaining())
        is_over = query.awaitTermination(seconds)  # type: ignore[arg-type] # accepts a float too
    finally:
        query.stop()
    progress = query.lastProgress
    if not is_over or progress is None:
        return 0.0, _LATE
    return progress["durationMs"]["triggerExecution"] / 1000, ""


def _no_rows(spark: SparkSession) -> DataFrame:
    """A stream with as many partitions as tasks run at a time, all empty."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    return stream.where("value < 0").selectExpr(
        "cast(null as string) as topic", "cast(null as string) as value"
    )

"""What a warm-up takes from the options of the user's query, and what it says of errors."""

from __future__ import annotations

import importlib
import tempfile
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink import warm_up
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import check_for_format, for_warm_up, parse
from spark_kafka_sink.spark.schema_check import check_schema

#: The package's own attribute of that name is the function.
module = importlib.import_module("spark_kafka_sink.spark.warm_up")

ROWS = StructType([StructField("topic", StringType()), StructField("value", StringType())])

#: one text for every option; a warm-up has to pass or to leave out each of them
TEXTS = {
    "kafka.bootstrap.servers": "host:9092",
    "topic": "t",
    "timestamp.column": "event_time",
    "close.timeout.ms": "1000",
    "kafka.buffer.memory": "2000000",
    "kafka.max.block.ms": "1000",
    "kafka.max.block.ms.include.metadata": "false",
    "kafka.max.block.metadata.ms": "1000",
    "kafka.metadata.max.age.ms": "1000",
    "kafka.metadata.evict.ms": "1000",
    "kafka.partitioner.rack.aware": "true",
    "kafka.client.rack": "eu-1a",
    "client.rack.variable": "",
    "oauth.callback": "",
    "on.record.error": "dead-letter",
    "dead.letter.topic": "dead",
    "delivery.guarantee": "exactly-once",
    "send.from": "driver",
    "driver.max.rows": "1000",
    "exactly.once.partitions": "4",
    "transactional.id.prefix": "a",
    "exactly.once.ledger.topic": "ledger",
    "exactly.once.first.batch": "1",
    "kafka.transaction.timeout.ms": "10000",
    "preflight": "false",
    "producer.cache.timeout": "1m",
    "kafka.*": "",
    "value.format": "avro",
    "key.format": "json",
    "schema.registry.*": "",
    "report.path": "/reports",
    "includeHeaders": "true",
    "batch.id": "7",
    **{option.name: "1" for option in table.ONLY_WITH_REGISTRY},
}


def test_no_option_of_the_table_asks_for_other_rows_or_writes_something():
    assert TEXTS.keys() == {option.name for option in table.OPTIONS}
    sparks = {"CheckpointLocation": "/c", "QueryName": "q", "Path": "/p"}
    sparks["AsyncProgressTrackingEnabled"] = "true"
    texts = {name.title(): text for name, text in TEXTS.items() if text}
    passed = for_warm_up(texts | sparks)
    assert not sparks.keys() & passed.keys()
    options = parse(passed)
    check_for_format(options)
    check_schema(ROWS, options.topic, options.serialized_columns, options.timestamp_column)
    assert (options.exactly_once, options.values[table.REPORT_PATH]) == (None, None)
    assert options.warnings == ()
    settings = {name for name in texts if name.startswith("Kafka.")}
    assert settings - passed.keys() == {"Kafka.Transaction.Timeout.Ms"}
    assert options.dead_letter_topic == "dead"


class Session:
    """The part of a Spark Connect session that the call needs."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(get=lambda name, default: default)
        self.dataSource = SimpleNamespace(register=lambda source: None)


class Writer:
    """A DataStreamWriter whose query ends at once; as in Spark Connect, names differ by case."""

    def __init__(self) -> None:
        self.set: dict[str, str] = {}

    def option(self, name: str, value: str) -> Writer:
        return self.options(**{name: value})

    def options(self, **options: str) -> Writer:
        self.set |= options
        return self

    def queryName(self, name: str) -> Writer:  # noqa: N802 - Spark's name
        return self.options(queryName=name)

    def format(self, _: str) -> Writer:
        return self

    def trigger(self, **_: bool) -> Writer:
        return self

    def start(self) -> SimpleNamespace:
        progress = {"durationMs": {"triggerExecution": 1000}}
        return SimpleNamespace(
            awaitTermination=lambda seconds: True, stop=lambda: None, lastProgress=progress
        )


@pytest.mark.needs_format
def test_the_checkpoint_is_a_new_one_on_the_server_of_spark_connect(monkeypatch, tmp_path):
    writer = Writer()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "_no_rows", lambda _: SimpleNamespace(writeStream=writer))
    done = warm_up(Session(), {"CHECKPOINTLOCATION": "/users", "queryName": "orders"})
    assert (done.problem, done.micro_batch_seconds) == ("", 1.0)
    assert writer.set.keys() == {"queryName", "checkpointLocation"}
    assert writer.set["queryName"] == module.QUERY_NAME
    assert writer.set["checkpointLocation"].startswith("file:///tmp/kafka-nb-warm-up-")


@pytest.mark.parametrize(
    ("exists", "more", "topic", "prefetched"),
    [
        (True, {}, "t", [["t"]]),
        (False, {"on.record.error": "dead-letter", "dead.letter.topic": "dead"}, "", [[]]),
        (True, {"preflight": "false"}, "", [[]]),
        (True, {"delivery.guarantee": "exactly-once"}, "", []),
    ],
)
def test_for_the_driver_only_its_own_producer_is_created(
    monkeypatch, exists, more, topic, prefetched
):
    seen = []
    producer = SimpleNamespace(prefetch=lambda topics: seen.append([*topics]))
    cache = SimpleNamespace(borrow=lambda _: nullcontext(producer))
    monkeypatch.setattr(module, "is_classic", lambda spark: spark is None)  # and nothing is asked
    monkeypatch.setattr(module, "check", lambda _: None)
    monkeypatch.setattr(module, "topic_exists", lambda *_: exists)
    monkeypatch.setattr(module, "process_cache", lambda: cache)
    options = {"kafka.bootstrap.servers": "host:9092", "topic": "t", "Send.From": "driver", **more}
    done = warm_up(None, options)
    assert (done.problem, done.topic, done.micro_batch_seconds) == ("", topic, 0.0)
    assert seen == prefetched


PLAN = "\n=== Streaming Query ===\nWriteToStream [kafka.sasl.jaas.config=secret]"
SPARKS = "[STREAM_FAILED] Query [id = 1] terminated with exception: No space left on device"
JAVAS = "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SPARKS + PLAN, SPARKS),
        (f"An error occurred while calling o51.start.\n: {JAVAS}\n\tat java.base{PLAN}", JAVAS),
        (
            f"{SPARKS}{PLAN}\nspark_kafka_sink.errors.LoginFailed: wrong password\n\tat x",
            "LoginFailed: wrong password",
        ),
        ("", "PySparkException"),
    ],
)
def test_a_problem_is_one_line_without_the_plan(monkeypatch, caplog, text, problem):
    def fail(_: object) -> None:
        raise PySparkException(text)

    monkeypatch.setattr(module, "_no_rows", fail)
    assert warm_up(Session(), {}).problem == problem
    assert "secret" not in caplog.text

"""Each way to write, with every row read back; ``make test-sparks`` runs this with each Spark."""

from __future__ import annotations

import pytest
import redaction
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from deserializers import avro_deserializer
from streams import direct, forget_commit, run, save, stream_of
from stub_registry import running_stub

from spark_kafka_sink import patch_pyspark, unpatch_pyspark

ROWS = 2000
START_MS = 1_700_000_000_000
COLUMNS = [
    "concat('key-', right(value, 1)) AS key",
    "value",
    "array(named_struct('key', 'number', 'value', binary(value))) AS headers",
    f"timestamp_millis({START_MS} + bigint(value)) AS at",
]


@pytest.fixture(params=["foreach_batch", "format", "from_driver"])
def way(request):
    return request.param


@pytest.fixture
def options(bootstrap_servers, topics):
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "topic": topics.create(partitions=2),
        "timestamp.column": "at",
    }


def numbers(spark):
    return spark.range(ROWS).selectExpr("string(id) AS value").selectExpr(*COLUMNS)


def read(topics, options):
    """Key, value, headers and timestamp of each record, by timestamp."""
    records = [
        (record.key, record.value, record.headers, record.timestamp_ms)
        for record in topics.read(options["topic"])
    ]
    return sorted(records, key=lambda record: record[3])


def expected(encode=lambda number: str(number).encode()):
    return [
        (
            f"key-{number % 10}".encode(),
            encode(number),
            (("number", str(number).encode()),),
            START_MS + number,
        )
        for number in range(ROWS)
    ]


def test_a_batch(spark, way, options, topics):
    save(numbers(spark), way, options)
    assert read(topics, options) == expected()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream_that_starts_again(spark, way, options, topics, tmp_path, guarantee):
    if guarantee == "exactly-once":
        options |= {"delivery.guarantee": guarantee}
        options |= {"exactly.once.partitions": "2"} if way != "from_driver" else {}

    def write_words(*micro_batches):
        words = stream_of(spark, tmp_path / "words", *([str(n) for n in b] for b in micro_batches))
        writer = words.repartition(2, "value").selectExpr(*COLUMNS).writeStream
        writer = direct(writer, way, options)
        run(writer, tmp_path)

    write_words(range(ROWS // 2), range(ROWS // 2, ROWS - 1))
    if guarantee == "exactly-once":
        forget_commit(tmp_path / "checkpoint", 1)
    write_words([ROWS - 1])
    assert read(topics, options) == expected()


@pytest.mark.filterwarnings("ignore:these options have no effect:UserWarning")
def test_no_plan_shows_a_secret(spark, way, options, topics, tmp_path, capsys):
    words = stream_of(spark, tmp_path / "words", ["0"]).selectExpr(*COLUMNS)
    if way == "format":
        spark.conf.set(redaction.OPTIONS, redaction.redaction_settings()[redaction.OPTIONS])
    try:
        query = run(direct(words.writeStream, way, options | redaction.LOGIN), tmp_path)
        query.explain(True)
    finally:
        spark.conf.unset(redaction.OPTIONS)
    plan = capsys.readouterr().out
    assert "== Parsed Logical Plan ==" in plan
    assert "hunter2" not in plan
    assert len(read(topics, options)) == 1


@pytest.mark.filterwarnings("ignore:these options have no effect:UserWarning")
def test_a_patched_pyspark_writes_batches_and_streams(spark, options, topics, tmp_path, capsys):
    options |= redaction.LOGIN
    words = stream_of(spark, tmp_path / "words", [str(n) for n in range(ROWS // 2, ROWS - 1)])
    last = stream_of(spark, tmp_path / "last", [str(ROWS - 1)])
    folders = [tmp_path / name for name in ("append", "update")]
    patch_pyspark()
    try:
        half = numbers(spark).limit(ROWS // 2)
        half.write.format("kafka").options(**options).save()
        writer = words.selectExpr(*COLUMNS).writeStream.options(**options).format("kafka")
        run(writer, folders[0])
        writer = last.selectExpr(*COLUMNS).writeStream.options(**options)
        run(writer.outputMode("update").format("kafka"), folders[1]).explain(True)
    finally:
        unpatch_pyspark()
    plan = capsys.readouterr().out
    assert "== Parsed Logical Plan ==" in plan
    assert "hunter2" not in plan
    # Spark's own sink up to 4.2 ignores timestamps.
    assert read(topics, options) == expected()


def test_structs_as_avro(spark, way, options, topics):
    frame = numbers(spark).selectExpr(
        "key", "named_struct('number', int(value), 'text', value) AS value", "headers", "at"
    )
    with running_stub() as registry:
        options |= {"value.format": "avro", "schema.registry.url": registry.url}
        save(frame, way, options)
        with SchemaRegistryClient({"url": registry.url}) as client:
            deserialize = avro_deserializer(client)
            context = SerializationContext(options["topic"], MessageField.VALUE)
            records = [
                (key, deserialize(value, context), headers, timestamp_ms)
                for key, value, headers, timestamp_ms in read(topics, options)
            ]
    assert records == expected(lambda number: {"number": number, "text": str(number)})

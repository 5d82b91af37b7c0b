"""What every column becomes in Kafka, read back with Spark's own source or a plain consumer."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from datetime import datetime, timezone

import pytest
from acls import Acls
from chispa import assert_df_equality
from confluent_kafka.admin import AclOperation
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types
from pyspark.sql.types import StringType, StructField, StructType
from streams import write_by_foreach_batch, write_by_format

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.driver import record_times
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import InvalidRecord, InvalidSchema
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark.schema_check import CONVERSIONS, check_schema, conversions

HEADERS = "array<struct<key:string,value:binary>>"
TIMESTAMP = {"timestamp.column": "timestamp"}
SCHEMA = f"key binary, value binary, headers {HEADERS}, partition int, timestamp timestamp"


def read(spark, bootstrap_servers, topic):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def test_all_columns_arrive_as_sparks_source_reads_them(spark, write, bootstrap_servers, topics):
    topic = topics.create(partitions=3)
    at = datetime(2024, 2, 29, 12, 30, 15, 123000)
    rows = [
        (b"k0", b"v0", [("h", b"1"), ("h", None), ("i", b"")], 2, at),
        (None, b"v1", None, 0, at),
        (b"", b"", [], 1, at),
        (b"k3", None, [("tombstone", b"yes")], 2, at),
        ("k\u00e4".encode(), bytes(range(256)), None, 2, datetime(1970, 1, 1, 0, 0, 1)),
    ]
    sent = spark.createDataFrame(rows, SCHEMA)
    write(sent, bootstrap_servers, topic=topic, **TIMESTAMP)
    # Like Kafka, Spark's source does not distinguish missing headers from an empty list.
    expected = sent.withColumn("headers", F.expr("CASE WHEN size(headers) > 0 THEN headers END"))
    actual = read(spark, bootstrap_servers, topic).select(*sent.columns)
    assert_df_equality(actual, expected, ignore_row_order=True, ignore_nullable=True)


def test_records_are_those_that_sparks_own_sink_writes(spark, write, bootstrap_servers, topics):
    ours, theirs = topics.create(partitions=7), topics.create(partitions=7)
    df = spark.range(2000).select(
        F.concat(F.lit("key-"), F.col("id") % 321).alias("key"),
        F.col("id").cast("string").alias("value"),
        F.when(F.col("id") % 5 == 0, (F.col("id") % 7).cast("int")).alias("partition"),
        F.expr(
            "CASE WHEN id % 3 = 0 THEN array(named_struct('Key', 'h', 'VALUE', X'00FF')) END"
        ).alias("headers"),
        F.lit("not part of a record").alias("extra"),
    )
    write(df, bootstrap_servers, topic=ours)
    theirs_writer = df.write.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    theirs_writer.option("topic", theirs).save()
    compared = "key", "value", "partition", "headers"
    assert_df_equality(
        read(spark, bootstrap_servers, ours).select(*compared),
        read(spark, bootstrap_servers, theirs).select(*compared),
        ignore_row_order=True,
    )


@pytest.mark.needs_format
def test_keyed_rows_alone_take_the_partitions_of_sparks_sink(spark, bootstrap_servers, topics):
    ours, theirs = topics.create(partitions=5), topics.create(partitions=5)
    df = spark.range(1000).selectExpr("cast(cast(id as string) as binary) as key", "'v' as value")
    write_by_format(df, bootstrap_servers, topic=ours)
    writer = df.write.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    writer.option("topic", theirs).save()
    assert_df_equality(
        read(spark, bootstrap_servers, ours).select("key", "partition"),
        read(spark, bootstrap_servers, theirs).select("key", "partition"),
        ignore_row_order=True,
    )


@pytest.mark.needs_format
def test_topic_option_wins_over_the_column(spark, bootstrap_servers, topics):
    chosen, ignored = topics.create(), topics.create()
    df = spark.createDataFrame([("v", ignored)], "value string, topic string")
    write_by_format(df, bootstrap_servers, topic=f" {chosen} ")
    assert [r.value for r in topics.read(chosen, ignored)] == [b"v"]
    assert topics.read(ignored) == []


@pytest.mark.needs_format
def test_topic_column_spreads_rows_and_keeps_their_order(spark, bootstrap_servers, topics):
    names = [topics.create() for _ in range(3)]
    df = spark.range(0, 3000, numPartitions=1).select(
        F.col("id").cast("string").alias("value"),
        F.element_at(F.array(*map(F.lit, names)), (F.col("id") % 3 + 1).cast("int")).alias("topic"),
    )
    write_by_format(df, bootstrap_servers)
    for remainder, name in enumerate(names):
        values = [int(record.value) for record in topics.read(name)]
        assert values == list(range(remainder, 3000, 3))


@pytest.mark.needs_format
@pytest.mark.parametrize("columns", [["value"], ["value", "timestamp"]], ids=["plain", "detailed"])
def test_order_per_key_is_kept_within_a_task(spark, bootstrap_servers, topics, columns):
    topic = topics.create(partitions=4)
    df = spark.range(0, 20_000, numPartitions=1).select(
        (F.col("id") % 50).cast("string").alias("key"),
        F.col("id").cast("string").alias("value"),
        F.current_timestamp().alias("timestamp"),
    )
    options = TIMESTAMP if "timestamp" in columns else {}
    write_by_format(df.select("key", *columns), bootstrap_servers, topic=topic, **options)
    last: dict[bytes, int] = {}
    records = topics.read(topic)
    for record in records:
        assert last.get(record.key, -1) < int(record.value)
        last[record.key] = int(record.value)
    assert len(records) == 20_000
    assert len(last) == 50


@pytest.mark.needs_format
def test_a_missing_or_null_timestamp_is_the_time_of_sending(spark, bootstrap_servers, topics):
    topic = topics.create()
    before = datetime.now(timezone.utc).timestamp() * 1000
    write_by_format(spark.createDataFrame([("a",)], "value string"), bootstrap_servers, topic=topic)
    # So Spark's source shows a record without a time, such as those of Kafka 0.9.
    times = "VALUES ('b', null), ('c', timestamp_millis(-1)) AS rows (value, timestamp)"
    rows = spark.sql(f"SELECT * FROM {times}").coalesce(1)
    write_by_format(rows, bootstrap_servers, topic=topic, **TIMESTAMP)
    after = datetime.now(timezone.utc).timestamp() * 1000
    records = topics.read(topic)
    assert [r.value for r in records] == [b"a", b"b", b"c"]
    assert all(before - 1 <= r.timestamp_ms <= after for r in records)


@pytest.mark.parametrize(
    "zone",
    [*(pytest.param(zone, marks=pytest.mark.slow) for zone in ("UTC", "Europe/Berlin")),
     "America/New_York"],
)  # fmt: skip
def test_what_the_error_about_a_timestamp_advises_makes_it_the_time_of_sending(
    spark, write, bootstrap_servers, topics, zone
):
    topic = topics.create()
    rows = spark.sql(
        "SELECT string(ms) AS value, timestamp_millis(ms) AS `at ms` "
        "FROM VALUES (0), (-86400000), (1) AS times (ms)"
    )
    options = {"topic": topic, "timestamp.column": "at ms"}
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        with pytest.raises(
            (PySparkException, InvalidRecord), match=r"column at ms is 1970-01-01"
        ) as raised:
            write(rows, bootstrap_servers, **options)
        advised = re.search(r"; (if\(.* null\)) is", str(raised.value))[1]
        repaired = rows.selectExpr("value", f"{advised} AS `at ms`")
        write(repaired, bootstrap_servers, **options)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    now_ms = datetime.now(timezone.utc).timestamp() * 1000
    ages = {r.value: now_ms - r.timestamp_ms for r in topics.read(topic)}
    assert ages.pop(b"1") == pytest.approx(now_ms, abs=2)
    assert set(ages) == {b"0", b"-86400000"}
    assert all(age < 600_000 for age in ages.values())


@pytest.mark.parametrize("kind", ["timestamp", "bigint", "string", "struct<a: int>"])
def test_a_column_timestamp_is_ignored_as_by_sparks(spark, write, bootstrap_servers, topics, kind):
    ours, theirs = topics.create(), topics.create()
    old = {"timestamp": "timestamp'2020-01-01'", "struct<a: int>": "named_struct('a', 1)"}
    rows = spark.range(5).selectExpr("string(id) AS value", f"{old.get(kind, '5')} AS timestamp")
    rows = rows.withColumn("timestamp", F.col("timestamp").cast(kind))
    before_ms = datetime.now(timezone.utc).timestamp() * 1000 - 1
    sentence = "column timestamp is not written.*timestamp.column="
    is_here = write is not write_by_format  # the format's planning has a process of its own
    with pytest.warns(UserWarning, match=sentence) if is_here else nullcontext():
        write(rows, bootstrap_servers, topic=ours)
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    writer.option("topic", theirs).save()
    after_ms = datetime.now(timezone.utc).timestamp() * 1000
    records = topics.read(ours)
    assert sorted(r.value for r in records) == sorted(r.value for r in topics.read(theirs))
    for record in [*records, *topics.read(theirs)]:
        assert before_ms <= record.timestamp_ms <= after_ms


WEEK_MS = 7 * 86_400_000


@pytest.fixture
def patient_driver(monkeypatch):
    """Without it, topics whose settings come late, as on a busy machine, are not warned of."""
    monkeypatch.setattr(record_times, "CONFIGURATION_SECONDS", 60.0)


def warnings_of_old_records(caplog):
    return [entry.getMessage() for entry in caplog.records if "oldest record" in entry.getMessage()]


@pytest.mark.parametrize(
    ("config", "age_ms", "is_named"),
    [
        ({"retention.ms": str(WEEK_MS)}, WEEK_MS + 60_000, True),
        ({"retention.ms": str(WEEK_MS)}, WEEK_MS - 600_000, False),
        ({"retention.ms": "-1"}, 1000 * WEEK_MS, False),
    ],
)
def test_a_record_older_than_the_retention_is_named_before_it_is_gone(
    spark, bootstrap_servers, topics, caplog, patient_driver, config, age_ms, is_named
):
    topic = topics.create(1, config)
    at_ms = int(datetime.now(timezone.utc).timestamp() * 1000) - age_ms
    rows = spark.sql(
        f"SELECT string(id) AS value, timestamp_millis({at_ms} + id) AS at FROM range(10)"
    )
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    options |= {"timestamp.column": "at"}
    reports = []
    with (
        caplog.at_level(logging.WARNING),
        pytest.warns(UserWarning, match="oldest record") if is_named else nullcontext(),
    ):
        foreach_batch(options, reports.append)(rows, 0)
    assert [report.oldest_timestamp_ms for report in reports] == [at_ms]
    named = warnings_of_old_records(caplog)
    assert len(named) == is_named
    for sentence in named:
        time = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
        assert f"topic {topic}: the oldest record" in sentence
        assert f"{time:%Y-%m-%d %H:%M:%S} UTC" in sentence
        assert f"retention.ms={WEEK_MS} (7 days)" in sentence


def test_the_format_names_an_old_record_when_it_commits(bootstrap_servers, topics, patient_driver):
    """Spark commits in a process of its own, where the driver's check was not made."""
    pytest.importorskip("pyspark.sql.datasource")
    from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaCommitMessage

    topic = topics.create(1, {"retention.ms": str(WEEK_MS)})
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    writer = KafkaBatchWriter(read_options(options | {"timestamp.column": "at"}))
    message = KafkaCommitMessage(DeliveryReport(tasks=1, oldest_timestamp_ms=1))
    with pytest.warns(UserWarning, match=f"topic {topic}: the oldest record"):
        writer.commit([message])


def test_a_topic_that_replaces_timestamps_is_named_before_writing(
    spark, bootstrap_servers, topics, patient_driver
):
    topic = topics.create(1, {"message.timestamp.type": "LogAppendTime"})
    rows = spark.sql("SELECT 'v' AS value, timestamp'2020-01-01' AS at")
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    write = foreach_batch(options | {"timestamp.column": "at"})
    with pytest.warns(UserWarning, match=f"topic {topic} has message.timestamp.type=LogAppend"):
        write(rows, 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.needs_format
def test_nothing_is_said_without_the_right_to_read_topics_configuration(spark, kafka, own_topics):
    topic = own_topics.create(1, {"retention.ms": str(WEEK_MS)})
    Acls(kafka.bootstrap_servers).deny("ANONYMOUS", topic, AclOperation.DESCRIBE_CONFIGS)
    rows = spark.sql("SELECT 'v' AS value, timestamp'2020-01-01' AS at")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    reports = []
    foreach_batch(options | {"timestamp.column": "at"}, reports.append)(rows, 0)
    assert reports[0].oldest_timestamp_ms is not None


def test_large_arrow_types_are_accepted_too(spark, write, bootstrap_servers, topics):
    topic = topics.create()
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        df = spark.createDataFrame([("k", b"v")], "key string, value binary")
        write(df, bootstrap_servers, topic=topic)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert [(r.key, r.value) for r in topics.read(topic)] == [(b"k", b"v")]


def test_an_empty_dataframe_writes_nothing(spark, write, bootstrap_servers, topics):
    topic = topics.create()
    write(spark.createDataFrame([], "value string"), bootstrap_servers, topic=topic)
    assert topics.read(topic) == []


@pytest.mark.needs_format
def test_more_rows_than_the_buffer_holds_arrive_in_order(spark, bootstrap_servers, topics):
    topic = topics.create()
    df = spark.range(0, 50_000, numPartitions=1).select(
        F.lpad(F.col("id").cast("string"), 200, "0").alias("value")
    )
    options = {"kafka.buffer.memory": "1048576"}  # a tenth of it
    write_by_format(df, bootstrap_servers, topic=topic, **options)
    assert [int(r.value) for r in topics.read(topic)] == list(range(50_000))


def test_foreach_batch_ignores_columns_of_types_unknown_to_spark(spark, bootstrap_servers, topics):
    name = "spark.sql.timestampNanosTypes.enabled"
    try:
        spark.conf.set(name, "true")
        unknown = spark.sql(
            "SELECT CAST('2024-01-01 00:00:00.123456789' AS timestamp_ltz(9)) AS at"
        )
        with pytest.raises(PySparkException):
            _ = unknown.schema
    except PySparkException:
        spark.conf.unset(name)
        pytest.skip("this Spark has no type that its PySpark lacks")
    try:
        topic = topics.create()
        write = foreach_batch({"kafka.bootstrap.servers": bootstrap_servers, "topic": topic})
        rows = unknown.selectExpr("'v' AS value", "at", "at AS `a.b`", "array(at) AS more")
        write(rows, None)
        assert [record.value for record in topics.read(topic)] == [b"v"]
        with pytest.raises(InvalidSchema, match=r"column value has a type .*string\(value\)"):
            write(unknown.selectExpr("at AS value"), None)
        write(unknown.selectExpr("string(at) AS value"), None)
    finally:
        spark.conf.unset(name)


@pytest.mark.needs_format
def test_foreach_batch_ignores_columns_that_the_format_rejects(spark, bootstrap_servers, topics):
    topic = topics.create()
    # PySpark 3.5 cannot read a schema that has this type.
    time = "make_interval(1) AS time," if hasattr(types, "CalendarIntervalType") else ""
    frame = spark.sql(f"""
        SELECT string(id) AS value, interval 1 month AS age, {time} id, id,
               struct(1 AS a, 2 AS a) AS pair, 'x' AS Value, 1 AS `a.b`, 5 AS topic, 6 AS topic
        FROM range(3)
    """)
    write_by_foreach_batch(frame, bootstrap_servers, topic=topic)
    written = read(spark, bootstrap_servers, topic).collect()
    assert sorted(bytes(row.value) for row in written) == [b"0", b"1", b"2"]
    with pytest.raises(AnalysisException, match="select the record's columns, or use foreach"):
        write_by_format(frame.drop("time"), bootstrap_servers, topic=topic)


AT = datetime(2023, 11, 14, 22, 13, 20)
ONE = [("h", b"1")]


CONVERTED = [
    ("value", "struct(1 AS a)", '{"a":1}'),
    ("value", "array(1)", "[1]"),
    ("key", "map('a', 1)", '{"a":1}'),
    ("key", "parse_json('{}')", "{}"),
    ("key", "5", "5"),
    ("value", "date'2024-01-01'", "2024-01-01"),
    ("value", "null", None),
    ("value", "true", "true"),
    ("value", "interval 1 month", "INTERVAL '1' MONTH"),
    ("value", "'a' COLLATE UTF8_LCASE", "a"),
    ("topic", "binary('t')", "t"),
    ("topic", "7L", "7"),
    ("topic", "'t' COLLATE UTF8_LCASE", "t"),
    ("partition", "2L", 2),
    ("partition", "smallint(2)", 2),
    ("partition", "2.0", 2),
    ("partition", "2.0D", 2),
    ("partition", "'2'", 2),
    ("partition", "null", None),
    ("timestamp", "1700000000000L", AT),
    ("timestamp", "1700000000", AT),
    ("timestamp", "1700000000.0D", AT),
    ("timestamp", "1700000000.0", AT),
    ("timestamp", "float(1700000000)", AT),
    ("timestamp", "timestamp_ntz'2023-11-14 22:13:20'", AT),
    ("timestamp", "'2023-11-14 22:13:20'", AT),
    ("timestamp", "date'2023-11-14'", datetime(2023, 11, 14)),
    ("timestamp", "null", None),
    ("headers", "map('h', X'31')", ONE),
    ("headers", "map('h', '1')", ONE),
    ("headers", "map('h', 1)", ONE),
    ("headers", "map('h', X'FF')", [("h", b"\xff")]),
    ("headers", "array(named_struct('key', 'h', 'value', '1'))", ONE),
    ("headers", "array(named_struct('value', X'FF', 'key', 'h'))", [("h", b"\xff")]),
    ("headers", "array(named_struct('at', 2, 'Value', X'31', 'KEY', 'h'))", ONE),
    ("headers", "array(named_struct('name', 'h', 'text', '1'))", ONE),
    ("headers", "array(named_struct('name', 'h', 'bytes', X'31'))", ONE),
    ("headers", "to_json(array(named_struct('key', 'h', 'value', X'31')))", ONE),
    ("headers", "named_struct('key', 'h', 'value', X'31')", ONE),
    ("headers", "named_struct('at', 2, 'key', 'h', 'value', X'FF')", [("h", b"\xff")]),
    ("headers", "null", None),
    ("value", "cast('v' AS VARCHAR(3))", "v"),
    ("topic", "cast('t' AS VARCHAR(3))", "t"),
    ("topic", "cast('t' AS CHAR(1))", "t"),
    ("partition", "cast('2' AS CHAR(1))", 2),
    ("timestamp", "cast('2023-11-14 22:13:20' AS VARCHAR(30))", AT),
    ("headers", "array(named_struct('name', 'h', 'text', cast('1' AS VARCHAR(1))))", ONE),
    ("headers", "cast('[{\"key\":\"h\",\"value\":\"MQ==\"}]' AS VARCHAR(99))", ONE),
]  # fmt: skip
DROPPED = [
    ("topic", "struct(1 AS a)"), ("topic", "null"), ("partition", "true"),
    ("headers", "array()"), ("headers", "1"), ("headers", "array('h')"), ("headers", "struct('h')"),
]  # fmt: skip


@pytest.fixture
def char_types(spark):
    """Columns of type char and varchar, which are strings by default."""
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    yield
    spark.conf.unset("spark.sql.preserveCharVarcharTypeInfo")


@pytest.mark.usefixtures("char_types")
def test_what_errors_advise_converts_columns_of_other_types(spark):
    converted = CONVERTED
    if spark.sql("SELECT cast('t' AS CHAR(1)) AS t").schema["t"].dataType == StringType():
        converted = [conversion for conversion in CONVERTED if "CHAR(" not in conversion[1]]
    if not hasattr(types, "VariantType"):  # then there are no collations either
        converted = [
            conversion
            for conversion in converted
            if not re.search("parse_json|COLLATE", conversion[1])
        ]
    samples = [f"{sample} AS c{i}" for i, (_, sample, _) in enumerate(converted)]
    frame = spark.sql(f"SELECT {', '.join(samples)}")
    advised, tried, expected = set(), {}, {}
    for i, (column, _, value) in enumerate(converted):
        advice = conversions(column, frame.schema[i].dataType.simpleString())
        advised.update(advice)
        for number, expression in enumerate(advice):
            if not expression.startswith("drop"):
                # The sample is called otherwise.
                tried[f"{column} {i} {number}"] = expression.replace(f"({column}", f"(c{i}")
        expected[f"{column} {i} 0"] = value
    written = frame.selectExpr(*(f"{sql} AS `{name}`" for name, sql in tried.items()))
    for field in written.schema:
        column = field.name.split()[0]
        value = StructField("value", StringType())
        record = {"value": value} | {column: StructField(column, field.dataType)}
        topic = None if column == "topic" else "t"
        at = column if column == "timestamp" else None
        check_schema(StructType([*record.values()]), topic, timestamp_column=at)
    row = written.select(*(f"`{name}`" for name in expected)).first().asDict(recursive=True)
    for name, value in expected.items():
        shown = row[name]
        if name.startswith("headers") and shown is not None:
            shown = [(header["key"], bytes(header["value"])) for header in shown]
        assert (name, shown) == (name, value)

    samples = [f"{sample} AS c{i}" for i, (_, sample) in enumerate(DROPPED)]
    frame = spark.sql(f"SELECT {', '.join(samples)}")
    for (column, _), field in zip(DROPPED, frame.schema, strict=True):
        advice = conversions(column, field.dataType.simpleString())
        assert advice == [f'drop("{column}")']
        advised.update(advice)
    every = {
        e.format(c)
        for conversion in CONVERSIONS
        for c in conversion.columns
        for e in conversion.expressions
    }
    assert advised == every

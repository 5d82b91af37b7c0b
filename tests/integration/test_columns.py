"""What every column becomes in Kafka, read back with Spark's own source or a plain consumer."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types
from pyspark.sql.types import StringType, StructField, StructType
from streams import write_by_foreach_batch, write_by_format

from spark_kafka_sink.spark.schema_check import CONVERSIONS, check_schema, conversions

HEADERS = "array<struct<key:string,value:binary>>"
SCHEMA = f"key binary, value binary, headers {HEADERS}, partition int, timestamp timestamp"


def read(spark, bootstrap_servers, topic):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def test_all_columns_arrive_as_sparks_own_source_reads_them(
    spark, write, bootstrap_servers, topics
):
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
    write(sent, bootstrap_servers, topic=topic)
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


def test_keyed_rows_without_other_columns_take_the_partitions_of_sparks_sink(
    spark, bootstrap_servers, topics
):
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


def test_topic_option_wins_over_the_column(spark, bootstrap_servers, topics):
    chosen, ignored = topics.create(), topics.create()
    df = spark.createDataFrame([("v", ignored)], "value string, topic string")
    write_by_format(df, bootstrap_servers, topic=f" {chosen} ")
    assert [r.value for r in topics.read(chosen, ignored)] == [b"v"]
    assert topics.read(ignored) == []


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


@pytest.mark.parametrize("columns", [["value"], ["value", "timestamp"]], ids=["plain", "detailed"])
def test_order_per_key_is_kept_within_a_task(spark, bootstrap_servers, topics, columns):
    topic = topics.create(partitions=4)
    df = spark.range(0, 20_000, numPartitions=1).select(
        (F.col("id") % 50).cast("string").alias("key"),
        F.col("id").cast("string").alias("value"),
        F.current_timestamp().alias("timestamp"),
    )
    write_by_format(df.select("key", *columns), bootstrap_servers, topic=topic)
    last: dict[bytes, int] = {}
    records = topics.read(topic)
    for record in records:
        assert last.get(record.key, -1) < int(record.value)
        last[record.key] = int(record.value)
    assert len(records) == 20_000
    assert len(last) == 50


def test_a_missing_or_null_timestamp_is_the_time_of_sending(spark, bootstrap_servers, topics):
    topic = topics.create()
    before = datetime.now(timezone.utc).timestamp() * 1000
    write_by_format(spark.createDataFrame([("a",)], "value string"), bootstrap_servers, topic=topic)
    null = spark.createDataFrame([("b", None)], "value string, timestamp timestamp")
    write_by_format(null, bootstrap_servers, topic=topic)
    after = datetime.now(timezone.utc).timestamp() * 1000
    records = topics.read(topic)
    assert [r.value for r in records] == [b"a", b"b"]
    assert all(before - 1 <= r.timestamp_ms <= after for r in records)


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


def test_more_rows_than_the_buffer_holds_arrive_in_order(spark, bootstrap_servers, topics):
    topic = topics.create()
    df = spark.range(0, 50_000, numPartitions=1).select(
        F.lpad(F.col("id").cast("string"), 200, "0").alias("value")
    )
    options = {"kafka.buffer.memory": "1048576"}  # a tenth of it
    write_by_format(df, bootstrap_servers, topic=topic, **options)
    assert [int(r.value) for r in topics.read(topic)] == list(range(50_000))


def test_foreach_batch_ignores_columns_that_the_format_cannot_have(
    spark, bootstrap_servers, topics
):
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
]  # fmt: skip
DROPPED = [
    ("topic", "struct(1 AS a)"), ("topic", "null"), ("partition", "true"),
    ("timestamp", "true"), ("timestamp", "struct(1 AS a)"),
    ("headers", "array()"), ("headers", "1"), ("headers", "array('h')"), ("headers", "struct('h')"),
]  # fmt: skip


def test_what_errors_advise_converts_columns_of_other_types(spark):
    converted = CONVERTED
    if not hasattr(types, "VariantType"):  # then there are no collations either
        converted = [
            conversion
            for conversion in CONVERTED
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
        check_schema(StructType([*record.values()]), None if column == "topic" else "t")
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

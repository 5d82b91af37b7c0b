from __future__ import annotations

import pickle
import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    YearMonthIntervalType,
)

from spark_kafka_sink import (
    InvalidOption,
    InvalidSchema,
    KafkaSink,
    KafkaSinkError,
    UnsupportedSaveMode,
)
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.spark.schema_check import (
    check_schema,
    columns_serialized_twice,
    conversions,
    unused_columns,
)

TEXT, BYTES = StringType(), BinaryType()
HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BYTES)]))
SERVERS = {"kafka.bootstrap.servers": "host:9092", "preflight": "false"}


def schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(*column) for column in columns])


def problems(
    *columns: tuple[str, DataType], topic: str | None = "t", timestamp_column: str | None = None
) -> str:
    with pytest.raises(InvalidSchema) as raised:
        check_schema(schema(*columns), topic, timestamp_column=timestamp_column)
    return str(raised.value)


@pytest.mark.parametrize(
    "columns",
    [
        {"value": TEXT},
        {"value": BYTES},
        {"value": BYTES, "key": TEXT},
        {"value": TEXT, "key": BYTES, "partition": IntegerType()},
        {"value": TEXT, "headers": HEADERS},
        {"value": TEXT, "headers": ArrayType(HEADERS.elementType, containsNull=False)},
        {"value": TEXT, "some other column": MapType(TEXT, TEXT)},
    ],
    ids=" ".join,
)
def test_columns_that_make_a_record_are_accepted(columns):
    assert check_schema(schema(*columns.items()), "t") is None
    assert check_schema(schema(*columns.items(), ("topic", TEXT)), None) is None


@pytest.mark.parametrize(
    ("column", "kind", "shown", "allowed", "instead"),
    [
        ("value", LongType(), "bigint", "string or binary", "string(value)"),
        ("key", schema(("a", TEXT)), "struct<a:string>", "string or binary",
         "to_json(key), or set key.format=avro or json"),
        ("value", ArrayType(TEXT), "array<string>", "string or binary",
         "to_json(value), or set value.format=avro or json"),
        ("value", MapType(TEXT, TEXT), "map<string,string>", "string or binary",
         "to_json(value), or set value.format=avro or json"),
        ("topic", BYTES, "binary", "string", "string(topic)"),
        ("topic", HEADERS, HEADERS.simpleString(), "string", 'drop("topic")'),
        ("partition", LongType(), "bigint", "int", "int(partition)"),
        ("partition", BooleanType(), "boolean", "int", 'drop("partition")'),
        ("partition", NullType(), "void", "int", "int(partition)"),
        ("value", NullType(), "void", "string or binary", "string(value)"),
        ("headers", NullType(), "void", HEADERS.simpleString(),
         f"cast(headers AS {HEADERS.simpleString()})"),
        ("headers", HEADERS.elementType, HEADERS.elementType.simpleString(),
         HEADERS.simpleString(), "array(headers)"),
        ("headers", MapType(TEXT, BYTES), "map<string,binary>",
         "array<struct<key:string,value:binary>>", "map_entries(headers)"),
        ("headers", ArrayType(NullType()), "array<void>",
         "array<struct<key:string,value:binary>>", 'drop("headers")'),
    ],
)  # fmt: skip
def test_a_column_of_a_wrong_type_is_named_with_its_cast(column, kind, shown, allowed, instead):
    columns = {"value": TEXT, "topic": TEXT, column: kind}
    message = problems(*columns.items(), topic=None)
    assert message == (
        f"column {column} has type {shown}; allowed: {allowed}, for instance {instead}"
    )


@pytest.mark.parametrize("kind", ["string", "string collate UTF8_LCASE", "varchar(30)", "char(3)"])
@pytest.mark.parametrize("column", ["value", "key", "topic", "partition", "timestamp", "headers"])
def test_texts_of_every_type_have_the_same_conversion(column, kind):
    assert conversions(column, kind) == conversions(column, "string")
    assert conversions(column, kind) != [f'drop("{column}")']
    pairs = f"array<struct<name:{kind},text:{kind}>>"
    assert conversions("headers", pairs) == [f"cast(headers AS {HEADERS.simpleString()})"]


@pytest.mark.parametrize("name", ["timestamp", "event_time", "a b"])
@pytest.mark.parametrize(
    ("kind", "shown", "instead"),
    [
        (LongType(), "bigint", ", for instance timestamp_millis({0}) or timestamp_seconds({0})"),
        (TimestampNTZType(), "timestamp_ntz", ", for instance timestamp({0})"),
        (NullType(), "void", ", for instance timestamp({0})"),
        (BooleanType(), "boolean", ""),
    ],
)
def test_a_timestamp_of_a_wrong_type_is_named_with_what_converts_it(name, kind, shown, instead):
    message = problems(("value", TEXT), (name, kind), timestamp_column=name)
    assert message == (
        f"column {name} has type {shown}; allowed: timestamp"
        f"{instead.format('`a b`' if ' ' in name else name)}; or remove timestamp.column"
    )


def test_any_column_of_type_timestamp_may_be_the_timestamp():
    columns = schema(("value", TEXT), ("event_time", TimestampType()), ("timestamp", TEXT))
    assert check_schema(columns, "t", timestamp_column="event_time") is None
    assert unused_columns(columns, "t", "event_time") == []


def test_the_type_of_a_column_timestamp_does_not_matter_unless_the_option_names_it():
    assert check_schema(schema(("value", TEXT), ("timestamp", BooleanType())), "t") is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [("at", ""), ("Event_Time", " (found Event_Time; names are case-sensitive)"),
     ("event_tme", " (found event_tme)")],
)  # fmt: skip
def test_a_missing_timestamp_is_named_with_the_other_problems(name, hint):
    message = problems(("key", LongType()), (name, TimestampType()), timestamp_column="event_time")
    assert f"column event_time, which timestamp.column names, is missing{hint}" in message
    assert "column key has type bigint" in message
    assert "column value (string or binary) is required but missing" in message


@pytest.mark.needs_format
@pytest.mark.parametrize("kind", [TimestampType(), TEXT])
def test_a_column_timestamp_that_is_not_written_is_named_with_the_option(kind):
    columns = schema(("value", TEXT), ("timestamp", kind))
    (sentence,) = unused_columns(columns, "t")
    assert sentence.startswith("column timestamp is not written to Kafka")
    assert "set timestamp.column=timestamp" in sentence
    sink = KafkaSink({**SERVERS, "topic": "t"})
    for writer in (sink.writer, sink.streamWriter):
        with pytest.warns(UserWarning, match=re.escape(sentence)):
            writer(columns, overwrite=False)


@pytest.mark.needs_format
@pytest.mark.filterwarnings("error")
def test_nothing_is_said_of_a_timestamp_that_is_written():
    columns = schema(("value", TEXT), ("timestamp", TimestampType()))
    sink = KafkaSink({**SERVERS, "topic": "t", "timestamp.column": "timestamp"})
    assert sink.streamWriter(columns, overwrite=False)


@pytest.mark.parametrize("names", [("Key", "Value"), ("KEY", "value"), ("kEY", "VALUE")])
def test_fields_of_headers_may_be_in_any_case(names):
    headers = ArrayType(schema(*zip(names, (TEXT, BYTES), strict=True)))
    assert check_schema(schema(("value", TEXT), ("headers", headers)), "t") is None


def test_type_of_the_topic_column_does_not_matter_when_the_option_is_given():
    assert check_schema(schema(("value", TEXT), ("topic", LongType())), "t") is None


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        ([], ""),
        (["key"], "; for instance string(key) AS value"),
        (["a b"], "; for instance string(`a b`) AS value"),
        (["id", "amount"], "; for instance to_json(struct(*)) AS value"),
    ],
)
def test_missing_value_is_rejected_and_one_of_the_columns_is_proposed(names, remedy):
    columns = [(name, TEXT) for name in names]
    expected = f"column value (string or binary) is required but missing{remedy}"
    assert problems(*columns) == expected


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        (LongType(), "string(only)"),
        (BYTES, "only"),
        (schema(("a", TEXT)), "to_json(only)"),
        (ArrayType(TEXT), "to_json(only)"),
    ],
)
def test_the_proposed_value_has_what_the_only_column_has(kind, expression):
    assert problems(("only", kind)).endswith(f"; for instance {expression} AS value")


def test_a_value_that_a_format_serializes_is_proposed_as_a_struct():
    with pytest.raises(InvalidSchema, match=r"; for instance struct\(\*\) AS value$"):
        check_schema(schema(("id", TEXT), ("amount", LongType())), "t", ["value"])


def test_value_in_another_case_is_pointed_out():
    assert "missing (found Value; names are case-sensitive)" in problems(("Value", TEXT))


def test_a_misspelt_value_is_pointed_out():
    assert "missing (found vaule)" in problems(("vaule", TEXT))


@pytest.mark.needs_format
@pytest.mark.parametrize(
    ("name", "column"),
    [("keys", "key"), ("Key", "key"), ("header", "headers"), ("parition", "partition")],
)  # fmt: skip
def test_a_misspelt_optional_column_is_named(name, column):
    sentence = f"column {name} is not written to Kafka; did you mean {column}?"
    columns = schema(("value", TEXT), (name, TEXT))
    assert unused_columns(columns, "t") == [sentence]
    sink = KafkaSink({**SERVERS, "topic": "t"})
    with pytest.warns(UserWarning, match=re.escape(sentence)):
        sink.streamWriter(columns, overwrite=False)
    with pytest.warns(UserWarning, match=re.escape(sentence)):
        sink.writer(columns, overwrite=False)


def test_each_misspelt_column_is_named():
    columns = schema(("value", TEXT), ("header", HEADERS), ("keys", TEXT))
    assert [sentence.split()[1] for sentence in unused_columns(columns, "t")] == ["header", "keys"]


@pytest.mark.parametrize(
    "columns",
    [
        ("value", "key", "headers"),
        ("value", "id", "name", "event_time", "kafka_offset"),
        ("value", "key", "keys"),  # key is there
        ("value", "topic"),  # the option replaces it
        ("value", "topics"),
    ],
    ids=" ".join,
)
def test_of_other_columns_that_are_not_written_nothing_is_said(columns):
    assert unused_columns(schema(*((name, TEXT) for name in columns)), "t") == []


def test_topic_must_come_from_somewhere():
    sentence = "no topic: set the option topic, or add a column topic (string)"
    assert problems(("value", TEXT), topic=None) == sentence
    misspelt = problems(("value", TEXT), ("topics", TEXT), topic=None)
    assert misspelt == f"{sentence} (found topics)"


def test_repeated_column_is_rejected():
    twice = (("value", TEXT), ("value", TEXT), ("key", TEXT), ("key", BYTES), ("x", TEXT))
    message = problems(*twice)
    assert message.startswith("more than one column is named key, value; select one, and rename")


TWICE = schema(("a", TEXT), ("b", TEXT), ("a", LongType()))


class Point(UserDefinedType):
    @classmethod
    def sqlType(cls) -> DataType:  # noqa: N802 - Spark's name
        return TWICE


@pytest.mark.needs_format
@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([("x", TEXT), ("x", LongType())], "more than one column is named x"),
        ([("topic", TEXT), ("topic", TEXT)], "more than one column is named topic"),
        ([("x", TWICE)], "column x has more than one field a"),
        ([("x", schema(("y", ArrayType(TWICE))))], "column x.y.element has more than one field a"),
        ([("x", MapType(TWICE, TWICE))],
         "column x.key has more than one field a; column x.value has more than one field a"),
        ([("x", Point())], "column x has more than one field a"),
        ([("x", YearMonthIntervalType(0))], "column x has type interval year"),
        ([("x", YearMonthIntervalType()), ("x", TEXT)],
         "more than one column is named x; column x has type interval year to month"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_spark_cannot_pass_is_rejected_only_by_the_format(columns, problem):
    all_columns = schema(("value", TEXT), *columns)
    assert check_schema(all_columns, "t") is None
    sink = KafkaSink({**SERVERS, "topic": "t"})
    for writer in (sink.writer, sink.streamWriter):
        with pytest.raises(InvalidSchema) as raised:
            writer(all_columns, overwrite=False)
        assert str(raised.value) == (
            f"{problem}. Spark cannot pass that to the format: select the record's columns, or use "
            "foreach_batch"
        )


@pytest.mark.needs_format
def test_names_that_differ_in_case_and_nested_intervals_are_accepted():
    fields = schema(("a", TEXT), ("A", YearMonthIntervalType(1)))
    columns = schema(("value", TEXT), ("x", fields), ("X", ArrayType(fields)), ("Value", TEXT))
    assert KafkaSink({**SERVERS, "topic": "t"}).writer(columns, overwrite=False)


def test_a_column_with_a_format_has_no_field_twice():
    with pytest.raises(InvalidSchema) as raised:
        check_schema(schema(("value", ArrayType(TWICE))), "t", ["value"])
    assert str(raised.value) == "column value.element has more than one field a: rename one"


REGISTRY = {"schema.registry.url": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("form", "kind", "already"),
    [
        ("json", TEXT, "JSON"),
        ("json", BYTES, "JSON"),
        ("avro", BYTES, "Avro"),
        ("avro", TEXT, ""),
        ("json", LongType(), ""),
        ("json", schema(("a", TEXT)), ""),
    ],
)
@pytest.mark.parametrize("column", ["key", "value"])
def test_a_column_that_may_be_serialized_already_is_named(column, form, kind, already):
    columns = schema((column, kind))
    sentence = (
        f"column {column} ({kind.simpleString()}) is serialized by {column}.format={form}: if it "
        f"is {already} already, write the struct itself, not to_{form}; if not, "
        f"{column}.schema ends this warning"
    )
    expected = [sentence] if already else []
    options = {**SERVERS, **REGISTRY, f"{column}.format": form}
    serialization = parse(options).serialization
    assert columns_serialized_twice(columns, serialization) == expected
    meant = parse({**options, f"{column}.schema": "{}"}).serialization
    assert columns_serialized_twice(columns, meant) == []
    latest = {"use.latest.version": "true", "auto.register.schemas": "false"}
    assert columns_serialized_twice(columns, parse({**options, **latest}).serialization) == []


def test_all_problems_are_reported_at_once():
    message = problems(("key", LongType()), ("partition", TEXT), topic=None)
    parts = ("column key", "column partition", "column value (string", "no topic")
    assert message.count("; ") >= 3
    assert all(part in message for part in parts)


# --- KafkaSink -----------------------------------------------------------------------------------


def test_format_is_called_kafka_nb():
    assert KafkaSink.name() == "kafka-nb"


@pytest.mark.needs_format
def test_reading_is_rejected():
    with pytest.raises(UnsupportedSaveMode, match=r'only writes; .*format\("kafka"\)'):
        KafkaSink(dict(SERVERS)).schema()


@pytest.mark.needs_format
def test_overwriting_a_topic_is_rejected():
    sink = KafkaSink({**SERVERS, "topic": "t"})
    with pytest.raises(UnsupportedSaveMode, match=r'use mode\("append"\)'):
        sink.writer(schema(("value", TEXT)), overwrite=True)


@pytest.mark.needs_format
@pytest.mark.parametrize("overwrite", [False, True])
def test_complete_mode_of_a_stream_is_accepted(overwrite):
    sink = KafkaSink({**SERVERS, "topic": "t"})
    assert sink.streamWriter(schema(("value", TEXT)), overwrite) is not None


@pytest.mark.needs_format
@pytest.mark.parametrize("build", [KafkaSink.writer, KafkaSink.streamWriter])
@pytest.mark.parametrize(
    ("options", "column", "error"),
    [({**SERVERS, "topik": "t"}, "value", InvalidOption), (SERVERS, "value", InvalidSchema),
     ({**SERVERS, "topic": "t"}, "other", InvalidSchema)],
)  # fmt: skip
def test_wrong_option_or_schema_fails_when_the_writer_is_built(build, options, column, error):
    with pytest.raises(error) as raised:
        build(KafkaSink(dict(options)), schema((column, TEXT)), False)
    assert raised.value.__suppress_context__


@pytest.mark.needs_format
@pytest.mark.parametrize("build", [KafkaSink.writer, KafkaSink.streamWriter])
def test_writer_survives_pickling_and_shows_no_secret(build):
    options = {**SERVERS, "topic": "t", "kafka.sasl.password": "hunter2"}
    writer = build(KafkaSink(options), schema(("value", TEXT)), False)
    copy = pickle.loads(pickle.dumps(writer))
    assert vars(copy) == vars(writer)
    assert "hunter2" not in repr(vars(copy))


@pytest.mark.needs_format
def test_option_values_do_not_show_in_the_mapping_that_spark_gave():
    options = {**SERVERS, "kafka.sasl.password": "hunter2"}
    sink = KafkaSink(options)
    assert options["kafka.sasl.password"] == "hunter2"
    assert "hunter2" not in f"{options} {sink.options} {vars(sink)}"


@pytest.mark.needs_format
def test_value_of_a_wrong_option_is_shown_in_the_error():
    sink = KafkaSink({**SERVERS, "topic": "no topic name", "kafka.linger.ms": "soon"})
    with pytest.raises(KafkaSinkError, match="'no topic name' is not a valid topic name"):
        sink.writer(schema(("value", TEXT)), overwrite=False)

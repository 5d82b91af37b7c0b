"""What doctor says of a schema registry, which it only reads."""

from __future__ import annotations

import re
import sys

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, YearMonthIntervalType

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import SchemaMismatch
from spark_kafka_sink.schemas.formats import derived_schema
from spark_kafka_sink.schemas.preparation import prepare
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.spark.private_api import column_types
from spark_kafka_sink.tools.doctor import writing
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.diagnosis import diagnose
from spark_kafka_sink.tools.doctor.result import not_applicable

TOPIC = StructField("topic", StringType())
ORDERS = StructType().add("value", StructType().add("id", LongType()))


def results(registry, *arguments, **more):
    complete = complete_results(registry, *arguments, **more)
    return [(result.outcome.value, result.subject, result.message) for result in complete]


def complete_options(registry, **more: str):
    return {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "value.format": "avro",
        "schema.registry.url": registry.url,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def complete_results(
    registry, check="schema_registry", schema=None, has_topic_column=False, **more: str
):
    options = complete_options(registry, **more)
    if has_topic_column:
        del options["topic"]
    results = []
    for result in diagnose(options, timeout_seconds=120, schema=schema):
        if result.name == check:
            results.append(result)
        if result.name == "bootstrap_servers":
            break
    return results


def test_a_subject_without_a_schema_gets_one_from_the_query(registry):
    message = "it has no schema yet: the query registers it"
    assert results(registry) == [("passed", "t-value", message)]
    assert registry.subjects == {}


@pytest.mark.parametrize("schema", [None, ORDERS])
def test_a_schema_that_must_be_there_and_is_not_fails(registry, schema):
    registry.add("other-value", derived(ORDERS))
    checked = results(registry, schema=schema, auto_register_schemas="false")
    ((outcome, subject, message),) = checked
    assert (outcome, subject) == ("failed", "t-value")
    assert "auto.register.schemas=true" in message


def test_a_schema_that_must_be_there_and_is_there_passes(registry):
    registry.add("t-value", derived(ORDERS))
    checked = results(registry, schema=ORDERS, auto_register_schemas="false")
    assert checked == [("passed", "t-value", "it has the column's schema, with the id 1")]


def test_a_schema_that_the_query_would_register_is_compatible_or_fails(registry):
    registry.add("t-value", '"string"')
    message = "its latest schema has the id 1, and the column's schema is"
    checked = results(registry, schema=ORDERS)
    assert checked == [("passed", "t-value", f"{message} compatible")]
    registry.is_compatible = False
    checked = results(registry, schema=ORDERS)
    assert checked == [("failed", "t-value", f"{message} not compatible with its versions")]
    checked = results(registry, value_schema=derived(ORDERS))
    assert checked == [("failed", "t-value", f"{message} not compatible with its versions")]
    # Without the DataFrame's schema, nothing is known of the one that the query would register.
    assert results(registry) == [("passed", "t-value", "its latest schema has the id 1")]
    assert len(registry.subjects["t-value"]) == 1


def test_a_schema_that_is_an_earlier_version_need_not_be_compatible(registry):
    registry.add("t-value", derived(ORDERS))
    registry.add("t-value", '"string"')
    registry.is_compatible = False
    checked = results(registry, schema=ORDERS)
    assert checked == [("passed", "t-value", "it has the column's schema, with the id 1")]


def test_a_registry_is_asked_without_pyspark(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "spark_kafka_sink.spark.private_api", None)
    assert [outcome for outcome, *_ in results(registry)] == ["passed"]


@pytest.mark.parametrize(
    "kind",
    [{"schemaType": "JSON"}, {"references": [{"name": "R", "subject": "r", "version": 1}]}],
    ids=str,
)
def test_a_latest_schema_that_only_use_latest_version_would_read_may_be_anything(registry, kind):
    registry.add("t-value", derived(ORDERS))
    registry.subjects["t-value"][0].update(kind)
    options = {"auto_register_schemas": "false"}
    for more in ({}, options):
        assert [outcome for outcome, *_ in results(registry, schema=ORDERS, **more)] == ["passed"]
        assert [outcome for outcome, *_ in results(registry, **more)] == ["passed"]
    ((outcome, _, message),) = results(registry, **options, use_latest_version="true")
    assert outcome == "failed"
    assert "the latest schema of the subject t-value" in message


def test_a_latest_schema_that_the_column_does_not_fit_fails_as_the_query_does(registry):
    latest = {"auto_register_schemas": "false", "use_latest_version": "true"}
    other = StructType().add("value", StructType().add("other", StringType(), nullable=False))
    registry.add("t-value", derived(other))
    ((outcome, _, message),) = results(registry, schema=ORDERS, **latest)
    assert outcome == "failed"
    with pytest.raises(SchemaMismatch) as raised:
        prepare(parse(complete_options(registry, **latest)), column_types(ORDERS, ["value"]), None)
    assert message == str(raised.value)
    # Without the DataFrame's schema, nothing is known of the column.
    for schema in (None, other):
        assert [outcome for outcome, *_ in results(registry, schema=schema, **latest)] == ["passed"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"auto_register_schemas": "false"},
        {"auto_register_schemas": "false", "use_latest_version": "true"},
    ],
    ids=str,
)
def test_ids_in_headers_need_a_registry_that_gives_guids(registry, more):
    registry.add("t-value", derived(ORDERS))
    more = {"schema_id_location": "header", **more}
    assert [outcome for outcome, *_ in results(registry, schema=ORDERS, **more)] == ["passed"]
    del registry.subjects["t-value"][0]["guid"]
    ((outcome, _, message),) = results(registry, schema=ORDERS, **more)
    assert outcome == "failed"
    assert message.startswith("schema.id.location=header needs GUIDs")


def test_topics_of_the_column_have_no_subjects_yet(registry):
    checked = results(registry, schema=StructType([*ORDERS, TOPIC]), has_topic_column=True)
    assert checked == [("passed", registry.url, "it answers; the column topic names the subjects")]


def test_a_login_may_lack_the_right_to_read_a_subject_that_no_topic_of_the_column_has(registry):
    registry.failure = (403, b'{"error_code": 40301, "message": "denied"}')
    (result,) = complete_results(registry, has_topic_column=True)
    assert (result.outcome.value, result.subject) == ("warned", registry.url)
    assert result.advice.startswith("Change nothing if the login may use the subjects of your")
    assert [outcome for outcome, *_ in results(registry)] == ["failed"]


@pytest.mark.parametrize("schema", [None, StructType([*ORDERS, TOPIC])])
def test_a_subject_that_is_the_same_for_all_topics_of_the_column_is_checked(registry, schema):
    registry.add("com.Order", '"string"')
    registry.is_compatible = False
    options = {
        "value_subject_name_strategy": "record",
        "value_schema": derived(ORDERS, "com.Order"),
    }
    ((outcome, subject, message),) = results(
        registry, schema=schema, has_topic_column=True, **options
    )
    assert (outcome, subject) == ("failed", "com.Order")
    assert "not compatible" in message


@pytest.mark.parametrize(
    ("kind", "name", "problem"),
    [
        (StringType(), "key", "column value .* is required but missing"),
        (YearMonthIntervalType(0, 0), "value", "value: interval.*cast it to string"),
    ],
)
def test_columns_that_cannot_become_records_fail(registry, kind, name, problem):
    schema = StructType([StructField(name, kind)])
    ((outcome, _, message),) = results(registry, check="columns", schema=schema)
    assert outcome == "failed"
    assert re.search(problem, message)
    ((outcome, _, message),) = results(registry, schema=schema)
    assert (outcome, message) == ("skipped", "needs columns")
    assert registry.requests == []


def test_columns_that_can_become_records_pass(registry):
    checked = results(registry, check="columns", schema=ORDERS)
    assert checked == [("passed", "", "rows can become records: value")]


def derived(frame, name=None):
    return derived_schema("avro", frame["value"].dataType.jsonValue(), "value", name)


def test_the_latest_schema_of_each_column_is_named(registry):
    registry.first_id = 41
    registry.add("t-value", '"string"')
    checked = results(registry, key_format="json")
    assert ("passed", "t-value", "its latest schema has the id 41") in checked
    assert len(checked) == 2


def test_a_rejected_login_fails_and_hides_the_password(registry):
    registry.authorization = "Basic nobody"
    ((outcome, _, message),) = results(
        registry, **{"schema.registry.basic.auth.user.info": Secret("me:swordfish")}
    )
    assert outcome == "failed"
    assert "the login" in message
    assert "swordfish" not in message


def test_without_the_extra_it_says_what_to_install(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    (result,) = complete_results(registry)
    assert "run pip install 'spark-kafka-sink[registry]'" in result.message
    assert result.advice == "Do what the message says"


@pytest.mark.parametrize("failure", [(500, b"{}"), (200, b"<html>"), (200, b"{}")])
def test_what_is_no_registry_fails(registry, failure):
    registry.failure = failure
    ((outcome, _, message),) = results(registry)
    assert outcome == "failed"
    assert "schema.registry.url" in message


def test_a_column_that_is_not_written_and_has_almost_the_right_name_is_a_warning(registry):
    schema = StructType([*ORDERS.fields, StructField("keys", StringType())])
    assert results(registry, "columns", schema) == [
        ("passed", "", "rows can become records: value, keys"),
        ("warned", "", "column keys is not written to Kafka; did you mean key?"),
    ]


def test_a_column_timestamp_that_is_not_written_is_a_warning(registry):
    schema = StructType([*ORDERS.fields, StructField("timestamp", StringType())])
    passed, (outcome, _, message) = results(registry, "columns", schema)
    assert passed[0] == "passed"
    assert outcome == "warned"
    assert "set timestamp.column=timestamp" in message
    at = {"timestamp.column": "timestamp"}
    ((outcome, _, message),) = results(registry, "columns", schema, **at)
    assert outcome == "failed"
    assert "column timestamp has type string" in message


def test_what_only_the_format_cannot_take_and_what_may_be_avro_already_are_warnings(registry):
    schema = StructType().add("value", "binary").add("id", "long").add("id", "long")
    passed, of_format, serialized_twice = results(registry, "columns", schema)
    assert passed[0] == "passed"
    assert of_format[0] == serialized_twice[0] == "warned"
    assert "more than one column is named id. Spark cannot pass that to the format" in of_format[2]
    assert "if it is Avro already, write the struct itself" in serialized_twice[2]


def test_no_test_record_that_readers_of_the_format_could_not_read(registry):
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    options |= {"value.format": "avro", "schema.registry.url": registry.url}
    context = CheckContext(options, write_test_record=True, spark=None, deadline=Deadline(0))
    context.parsed = parse(options)
    (finding,) = writing.test_record(context)
    assert finding == not_applicable("readers of value.format or key.format could not read it")

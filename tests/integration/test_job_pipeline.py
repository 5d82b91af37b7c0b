"""What Spark rejects of a job: a mistake in the file, or something that is not there now."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.errors import InvalidConfiguration, KafkaSinkError
from spark_kafka_sink.tools.job import pipeline
from spark_kafka_sink.tools.job.configuration import check
from spark_kafka_sink.tools.job.document import Document
from spark_kafka_sink.tools.job.pipeline import build, start
from spark_kafka_sink.tools.job.stop import Stop, StopCheck


def configuration(
    source, checkpoint="/nowhere", sql="SELECT string(value) AS value FROM source", **sink
):
    document = {
        "name": "numbers",
        "source": source,
        "sql": sql,
        "sink": {"options": {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "numbers"}, **sink},
        "checkpoint": str(checkpoint),
    }
    return check(Document(json.dumps(document, indent=1), "job.yaml"), {})


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"format": "jsn"}, "jsn"),
        ({"format": "json", "options": {"path": "/tmp"}}, "Schema must be specified"),
        ({"format": "rate", "options": {"rowsPerSecond": "many"}}, "many"),
        ({"format": "json", "schema": "value STRNG", "options": {"path": "/data"}}, "STRNG"),
        ({"table": "no_such_table"}, "no_such_table"),
        ({"format": "text", "options": {"path": "nosuch://data"}}, "nosuch"),
    ],
)
def test_a_wrong_source_is_a_mistake_with_its_place(source, what, spark):
    with pytest.raises(InvalidConfiguration) as raised:
        build(spark, configuration(source))
    count, line = str(raised.value).splitlines()
    assert count == "1 mistake in the configuration:"
    assert line.startswith("job.yaml:3:2: source: ")
    assert what in line


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT no_such AS value FROM source", "sql: [UNRESOLVED_COLUMN"),
        ("SELECT 1.5 AS value FROM source", "sql: column value has type decimal(2,1); allowed:"),
    ],
)
def test_a_wrong_query_is_a_mistake_with_its_place(sql, expected, spark):
    with pytest.raises(InvalidConfiguration) as raised:
        build(spark, configuration({"format": "rate"}, sql=sql))
    assert f"job.yaml:6:2: {expected}" in str(raised.value)


def test_columns_that_only_the_format_cannot_take_are_a_mistake_of_a_job_with_it(spark):
    sql = "SELECT string(value) AS value, 1 AS id, 2 AS id FROM source"
    build(spark, configuration({"format": "rate"}, sql=sql))
    with pytest.raises(InvalidConfiguration, match="more than one column is named id"):
        build(spark, configuration({"format": "rate"}, sql=sql, mode="format"))


def test_the_format_is_a_mistake_where_spark_has_none(monkeypatch):
    monkeypatch.setattr(pipeline, "has_data_sources", lambda: False)
    with pytest.raises(InvalidConfiguration, match=r"sink\.mode: PySpark .*: use foreach_batch"):
        build(None, configuration({"format": "rate"}, mode="format"))


def test_a_folder_that_is_not_there_is_no_mistake_of_the_configuration(spark, tmp_path):
    folder = tmp_path / "in"
    source = {"format": "text", "options": {"path": str(folder)}}
    with pytest.raises(KafkaSinkError, match=r"job\.yaml:3:2: source: \[PATH_NOT_FOUND\]") as away:
        build(spark, configuration(source))
    assert not isinstance(away.value, InvalidConfiguration)
    assert str(folder) in str(away.value)
    folder.mkdir()
    build(spark, configuration(source))


def test_storage_of_the_checkpoint_that_is_away_is_no_mistake_of_the_configuration(spark, tmp_path):
    in_the_way = tmp_path / "checkpoints"
    in_the_way.write_text("")
    job = configuration({"format": "rate"}, in_the_way / "numbers")
    with pytest.raises(KafkaSinkError, match=r"job\.yaml:1:1: Spark rejects the query: ") as away:
        start(build(spark, job), job, StopCheck(Stop(60)), lambda _: None)
    assert not isinstance(away.value, InvalidConfiguration)
    assert "\n" not in str(away.value)

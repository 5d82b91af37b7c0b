"""Serializers of a struct column and an integer key, at a stub of a registry."""

from __future__ import annotations

import json
from functools import cache

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.schemas import known_schemas
from spark_kafka_sink.schemas.preparation import prepare
from spark_kafka_sink.spark.private_api import column_types

ORDER = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
NUMBER = IntegerType()
ROWS = [{"id": 1, "name": "a"}, None, {"id": 3, "name": None}]
REQUIRED = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)
LATEST = {"auto_register_schemas": "false", "use_latest_version": "true"}


def options(registry, topic: str | None = "t", **more: str):
    texts = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "value.format": "avro",
        "schema.registry.url": registry.url,
        "schema.registry.request.timeout.ms": "60000",  # tests run on busy machines too
        **({} if topic is None else {"topic": topic}),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return parse(texts)


def prepared(registry, topic: str | None = "t", folder=None, value=ORDER, key=NUMBER, **more: str):
    schema = StructType([StructField("value", value), StructField("key", key)])
    parsed = options(registry, topic, **more)
    return prepare(parsed, column_types(schema, parsed.serialized_columns), folder)


def forget_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process; those of other tests stay, because their clients have open connections."""
    monkeypatch.setattr(known_schemas, "_known", {})
    monkeypatch.setattr(known_schemas, "_client", cache(known_schemas._client.__wrapped__))


def batch(rows=ROWS, **columns) -> pa.RecordBatch:
    value = pa.struct([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    return pa.record_batch({"value": pa.array(rows, value), **columns})

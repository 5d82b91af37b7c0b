"""Structs as Avro with a schema registry: this sink and its peers, in interleaved rounds.

Through Spark, all write the same cached rows to the same broker, with the same schema and the same
registry:

- Spark's ``to_avro`` with its JAR, five bytes in front of its result, and Spark's own sink;
- this sink with ``value.format=avro``;
- ``foreachPartition`` with confluent-kafka's AvroSerializer and Producer.

And in one process without Spark, what the encoding of a row costs: this sink's encoder, fastavro,
and the AvroSerializer, which uses it.

Argument: rounds (default 5).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from io import BytesIO

import fastavro
import pyarrow as pa
from common import (
    AS_THEY_COME,
    OURS,
    argument,
    create_topics,
    delete_topics,
    session,
    spread,
    table,
    write_table,
)
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from spark_jars import avro_jar, kafka_jars
from throughput import write_by_hand

from spark_kafka_sink.schemas.avro.encoder import AvroEncoder
from spark_kafka_sink.schemas.formats import derived_schema
from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_registry import LocalRegistry

TO_AVRO, BY_HAND = "to_avro + Spark's own sink", "foreachPartition + AvroSerializer"
FASTAVRO, SERIALIZER, ENCODER = "fastavro", "AvroSerializer", "this sink's encoder"
BY_TOPIC = {"subject.name.strategy.type": "TOPIC"}  # Apicurio has no associations
PARTITIONS = 4
ROWS, ROWS_BY_HAND = 1_000_000, 100_000  # by hand, a million rows would take a minute
ROWS_ALONE = 10_000  # an Arrow batch of Spark's
WARMING_ROUNDS = 3

FLAT = {
    "id": "id",
    "name": "concat('name-', id % 10000)",
    "amount": "id * 0.25D",
    "at": "timestamp_micros(id * 1000003)",
    "is_paid": "id % 3 = 0",
    "code": "if(id % 7 = 0, null, cast(id % 100 AS INT))",
}
MORE = {
    **{f"number_{n}": f"id + {n}" for n in range(5)},
    **{f"text_{n}": f"if(id % 11 = {n}, null, concat('text-', id % {n + 7}))" for n in range(5)},
    **{f"ratio_{n}": f"id / {n + 3}D" for n in range(2)},
    "day": "date_from_unix_date(cast(id % 20000 AS INT))",
    "price": "cast(id % 100000 AS DECIMAL(10, 2))",
}
ITEMS = "array(named_struct('sku', concat('sku-', id % 500), 'count', cast(id % 9 AS INT)), "
ITEMS += "named_struct('sku', 'sku-0', 'count', 1))"
SHAPES = {
    "6 flat fields": FLAT,
    "20 flat fields": {**FLAT, **MORE},
    "3 fields and an array of 2 structs": {
        **{name: FLAT[name] for name in ("id", "name", "amount")},
        "items": ITEMS,
    },
}


def main() -> None:
    rounds = argument(1, 5)
    spark = session(jars=f"{kafka_jars()},{avro_jar()}")
    through_spark, alone = [], []
    with LocalKafka() as kafka, LocalRegistry() as registry:
        for shape, fields in SHAPES.items():
            data = source(spark, fields)
            speeds = measure(data, kafka.bootstrap_servers, registry.url, rounds)
            for peer, rates in speeds.items():
                bases = (speeds[TO_AVRO], speeds[BY_HAND])
                ratios = [[a / b for a, b in zip(rates, base, strict=True)] for base in bases]
                row = (shape, peer, spread([rate / 1e6 for rate in rates]), *map(spread, ratios))
                through_spark.append(row)
                print(*row, sep=" | ", flush=True)
            costs = encode(data, registry.url, rounds)
            for peer, own in costs.items():
                ratios = [a / b for a, b in zip(own, costs[ENCODER], strict=True)]
                alone.append((shape, peer, spread(own), spread(ratios)))
                print(*alone[-1], sep=" | ", flush=True)
            data.unpersist()
    spark.stop()
    head = ("Rows", "Writer", "M rows/s", "times `to_avro`", "times `foreachPartition`")
    alone_head = ("Rows", "Encoder, in one process", "us per row", "times this sink's")
    write_table("registry", table(head, through_spark) + "\n" + table(alone_head, alone))


def source(spark: SparkSession, fields: dict[str, str]) -> DataFrame:
    """The rows, cached in memory, so that no peer pays for generating them."""
    pairs = ", ".join(f"'{name}', {expression}" for name, expression in fields.items())
    data = spark.range(0, ROWS, numPartitions=2).selectExpr(
        f"named_struct({pairs}) AS value", f"id % {ROWS // ROWS_BY_HAND} = 0 AS is_by_hand"
    )
    data = data.cache()
    data.count()
    return data


def measure(data: DataFrame, servers: str, registry: str, rounds: int) -> dict[str, list[float]]:
    """Rows per second of each peer, in each round."""
    speeds: dict[str, list[float]] = {TO_AVRO: [], OURS: [], BY_HAND: []}
    for number in range(-WARMING_ROUNDS, rounds):
        for peer in speeds if number % 2 else reversed(speeds):
            topic = f"bench-{time.monotonic_ns()}"
            create_topics(servers, [topic], PARTITIONS)
            rows, save = saving(data, peer, topic, servers, registry)
            started = time.monotonic()
            save()
            if number >= 0:
                speeds[peer].append(rows / (time.monotonic() - started))
            delete_topics(servers, [topic])
    return speeds


def saving(
    data: DataFrame, peer: str, topic: str, servers: str, registry: str
) -> tuple[int, Callable[[], None]]:
    """The number of rows, and the call that is measured."""
    options = {**AS_THEY_COME, "kafka.bootstrap.servers": servers, "topic": topic}
    rows = data.select("value")
    if peer == OURS:
        options |= {"value.format": "avro", "schema.registry.url": registry}
        return ROWS, rows.write.format("kafka-nb").mode("append").options(**options).save
    schema = schema_of(data)
    if peer == BY_HAND:
        some = data.where("is_by_hand").select("value")
        write = write_by_hand(options, topic, avro_encoder(topic, registry, schema))
        return ROWS_BY_HAND, lambda: some.foreachPartition(write)
    # The id does not matter here: registering is a matter of milliseconds.
    framed = F.concat(F.lit(b"\0\0\0\0\1"), to_avro("value", schema))
    writer = data.select(framed.alias("value")).write.format("kafka")
    return ROWS, writer.mode("append").options(**options).save


def avro_encoder(topic: str, registry: str, schema: str):
    """For ``write_by_hand``."""

    def new_encoder():
        serialize = AvroSerializer(SchemaRegistryClient({"url": registry}), schema, conf=BY_TOPIC)
        context = SerializationContext(topic, MessageField.VALUE)
        return lambda row: {"value": serialize(row["value"].asDict(recursive=True), context)}

    return new_encoder


def encode(data: DataFrame, registry: str, rounds: int) -> dict[str, list[float]]:
    """Microseconds per row of each encoder, in each round."""
    schema = schema_of(data)
    array = data.select("value").limit(ROWS_ALONE).toArrow().column("value").combine_chunks()
    dicts = array.to_pylist()
    compiled = fastavro.parse_schema(json.loads(schema))
    with SchemaRegistryClient({"url": registry}) as client:
        serialize = AvroSerializer(client, schema, conf=BY_TOPIC)
        context = SerializationContext("alone", MessageField.VALUE)
        writers = {
            ENCODER: encoding(schema, array),
            FASTAVRO: lambda: [fastavro_bytes(compiled, row) for row in dicts],
            SERIALIZER: lambda: [serialize(row, context) for row in dicts],
        }
        costs: dict[str, list[float]] = {peer: [] for peer in writers}
        for _ in range(rounds):
            for peer, write in writers.items():
                costs[peer].append(microseconds_per_row(write))
    return costs


def encoding(schema: str, array: pa.Array) -> Callable[[], object]:
    encoder = AvroEncoder(schema, array.type, "value")
    return lambda: encoder.encode(array, b"\0\0\0\0\1")


def fastavro_bytes(schema: object, row: dict[str, object]) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, schema, row)
    return buffer.getvalue()


def microseconds_per_row(write: Callable[[], object]) -> float:
    """The median of several batches."""
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        write()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) / ROWS_ALONE * 1e6


def schema_of(data: DataFrame) -> str:
    """As this sink derives it, and to_avro too."""
    return derived_schema("avro", data.schema["value"].dataType.jsonValue(), "value")


if __name__ == "__main__":
    main()

"""Streams of words for tests, with known micro-batches, and the ways to write a DataFrame."""

from __future__ import annotations

import os

from pyspark.errors import PySparkException

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.deadline import Deadline

FROM_DRIVER = {"send.from": "driver"}


def stream_of(spark, folder, *batches):
    """A streaming DataFrame with a micro-batch for each list of words; a query may run already."""
    folder.mkdir(exist_ok=True)
    for words in batches:
        number = len(list(folder.iterdir()))
        part = folder / ".part"  # not seen by Spark, which reads a file once, however much it has
        part.write_text("\n".join(words))
        os.utime(part, (number, number))  # Spark takes the oldest file first
        part.rename(folder / f"{number:03}.txt")
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
    return reader.load(str(folder))


def run(writer, tmp_path):
    """Run all micro-batches; the checkpoint is the same each time."""
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query


def exactly_once(prefix, partitions=1):
    """Options that make a stream exactly-once."""
    return {
        "delivery.guarantee": "exactly-once",
        "exactly.once.partitions": str(partitions),
        "transactional.id.prefix": prefix,
    }


def direct(writer, way, options):
    """The writer of a stream, directed to Kafka.

    ``way``: "foreach_batch" or "format"; "from_driver", which is foreach_batch on the driver; or
    "exactly-once", which is the format with one partition.
    """
    if way == "from_driver":
        return writer.foreachBatch(foreach_batch(options | FROM_DRIVER))
    if way == "exactly-once":
        options = options | exactly_once(options["topic"])
    if way == "foreach_batch":
        return writer.foreachBatch(foreach_batch(options))
    return writer.format("kafka-nb").options(**options)


def save(frame, way, options):
    """Write a DataFrame by foreach_batch, also from the driver, or a format."""
    if way == "from_driver":
        options = options | FROM_DRIVER
    if way in ("foreach_batch", "from_driver"):
        foreach_batch(options)(frame, 0)
    else:
        name = "kafka-nb" if way == "format" else way
        frame.write.format(name).options(**options).mode("append").save()


def write_by_format(frame, servers, **options):
    save(frame, "format", {"kafka.bootstrap.servers": servers, **options})


def write_by_foreach_batch(frame, servers, **options):
    save(frame, "foreach_batch", {"kafka.bootstrap.servers": servers, **options})


def write_from_driver(frame, servers, **options):
    save(frame, "from_driver", {"kafka.bootstrap.servers": servers, **options})


def forget_commit(checkpoint, batch_id):
    """As if the driver had died before Spark recorded the micro-batch as done."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink()


def counts(words):
    return words.groupBy("value").count().selectExpr("value as key", "string(count) as value")


def patiently(start):
    """Start a query; Connect gives the worker of foreachBatch 10 s to start, however busy."""
    deadline = Deadline(120)
    while True:
        try:
            return start()
        except PySparkException as error:
            late = "Python worker failed to connect back" in str(error)
            if not late or deadline.expired:
                raise

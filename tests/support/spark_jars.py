"""JARs of Spark that pyspark does not bring along, and a session with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyspark
from local_session import session_builder
from pyspark.sql import SparkSession

from spark_kafka_sink.tools.local_servers.downloads import fetch_jars

_KAFKA = (
    (
        "org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    (
        "org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    (
        "org.apache.kafka", "kafka-clients", "3.9.1",
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    (
        "org.apache.commons", "commons-pool2", "2.12.1",
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    ),
)  # fmt: skip
AVRO = (
    "org.apache.spark",
    "spark-avro_2.13",
    "4.1.1",
    "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d",
)
if pyspark.__version__.startswith("4.0."):
    _KAFKA = (
        (
            "org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.1",
            "a9c5366a61087e7e7ff903c3dc160e80b33d2ea04d365e0795cc4a58befc3a16",
        ),
        *_KAFKA[1:],
    )  # fmt: skip
if pyspark.__version__.startswith("3.5."):
    _KAFKA = (
        (
            "org.apache.spark", "spark-sql-kafka-0-10_2.12", "3.5.7",
            "184f8bd4a3cd22299c49090d88b894f81fd7546b4ee64879519a0d76a685dbb8",
        ),
        (
            "org.apache.spark", "spark-token-provider-kafka-0-10_2.12", "3.5.7",
            "9701914db5c6d09628b58d2d2c1ccd2c9ea28f32f83dd6cb21f98b8237531ff4",
        ),
        *_KAFKA[2:],
    )  # fmt: skip
    AVRO = (
        "org.apache.spark",
        "spark-avro_2.12",
        "3.5.9",
        "9dda7512c1052bcd3774cbe247572cd481d4481eb8a90b7c4865b23a12bbecf8",
    )


def kafka_jars() -> str:
    """Spark's own Kafka source and sink, to read back with and to compare with."""
    return _fetched(*_KAFKA)


def avro_jar() -> str:
    """Spark's functions ``to_avro`` and ``from_avro``."""
    return _fetched(AVRO)


def _fetched(*jars: tuple[str, str, str, str]) -> str:
    """A value for ``spark.jars``."""
    paths = []
    for organisation, module, revision, digest in jars:
        name = f"{module}-{revision}.jar"
        folder = fetch_jars(organisation, module, revision, {name: digest}, transitive=False)
        paths.append(str(folder / name))
    return ",".join(paths)


@contextmanager
def session_with_sparks_own_sink(name: str) -> Iterator[SparkSession]:
    """A quiet session with Spark's connectors for Kafka and Avro."""
    session = (
        session_builder("local[2]")
        .appName(name)
        .config("spark.jars", f"{kafka_jars()},{avro_jar()}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Its producers stay: tests read how many records each one has sent.
        .config("spark.kafka.producer.cache.timeout", "1h")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()

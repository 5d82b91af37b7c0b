"""Runs queries with every secret option set and Spark's most verbose logs; for test_secrets.py.

Arguments: bootstrap servers, topic, folder. The planted values all contain ``planted-secret``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_kafka_sink

servers, topic, folder = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
Path(folder, "events").mkdir()
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", f"file://{folder}/events")
    .config("spark.sql.pyspark.worker.logging.enabled", "true")
    .config("spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled", "true")
    .config("spark.sql.pyspark.jvmStacktrace.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("DEBUG")

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="planted-secret-jaas";'
)
SECRETS = {
    f"kafka.{name}": f"planted-secret-{name}"
    for name in (
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
    )
}
GOOD = {"kafka.bootstrap.servers": servers, "topic": topic}
CASES = {
    "works": {**GOOD, **SECRETS, "kafka.debug": "all"},
    "works with JAAS": {
        **GOOD,
        "kafka.sasl.jaas.config": JAAS,
        "kafka.sasl.mechanism": "PLAIN",
    },
    "login refused": {
        **GOOD,
        "kafka.sasl.jaas.config": JAAS,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "close.timeout.ms": "2000",
    },
    "no broker": {
        **GOOD,
        **SECRETS,
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "close.timeout.ms": "500",
    },
    "key unusable": {
        **GOOD,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.key": "planted-secret-key",
    },
    "JAAS malformed": {**GOOD, "kafka.sasl.jaas.config": "planted-secret-malformed password="},
    "mechanism missing": {**GOOD, "kafka.sasl.jaas.config": JAAS},
    "name misspelt": {**GOOD, "kafka.sasl.pasword": "planted-secret-misspelt"},
    "prefix forgotten": {**GOOD, "sasl.password": "planted-secret-bare"},
    "another option wrong": {**GOOD, **SECRETS, "kafka.linger.ms": "soon"},
    "trust store password": {**GOOD, "kafka.ssl.truststore.password": "planted-secret-trust"},
}  # fmt: skip

rows = spark.range(3).selectExpr("string(id) as value")
Path(folder, "words").mkdir()
Path(folder, "words", "1.txt").write_text("word")
stream = spark.readStream.format("text").load(f"{folder}/words")


def attempt(case, write):
    try:
        write()
        print(f"{case}: no error")
    except Exception as error:  # noqa: BLE001 - the test is about all that a user may see
        print(f"{case}: {type(error).__name__}: {error}")


def run(writer, checkpoint):
    query = writer.option("checkpointLocation", f"{folder}/checkpoint-{checkpoint}").start()
    try:
        query.processAllAvailable()
        query.explain(True)
        print(query.lastProgress)
    finally:
        query.stop()


def run_foreach_batch(options, checkpoint):
    sink = spark_kafka_sink.foreach_batch(options, on_report=print)
    print(sink, [cell.cell_contents for cell in sink.__closure__])
    run(stream.writeStream.foreachBatch(sink), checkpoint)


for number, (case, options) in enumerate(CASES.items()):
    batch = rows.write.format("kafka-nb").options(**options).mode("append")
    attempt(f"batch, {case}", batch.save)
    writer = stream.writeStream.format("kafka-nb").options(**options)
    attempt(f"stream, {case}", lambda writer=writer, number=number: run(writer, number))
    attempt(
        f"foreach_batch, {case}",
        lambda options=options, number=number: run_foreach_batch(options, f"foreach-{number}"),
    )
print(spark.tvf.python_worker_logs().collect())
spark.stop()

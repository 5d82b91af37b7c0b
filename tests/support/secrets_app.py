"""Runs queries with every secret option set and Spark's most verbose logs; for test_secrets.py.

Arguments: bootstrap servers, topic, folder, and a JSON file with what secured brokers need:
"options"; the client's "key", "chain" and "pkcs12"; a "trust_store"; a "token_endpoint". The
planted values all contain ``planted-hunter2``, or are named in ``test_secrets.py``. Few have a word
by which Spark recognises secrets, such as "password": those it would hide.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from urllib.request import urlopen

import redaction
from local_session import session_builder

import spark_kafka_sink
from spark_kafka_sink.__main__ import main
from spark_kafka_sink.config import client_settings, registry_options

servers, topic, folder, secured_file = sys.argv[1:]
secured = json.loads(Path(secured_file).read_text())
os.environ["AWS_REGION"] = "eu-west-1"
Path(folder, "events").mkdir()
spark = (
    session_builder("local[2]")
    .config("spark.ui.enabled", "true")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", f"file://{folder}/events")
    .config("spark.sql.ui.explainMode", "extended")
    .config("spark.sql.pyspark.worker.logging.enabled", "true")
    .config("spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled", "true")
    .config("spark.sql.pyspark.jvmStacktrace.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("DEBUG")

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="planted-hunter2-jaas";'
)
SECRETS = {
    **{
        f"kafka.{name}": f"planted-hunter2-{number}"
        for number, name in enumerate(sorted(client_settings.known_names()))
        if client_settings.is_secret(name)
    },
    **{
        f"schema.registry.{name}": f"planted-hunter2-of-the-registry-{number}"
        for number, name in enumerate(sorted(registry_options.SETTINGS))
        if registry_options.is_secret(name)
    },
    "kafka.sasl.jaas.config": JAAS,
    "schema.registry.basic.auth.user.info": "u:planted-hunter2-of-the-registry",
    "schema.registry.proxy": "http://u:planted-hunter2-of-the-proxy@127.0.0.1:3128",
}
GOOD = {"kafka.bootstrap.servers": servers, "topic": topic}
SASL = {**GOOD, "kafka.security.protocol": "SASL_PLAINTEXT"}
CASES = {
    "works": {**GOOD, **SECRETS, "kafka.debug": "all"},
    "works with JAAS that is not read": {
        **GOOD,
        "kafka.sasl.jaas.config": JAAS,
        "kafka.sasl.mechanism": "PLAIN",
    },
    "login rejected": {
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
        "kafka.ssl.keystore.key": "planted-hunter2-key",
    },
    "JAAS malformed": {**SASL, "kafka.sasl.jaas.config": "planted-hunter2-malformed login="},
    "mechanism missing": {**SASL, "kafka.sasl.jaas.config": JAAS},
    "name misspelt": {**GOOD, "kafka.sasl.pasword": "planted-hunter2-misspelt"},
    "works without what lacks the prefix": {**GOOD, "sasl.password": "planted-hunter2-bare"},
    "another option wrong": {**GOOD, **SECRETS, "kafka.linger.ms": "soon"},
    "trust store password": {
        **GOOD,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.password": "planted-hunter2-trust",
    },
    "trust store missing": {
        **GOOD,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/no/trust.jks",
        "kafka.ssl.truststore.password": "planted-hunter2-trust",
    },
}  # fmt: skip

KEY_TEXT = {
    "kafka.ssl.keystore.key": secured["key"],
    "kafka.ssl.keystore.certificate.chain": secured["chain"],
    "kafka.ssl.key.password": "planted-hunter2-of-the-key",
}
KEY_FILE = {
    "kafka.ssl.keystore.type": "PKCS12",
    "kafka.ssl.keystore.location": secured["pkcs12"],
    "kafka.ssl.keystore.password": "planted-hunter2-of-the-key",
}
JKS_FILE = {
    "kafka.ssl.keystore.location": secured["jks"],
    "kafka.ssl.keystore.password": "planted-hunter2-of-the-key",
}
TRUST_TYPE = "kafka.ssl.truststore.type"
TRUST_STORE = {
    "kafka.ssl.truststore.location": secured["trust_store"],
    "kafka.ssl.truststore.password": "planted-hunter2-of-the-store",
}
WITHOUT_KEY = {**secured["options"], "topic": topic, "kafka.debug": "all"}
SECURED = {**WITHOUT_KEY, **KEY_TEXT}
SCRAM = {
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="u" password="planted-hunter2-login";',
}
PLAIN = {
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "u",
    "kafka.sasl.password": "planted-hunter2-login",
}
TOKENS = {
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.config": "planted-hunter2-configuration",
}
ENDPOINT = {
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
    'required clientId="u" clientSecret="planted-hunter2-of-the-client";',
    "kafka.sasl.oauthbearer.token.endpoint.url": secured["token_endpoint"],
}
MSK = {
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required "
    'awsRoleArn="planted-hunter2-role";',
}
REJECTED = secured["token_endpoint"].replace("/token", "/rejected")
CASES |= {
    "works with SCRAM": {**WITHOUT_KEY, **JKS_FILE, **SCRAM},
    "works with PLAIN, PKCS12 and JKS": {
        **{name: value for name, value in WITHOUT_KEY.items() if name != TRUST_TYPE},
        **KEY_FILE,
        **TRUST_STORE,
        **PLAIN,
    },
    "works with a function": {**SECURED, **TOKENS, "oauth.callback": "secret_tokens:made"},
    "works with an endpoint": {**SECURED, **ENDPOINT},
    "works with MSK": {**SECURED, **MSK},
    "password rejected": {**SECURED, **PLAIN, "kafka.sasl.password": "planted-hunter2-wrong"},
    "key password wrong": {**SECURED, **PLAIN, "kafka.ssl.key.password": "planted-hunter2-wrong"},
    "token rejected": {**SECURED, **TOKENS, "oauth.callback": "secret_tokens:rejected"},
    "token malformed": {**SECURED, **TOKENS, "oauth.callback": "secret_tokens:malformed"},
    "function fails": {**SECURED, **TOKENS, "oauth.callback": "secret_tokens:fails"},
    "endpoint rejects": {
        **SECURED, **ENDPOINT, "kafka.sasl.oauthbearer.token.endpoint.url": REJECTED
    },
}  # fmt: skip
EXAMINED = ("works with SCRAM", "works with a function", "password rejected", "function fails")

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
        print(*(progress.json for progress in query.recentProgress))
    finally:
        query.stop()


def run_foreach_batch(options, checkpoint):
    sink = spark_kafka_sink.foreach_batch(options, on_report=print)
    print(sink, [cell.cell_contents for cell in sink.__closure__])
    run(stream.writeStream.foreachBatch(sink), checkpoint)


def write_batch(options, checkpoint):
    # Only these plans need it, with this Spark.
    spark.conf.set(redaction.OPTIONS, redaction.redaction_settings()[redaction.OPTIONS])
    try:
        rows.write.format("kafka-nb").options(**options).mode("append").save()
    finally:
        spark.conf.unset(redaction.OPTIONS)


def run_format(options, checkpoint):
    run(stream.writeStream.format("kafka-nb").options(**options), checkpoint)


WAYS = {"batch": write_batch, "stream": run_format, "foreach_batch": run_foreach_batch}
for number, (case, options) in enumerate(CASES.items()):
    # What fails is tried in two ways: each pair of them in turn.
    left_out = -1 if case.startswith("works") else number % len(WAYS)
    for place, (way, write) in enumerate(WAYS.items()):
        if place != left_out:
            checkpoint = f"{way}-{number}"
            attempt(f"{way}, {case}", lambda w=write, o=options, c=checkpoint: w(o, c))
for case in EXAMINED:
    arguments = [f"--option={name}={value}" for name, value in CASES[case].items()]
    for form in ([], ["--json"]):
        code = main(["doctor", "--write-test-record", *form, *arguments])
        print(f"doctor, {case}: {code}")

print(spark.tvf.python_worker_logs().collect())
rest = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
for page in ("environment", "sql?details=true&length=1000", "jobs", "stages?details=true"):
    print(f"UI, {page}:", urlopen(f"{rest}/{page}", timeout=60).read().decode())
for page in ("environment", "StreamingQuery", "SQL"):
    print(urlopen(f"{spark.sparkContext.uiWebUrl}/{page}/", timeout=60).read().decode())
spark.stop()

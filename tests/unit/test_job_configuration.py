"""A job's configuration file: what is accepted, and every mistake with its place."""

from __future__ import annotations

import sys
from functools import reduce
from operator import getitem
from pathlib import Path
from types import ModuleType, SimpleNamespace

import job_files
import pytest
import yaml
from databricks_stand_in import DBUtils
from pyspark.sql import SparkSession

from spark_kafka_sink.errors import InvalidConfiguration
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.tools.job.configuration import check, load
from spark_kafka_sink.tools.job.document import _TAGS, CREATED, Document
from spark_kafka_sink.tools.job.model import CreateTopics

CONF = Path(__file__).parents[2] / "conf"
GOOD = """\
name: numbers
source:
  format: rate
sql: SELECT string(value) AS value FROM source
sink:
  options:
    kafka.bootstrap.servers: localhost:9092
    topic: numbers
checkpoint: /tmp/numbers
"""


def checked(text=GOOD, *overrides, **environment):
    return check(Document(text, "job.yaml", overrides), environment)


def mistakes(text=GOOD, *overrides, **environment):
    return job_files.mistakes(lambda: checked(text, *overrides, **environment))


def test_a_short_file_gets_the_defaults():
    configuration = checked()
    job = configuration.job
    assert (job.name, job.source.format, job.source.options) == ("numbers", "rate", {})
    assert (job.sink.mode, job.output_mode, job.warm_up) == ("foreach_batch", "append", False)
    assert (job.trigger, job.restart, job.metrics) == (None, None, None)
    assert job.stop_timeout_seconds == 60
    assert configuration.sink_options.topic == "numbers"


@pytest.mark.parametrize("null", ["", " null", " ~", " # none"])
@pytest.mark.parametrize("name", ["topic", "kafka.ssl.endpoint.identification.algorithm", "Topic"])
def test_an_option_without_a_value_is_a_mistake_and_not_dropped(name, null):
    # Dropped, it would have its default: only an empty algorithm switches the check off.
    text = GOOD.replace("topic: numbers", f"{name}:{null}")
    place = "sink.options." + name
    expected = f"{place}: has no value; leave it out, or write '' for an empty one"
    assert any(line.endswith(expected) and "job.yaml:8:5" in line for line in mistakes(text))


def _key_paths(data, path=()):
    for key, value in data.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _key_paths(value, (*path, key))


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_no_key_of_any_file_may_lack_its_value(file):
    text = file.read_text()
    for path in _key_paths(yaml.safe_load(text)):
        data = yaml.safe_load(text)
        *parents, key = path
        reduce(getitem, parents, data)[key] = None
        document = Document(yaml.safe_dump(data), "job.yaml")
        assert {m.path for m in document.mistakes if "has no value" in m.what} == {path}


def test_a_mapping_of_an_argument_may_not_lack_a_value_either():
    mistakes_of = Document(GOOD, "job.yaml", ["trigger={once: }"]).mistakes
    assert [str(m) for m in mistakes_of] == [
        "--set trigger: trigger.once: has no value; leave it out"
    ]


def test_options_are_the_text_that_was_written():
    text = GOOD + "warm_up: true\n"
    configuration = checked(text.replace("rate\n", "rate\n  options: {a: 010, b: yes, c: 1e3}\n"))
    assert configuration.job.source.options == {"a": "010", "b": "yes", "c": "1e3"}
    assert configuration.job.warm_up is True


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("{availableNow: true}", "available_now", True),
        ("{once: true}", "once", True),
        ("{processingTime: 1 minute 30 seconds}", "processing_time", "1 minute 30 seconds"),
        ("{processingTime: 0.5 seconds}", "processing_time", "0.5 seconds"),
        ("{processingTime: interval 1 week}", "processing_time", "interval 1 week"),
    ],
)
def test_triggers_have_sparks_names(text, name, expected):
    assert getattr(checked(f"{GOOD}trigger: {text}\n").job.trigger, name) == expected


def test_metrics_are_served_on_loopback_and_restarts_bounded_unless_the_file_says_otherwise():
    job = checked(f"{GOOD}metrics: {{port: 9464}}\nrestart: {{}}\n").job
    assert (job.metrics.port, job.metrics.address) == (9464, "127.0.0.1")
    assert (job.restart.attempts, job.restart.initial_backoff_seconds) == (10, 1)
    assert job.restart.max_backoff_seconds == 60
    metrics = checked(f"{GOOD}metrics: {{port: 9464, address: 10.0.0.7}}\n").job.metrics
    assert metrics.address == "10.0.0.7"


def test_topics_are_created_as_the_options_name_them():
    create = """  create_topics:
    topic: {partitions: 6, replication_factor: 3, config: {retention.ms: 86400000}}
    dead.letter.topic: {partitions: 1}
"""
    options = "    on.record.error: dead-letter\n    Dead.Letter.Topic: dead\n"
    created = checked(GOOD.replace("checkpoint:", options + create + "checkpoint:")).job.sink
    assert created.create_topics.topic.partitions == 6
    assert created.create_topics.topic.replication_factor == 3
    assert created.create_topics.topic.config == {"retention.ms": "86400000"}
    assert created.create_topics.dead_letter_topic.partitions == 1
    assert created.create_topics.dead_letter_topic.replication_factor is None


def test_a_topic_to_create_that_no_option_names_is_a_mistake():
    create = "  create_topics: {dead.letter.topic: {partitions: 1}}\n"
    (line,) = mistakes(GOOD.replace("checkpoint:", f"{create}checkpoint:"))
    what = "has an effect only with sink.options.dead.letter.topic"
    assert line == f"job.yaml:9:19: sink.create_topics.dead.letter.topic: {what}"


def test_topics_to_create_are_named_like_options():
    names = [field.alias or name for name, field in CreateTopics.model_fields.items()]
    assert names == list(CREATED)


def test_a_table_is_a_source():
    source = checked(GOOD.replace("format: rate", "table: db.numbers")).job.source
    assert (source.table, source.format) == ("db.numbers", None)


# --- mistakes -------------------------------------------------------------------------------------


def test_all_mistakes_are_in_one_message_in_the_order_of_the_file():
    text = """\
name: numbers
source:
  format: rate
  optoins: {}
sink:
  mode: formt
  options:
    kafka.bootstrap.servers: ${env:SERVERS}
    topic: a b
    kafka.linger.ms: soon
    kafka.lingr.ms: 5
    kafka.sasl.password: hunter2
output_mode: updat
trigger: {processingTime: soon}
warm_up: maybe
name: again
"""
    lines = mistakes(text)
    assert [line.split(": ")[:2] for line in lines] == [
        ["job.yaml:1:1", "checkpoint"],
        ["job.yaml:4:3", "source.optoins"],
        ["job.yaml:6:3", "sink.mode"],
        ["job.yaml:8:5", "sink.options.kafka.bootstrap.servers"],
        ["job.yaml:9:5", "sink.options.topic"],
        ["job.yaml:10:5", "sink.options.kafka.linger.ms"],
        ["job.yaml:11:5", "sink.options.kafka.lingr.ms"],
        ["job.yaml:12:5", "sink.options.kafka.sasl.password"],
        ["job.yaml:13:1", "output_mode"],
        ["job.yaml:14:11", "trigger.processingTime"],
        ["job.yaml:15:1", "warm_up"],
        ["job.yaml:16:1", "name"],
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: numbers\n", "",
         "job.yaml:1:1: name: is required: the query's name, also in Spark's"),
        ("name: numbers", "name:", "job.yaml:1:1: name: has no value; leave it out"),
        ("name: numbers", "name: ''", "job.yaml:1:1: name: is empty"),
        ("name: numbers", "name: [a]", "job.yaml:1:1: name: must be text"),
        ("sql:", "slq:", "slq: unknown key; did you mean sql? (allowed: name, source, sql, sink,"),
        ("format: rate", "formt: rate", "source.formt: unknown key; did you mean format? (allowed"),
        ("format: rate", "options: {}", "job.yaml:2:1: source: needs either format or table"),
        ("format: rate", "table: t\n  schema: a INT", "a table has its own schema"),
        ("source:\n  format: rate", "source: rate", "source: must be a mapping of keys to values"),
        ("topic: numbers", "kafka: {linger.ms: 5}",
         "sink.options.kafka: must be text; put JSON in quotes, '{...}', and write names in full"),
        ("format: rate", 'format: rate\n  options: {startingOffsets: {"t":{"0":null}}}',
         "job.yaml:4:13: source.options.startingOffsets: must be text; put JSON in quotes"),
        ("topic: numbers", "topic: !env TOPIC",
         "job.yaml:8:5: sink.options.topic: has a YAML tag, which is not supported; write ${env:N"),
        ("topic: numbers", "topic: !!binary bnVtYmVycw==", "job.yaml:8:5: sink.options.topic: has"),
        ("topic: numbers", "kafka.sasl.password: !hunter2",
         "job.yaml:8:5: sink.options.kafka.sasl.password: has a YAML tag, which is not supported"),
        ("source:\n", "source: !!set\n", "job.yaml:2:1: source: has a YAML tag"),
        ("topic: numbers", "!env topic: numbers", "job.yaml:8:5: sink.options: a key must be text"),
        ("topic: numbers", "topic: numbers\n    <<: &common {kafka.acks: all}",
         "job.yaml:9:5: sink.options.<<: merge keys are not supported; repeat the keys here"),
        ("topic: numbers", "? [a]\n    : b", "job.yaml:8:7: sink.options: a key must be text"),
        ("kafka.bootstrap.servers: localhost:9092\n    ", "",
         "kafka.bootstrap.servers is required"),
        ("sql:", "stop_timeout_seconds: -1\nsql:", "must be greater than or equal to 0"),
        ("sql:", "restart: {initial_backoff_seconds: soon}\nsql:",
         "restart.initial_backoff_seconds: must be a number"),
        ("sql:", "restart: {initial_backoff_seconds: 120}\nsql:",
         "restart: max_backoff_seconds=60 is less than initial_backoff_seconds=120"),
        ("checkpoint:", "  create_topics: {topic: {}}\ncheckpoint:",
         "sink.create_topics.topic.partitions: is required: how many partitions"),
        ("checkpoint:", "  create_topics: {topic: {partitions: 1, replicas: 3}}\ncheckpoint:",
         "unknown key (allowed: partitions, replication_factor, config)"),
        ("checkpoint:", "  create_topics: {other: {partitions: 1}}\ncheckpoint:",
         "sink.create_topics.other: unknown key (allowed: topic, dead.letter.topic, exactly.o"),
        ("sql:", "metrics: {port: http}\nsql:", "metrics.port: must be a whole number"),
        ("sql:", "trigger: {processingTime: 0.5 minutes}\nsql:", "is not an interval such as 10"),
        ("sql:", "trigger: {}\nsql:", "trigger: needs exactly one of availableNow"),
        ("sink:\n", "output_mode: update\nsink:\n  mode: format\n",
         "job.yaml:5:1: output_mode: Spark does not support update for Python sinks; set sink"),
        ("topic: numbers", "topic: ${env:A", "sink.options.topic: is not a reference of the form"),
        ("/tmp/numbers", "${env:A}", "checkpoint: the environment variable A is not set"),
        ("format: rate", "format: ${env:A}", "source.format: the environment variable A is not"),
        ("sql:", "trigger: {processingTime: '${env:A}'}\nsql:", "trigger.processingTime: the env"),
        ("sql:", "restart: {initial_backoff_seconds: '${env:A}', max_backoff_seconds: 0.5}\nsql:",
         "restart.initial_backoff_seconds: the environment variable A is not set"),
        ("topic: numbers", "topic: ${env:A}\n  create_topics: {topic: {partitions: 1}}",
         "sink.options.topic: the environment variable A is not set"),
        ("/tmp/numbers", "${env:EMPTY}", "checkpoint: the environment variable EMPTY is empty"),
        ("/tmp/numbers", "${file:/no}", "the file /no cannot be read: No such"),
    ],
)  # fmt: skip
def test_a_mistake_says_where_it_is_and_what_is_allowed(old, new, expected):
    assert old in GOOD
    (line,) = mistakes(GOOD.replace(old, new, 1), EMPTY="")
    assert expected in line


def test_a_tag_that_changes_nothing_is_accepted():
    job = checked(GOOD.replace("topic: numbers", "topic: !!str 7\n    '<<': 1")).job
    assert job.sink.options["topic"] == "7"


def test_a_file_with_several_sinks_says_to_write_several_files():
    (line,) = mistakes(GOOD.replace("sink:", "sinks:") + "on_failure: stop_all\n")
    assert line.startswith("job.yaml:5:1: sinks: a job has one sink: write a file for each")


def test_an_option_that_differs_only_in_case_is_there_a_second_time():
    text = GOOD.replace("topic: numbers", "topic: numbers\n    Topic: others")
    text = text.replace("format: rate", "format: rate\n  options: {path: /a, PATH: /b}")
    assert mistakes(text) == [
        "job.yaml:4:23: source.options.PATH: already set at job.yaml:4:13 as path; keep one",
        "job.yaml:10:5: sink.options.Topic: already set at job.yaml:9:5 as topic; keep one",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "job.yaml:1:6: not YAML: while parsing a flow sequence, expected"),
        ("a: {b: ${env:C}}", "flow mapping, expected ',' or '}', but got '{'"),
        ("a:\n- b\nc\n- d", "not YAML: while scanning a simple key, could not find expected"),
        ("a: \x00", "job.yaml:1:1: not YAML: character 4 is not allowed"),
        ("a: 1\n---\nb: 2", "not YAML: expected a single document in the stream"),
        ("", "job.yaml:1:1: the file must be a mapping of keys"),
        ("name: &a {b: *a}", "nested too deeply"),
    ],
)
def test_what_is_not_a_mapping_in_yaml_is_rejected_with_its_line(text, expected):
    assert any(expected in line for line in mistakes(text))


def test_a_password_that_yaml_reads_as_an_alias_is_not_shown():
    (line,) = mistakes(GOOD.replace("topic:", "kafka.sasl.password: *hunter2\n    topic:"))
    assert line == "job.yaml:8:26: not YAML: found undefined alias"


def test_a_missing_file_is_a_mistake(tmp_path):
    with pytest.raises(InvalidConfiguration, match=r"no\.yaml: the file cannot be read: No such"):
        load(tmp_path / "no.yaml")


def test_no_mistake_is_reported_that_is_only_the_consequence_of_another():
    options = """\
    kafka.security.protocol: SASL_SSL
    kafka.sasl.mechanism: ${env:MECHANISM}
    kafka.sasl.username: u
    kafka.sasl.password: ${env:PASSWORD}
    kafka.enable.idempotence: fasle
    kafka.acks: 1
"""
    lines = mistakes(GOOD.replace("    topic: numbers\n", options))
    names = ["sasl.mechanism", "sasl.password", "enable.idempotence"]
    assert [line.split(": ")[1] for line in lines] == [f"sink.options.kafka.{n}" for n in names]


# --- secrets --------------------------------------------------------------------------------------

JAAS = 'PlainLoginModule required username="u" password="hunter2";'


def add_login(secret):
    login = f"kafka.security.protocol: SASL_SSL\n    kafka.sasl.mechanism: PLAIN\n    {secret}"
    return GOOD.replace("topic: numbers", f"topic: numbers\n    {login}")


def test_a_secret_comes_from_the_environment_and_shows_in_no_repr():
    text = add_login("kafka.sasl.jaas.config: ${env:JAAS}")
    configuration = checked(text, JAAS=JAAS)
    assert configuration.job.sink.options["kafka.sasl.jaas.config"] == JAAS
    assert isinstance(configuration.job.sink.options["kafka.sasl.jaas.config"], Secret)
    assert "hunter2" not in repr(configuration)
    assert configuration.sink_options.producer.client["sasl.password"] == "hunter2"


def test_a_secret_comes_from_a_file_without_its_last_line_break(tmp_path):
    file = tmp_path / "jaas"
    file.write_text(f"{JAAS}\n")
    text = add_login(f"kafka.sasl.jaas.config: ${{file:{file}}}")
    assert checked(text).job.sink.options["kafka.sasl.jaas.config"] == JAAS
    file.write_text(" pass \n")
    text = add_login(f"kafka.sasl.username: me\n    kafka.sasl.password: ${{file:{file}}}")
    assert checked(text).sink_options.producer.client["sasl.password"] == " pass "
    file.write_text("pass", encoding="utf-8-sig")  # with a byte order mark, as Windows writes it
    assert checked(text).sink_options.producer.client["sasl.password"] == "pass"


@pytest.fixture
def databricks(monkeypatch):
    """As on Databricks: PySpark has dbutils, and there is a session."""
    module = ModuleType("pyspark.dbutils")
    module.DBUtils = DBUtils
    monkeypatch.setitem(sys.modules, "pyspark.dbutils", module)
    monkeypatch.setattr(DBUtils, "known", {"kafka": {"user": "u", "jaas": JAAS, "empty": ""}})
    session = SimpleNamespace(getOrCreate=lambda: "the session")
    monkeypatch.setattr(SparkSession, "builder", session)


def test_a_secret_comes_from_a_scope_of_databricks(databricks):
    configuration = checked(add_login("kafka.sasl.jaas.config: ${secrets:kafka/jaas}"))
    assert configuration.job.sink.options["kafka.sasl.jaas.config"] == JAAS
    assert configuration.sink_options.producer.client["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(configuration)


def test_what_comes_from_a_scope_is_secret_wherever_it_stands(databricks):
    text = GOOD.replace(
        "topic: numbers", "topic: numbers\n    kafka.client.id: ${secrets:kafka/user}"
    )
    options = checked(text).job.sink.options
    assert options["kafka.client.id"] == "u"
    assert isinstance(options["kafka.client.id"], Secret)


@pytest.mark.parametrize(
    ("reference", "what"),
    [
        (
            "kafka/no",
            "Databricks does not return the secret: Secret does not exist with scope: kafka",
        ),
        ("kafka/empty", "the secret kafka/empty is empty"),
        ("kafka", "is not a reference of the form ${env:NAME}"),
    ],
)
def test_a_secret_that_a_scope_does_not_have_is_a_mistake(reference, what, databricks):
    (line,) = mistakes(add_login(f"kafka.sasl.jaas.config: ${{secrets:{reference}}}"))
    assert line.startswith(f"job.yaml:11:5: sink.options.kafka.sasl.jaas.config: {what}")


def test_outside_databricks_a_reference_to_a_scope_says_what_to_write():
    (line,) = mistakes(add_login("kafka.sasl.jaas.config: ${secrets:kafka/jaas}"))
    assert "works only on Databricks" in line
    assert line.endswith("write ${env:NAME} or ${file:PATH} here")


@pytest.mark.parametrize(
    "line",
    [
        "kafka.sasl.password: hunter2",
        "kafka.SASL.Password: hunter2",
        "kafka.sasl.password: ${env:USER}hunter2",
        f"kafka.sasl.jaas.config: '{JAAS}'",
        "kafka.sasl.jaas.config: '" + JAAS.replace('"u"', '"${env:USER}"') + "'",
    ],
)
def test_a_secret_that_is_written_out_is_rejected_and_not_shown(line):
    (line,) = mistakes(add_login(line), USER="u")
    assert "is a secret: write ${env:NAME}, ${file:PATH} or, on Databricks, ${secrets:" in line
    assert "hunter2" not in line


def test_a_secret_in_set_is_rejected_and_not_shown():
    (line,) = mistakes(GOOD, "sink.options.kafka.sasl.password=hunter2")
    assert line.startswith("--set sink.options.kafka.sasl.password: sink.options.kafka.sasl.pass")
    assert "is a secret" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("name", ["Bearer.Auth.Token", "bearer.auth.client.secret", "proxy"])
def test_secrets_of_the_schema_registry_are_rejected_too(name):
    registry = f"""topic: numbers
    value.format: avro
    schema.registry.url: https://registry
    schema.registry.{name}: """
    secret = "socks5://u:hunter2@proxy" if name == "proxy" else "hunter2"
    text = GOOD.replace("topic: numbers", registry + secret)
    (line,) = mistakes(text)
    assert f"sink.options.schema.registry.{name}: is a secret" in line
    assert "hunter2" not in line
    configuration = checked(text.replace(secret, "${env:P}"), P=secret)
    assert configuration.job.sink.options[f"schema.registry.{name}"] == secret
    assert "hunter2" not in repr(configuration.job)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "kafka.sasl.jaas.config",
        "fs.s3a.access.key",
        "eventhubs.connectionString",
        "fs.azure.account.key.example.dfs.core.windows.net",
        "credentials",
        "pem_private_key",
    ],
)
def test_the_sources_secrets_are_rejected_too(name):
    text = GOOD.replace("format: rate", f"format: rate\n  options: {{{name}: hunter2}}")
    (line,) = mistakes(text)
    assert f"source.options.{name}: is a secret" in line
    assert "hunter2" not in line
    configuration = checked(text.replace("hunter2", "'${env:P}'"), P="hunter2")
    assert configuration.job.source.options == {name: "hunter2"}
    assert "hunter2" not in repr(configuration)


@pytest.mark.parametrize(
    "name", ["fs.s3a.aws.credentials.provider", "credentialsFile", "serviceCredential"]
)
def test_the_name_of_a_secret_is_no_secret(name):
    text = GOOD.replace("format: rate", f"format: rate\n  options: {{{name}: example}}")
    assert checked(text).job.source.options == {name: "example"}


def test_the_endpoint_of_tokens_is_no_secret():
    text = GOOD.replace(
        "format: rate",
        "format: kafka\n  options: {kafka.sasl.oauthbearer.token.endpoint.url: 'https://x'}",
    )
    assert checked(text).job.source.format == "kafka"


def test_a_secret_in_a_wrong_place_is_not_shown():
    text = GOOD.replace("sql:", "warm_up: ${env:P}\noutput_mode: ${env:P}\nsql:")
    assert not any("hunter2" in line for line in mistakes(text, P="hunter2"))


def test_references_may_stand_inside_a_text_but_sql_is_left_alone():
    text = GOOD.replace("localhost:9092", "${env:HOST}:9092").replace("string(value)", "'${env:X}'")
    configuration = checked(text, HOST="kafka")
    assert configuration.job.sink.options["kafka.bootstrap.servers"] == "kafka:9092"
    assert configuration.job.sql == "SELECT '${env:X}' AS value FROM source"


# --- --set ----------------------------------------------------------------------------------------


def test_set_replaces_and_adds():
    configuration = checked(
        GOOD,
        "sink.options.topic=others",
        "sink.options.kafka.linger.ms=7",
        "source.options.rowsPerSecond=2",
        "sink.mode=format",
        "trigger={availableNow: true}",
        "sql=SELECT 'a=b' AS value FROM source",
    )
    assert configuration.sink_options.topic == "others"
    assert configuration.sink_options.producer.client["linger.ms"] == "7"
    assert configuration.job.source.options == {"rowsPerSecond": "2"}
    assert configuration.job.sink.mode == "format"
    assert configuration.job.trigger.available_now
    assert configuration.job.sql == "SELECT 'a=b' AS value FROM source"


@pytest.mark.parametrize("option", ["source.options.startingOffsets", "sink.options.value.schema"])
def test_an_option_that_is_set_to_json_is_text(option):
    data = Document(GOOD, "job.yaml", [f'{option}={{"t":{{"0":5}}}}', "sql={a: b}"]).data
    section, _, name = option.split(".", 2)
    assert data[section]["options"][name] == '{"t":{"0":5}}'
    assert data["sql"] == "{a: b}"


def test_set_reaches_topics_to_create_and_their_settings():
    create = ["sink.options.on.record.error=dead-letter", "sink.options.dead.letter.topic=dead"]
    create += [
        "sink.create_topics.topic={partitions: 6}",
        "sink.create_topics.topic.config.retention.ms=7",
        "sink.create_topics.topic.config.cleanup.policy=delete",
        "sink.create_topics.dead.letter.topic.partitions=3",
    ]
    created = checked(GOOD, *create).job.sink.create_topics
    assert created.topic.partitions == 6
    assert created.topic.config == {"retention.ms": "7", "cleanup.policy": "delete"}
    assert created.dead_letter_topic.partitions == 3


def test_set_replaces_an_option_that_differs_only_in_case():
    configuration = checked(GOOD, "sink.options.Topic=others", "sink.options.TOPIC=numbers2")
    assert configuration.job.sink.options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "TOPIC": "numbers2",
    }


@pytest.mark.parametrize(
    ("written", "instead", "override"),
    [
        ("rate", "''", "source.format=rate"),
        ("topic: numbers", "Topic:", "sink.options.topic=numbers"),
        ("topic: numbers", "topic: a\n    Topic: b", "sink.options.topic=numbers"),
        ("format: rate", "format:\n  <<: x", "source={format: rate}"),
        ("checkpoint: /tmp/numbers", "checkpoint:", "checkpoint=/tmp/numbers"),
        ("name: numbers", "name: !env x", "name=numbers"),
    ],
)
def test_set_repairs_a_mistake(written, instead, override):
    job = checked(GOOD.replace(written, instead), override).job
    assert job == checked(GOOD).job


def test_set_repairs_only_what_it_replaces():
    text = GOOD.replace("topic: numbers", "topic:\n    topics:")
    (line,) = mistakes(text, "sink.options.topic=numbers")
    assert line.startswith("job.yaml:9:5: sink.options.topics: has no value")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "sink.options.topic=a b",
            "--set sink.options.topic: sink.options.topic: topic='a b' is not",
        ),
        ("sink.mod=format", "--set sink.mod: sink.mod: unknown key; did you mean mode?"),
        ("name.first=x", "--set name.first: name.first: name is not a mapping"),
        ("sink.create_topics.dead.x=1", "sink.create_topics.dead: unknown key"),
        ("sink.create_topics.topicx.partitions=1", "sink.create_topics.topicx: unknown key"),
        ("trigger={once", "--set trigger: not YAML"),
        ("sink.mode", "--set: write --set KEY=VALUE"),
    ],
)
def test_a_mistake_in_set_names_it(override, expected):
    (line,) = mistakes(GOOD, override)
    assert expected in line


def test_every_tag_that_yaml_gives_to_a_plain_text_is_accepted():
    """ "yaml" is that of indicators, which cannot stand alone in a document."""
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.values()
    given = {tag for resolver in resolvers for tag, _ in resolver}
    loader = yaml.SafeLoader
    given |= {loader.DEFAULT_SCALAR_TAG, loader.DEFAULT_SEQUENCE_TAG, loader.DEFAULT_MAPPING_TAG}
    assert given - _TAGS == {"tag:yaml.org,2002:yaml"}

from __future__ import annotations

import pickle
import re
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.added_settings import transactional
from spark_kafka_sink.config.option_table import ONLY_WITH_REGISTRY, OPTIONS
from spark_kafka_sink.config.options import (
    SinkOptions,
    check_batch_id,
    check_for_format,
    parse,
)
from spark_kafka_sink.config.producer_options import BlockBudget, ExactlyOnceOptions, RackOptions
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.producer.engine import process_rack
from spark_kafka_sink.report.storage import local_path

SERVERS = {"kafka.bootstrap.servers": "host:9092"}
EXACTLY_ONCE = {
    **SERVERS,
    "topic": "t",
    "delivery.guarantee": "exactly-once",
    "exactly.once.partitions": "4",
}
AVRO = {
    **SERVERS,
    "key.format": "json",
    "value.format": "avro",
    "schema.registry.url": "http://registry:8081",
}


def parsed(**options: object) -> SinkOptions:
    return parse({**SERVERS, **options})


def rejection(**options: str) -> str:
    with pytest.raises(InvalidOption) as raised:
        parsed(**options)
    return str(raised.value)


def test_bootstrap_servers_alone_are_enough():
    options = parsed()
    assert options.topic is None
    assert options.values[table.CLOSE_TIMEOUT_MS] == 30_000
    assert options.producer.buffer_memory_bytes == 67_108_864
    assert options.producer.budget == BlockBudget(60_000, True, 60_000)
    assert options.values[table.PREFLIGHT]
    assert options.values[table.PRODUCER_CACHE_TIMEOUT] == 600_000
    assert options.values[table.BATCH_ID] is None
    assert options.producer.client["bootstrap.servers"] == "host:9092"


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.default], ids=lambda o: o.name)
def test_documented_default_is_the_real_one(option):
    needs = {
        "kafka.max.block.metadata.ms": {"kafka.max.block.ms.include.metadata": "false"},
        "driver.max.rows": {"send.from": "driver"},
        "exactly.once.first.batch": EXACTLY_ONCE,
        "kafka.transaction.timeout.ms": EXACTLY_ONCE,
        **{needing.name: AVRO for needing in ONLY_WITH_REGISTRY},
    }
    others = needs.get(option.name, {})
    assert parsed(**others, **{option.name: option.default}) == parsed(**others)


@pytest.mark.parametrize(
    ("options", "seconds", "metadata_option"),
    [
        ({"max.block.ms": "250"}, (0.25, 0.25), "max.block.ms"),
        ({"max.block.ms.include.metadata": "FALSE"}, (60, 60), "max.block.metadata.ms"),
        (
            {
                "max.block.ms": "1000",
                "max.block.ms.include.metadata": "false",
                "max.block.metadata.ms": "5000",
            },
            (1, 5),
            "max.block.metadata.ms",
        ),
        ({"max.block.ms": "0", "max.block.metadata.ms": "5000"}, (0, 5), "max.block.metadata.ms"),
    ],
)
def test_metadata_shares_the_budget_of_a_send_or_has_its_own(options, seconds, metadata_option):
    budget = parsed(**{f"kafka.{name}": value for name, value in options.items()}).producer.budget
    assert (budget.buffer_seconds, budget.metadata_seconds) == seconds
    assert budget.metadata_option == f"kafka.{metadata_option}"


def test_a_budget_for_metadata_without_effect_is_rejected():
    assert rejection(**{"kafka.max.block.metadata.ms": "5000"}) == (
        "kafka.max.block.metadata.ms has an effect only with "
        "kafka.max.block.ms.include.metadata=false or kafka.max.block.ms=0; "
        "set one of them, or remove it"
    )


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("30s", 30_000), ("10m", 600_000), ("2 min", 120_000), ("1h", 3_600_000)],
)
def test_times_have_units(text, milliseconds):
    options = parsed(**{"producer.cache.timeout": text})
    assert options.values[table.PRODUCER_CACHE_TIMEOUT] == milliseconds


@pytest.mark.parametrize("text", ["10", "m", "-1s", "1d", "1.5h"])
def test_a_time_without_a_unit_or_of_another_form_is_rejected(text):
    with pytest.raises(InvalidOption, match="is not a duration such as 30s, 10m or 1h"):
        parsed(**{"producer.cache.timeout": text})


@pytest.mark.parametrize(
    "name", ["preflight", "kafka.max.block.ms.include.metadata", "includeHeaders"]
)
def test_a_switch_that_is_neither_on_nor_off_is_rejected(name):
    with pytest.raises(InvalidOption, match=f"{name}='yes' is neither true nor false"):
        parsed(**{name: "yes"})


@pytest.mark.parametrize("servers", [",", " , ,"])
def test_bootstrap_servers_have_to_name_one(servers):
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers=.* names no server; write"):
        parse({"kafka.bootstrap.servers": servers})


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        *((f"a:1{blank},{blank}b:2{blank}", "a:1,b:2")
          for blank in (" ", "\n", "\t", "\r\n", "\xa0", "\u2003", "\u200b", "\ufeff")),
        ("\n  a:1,\n\n  b:2,\n", "a:1,b:2"),
        (",a:1,,b:2, ,", "a:1,b:2"),
        ("a:1,b:2,a:1", "a:1,b:2"),
        ("SASL_SSL://a:1,kafka://b:2,FOO+x.1://c:3,http://d:4", "a:1,b:2,c:3,d:4"),
        ("a_b-c.example:1", "a_b-c.example:1"),
        ("a:00001,b:65535", "a:1,b:65535"),
        ("a,[::1]", "a:9092,[::1]:9092"),
        ("[::1]:1,SSL://[fe80::1%eth0]:2,2001:db8::1:3,[a]:4",
         "[::1]:1,[fe80::1%eth0]:2,[2001:db8::1]:3,a:4"),
    ],
)  # fmt: skip
def test_servers_are_read_as_java_reads_them(text, servers):
    client = parse({"kafka.bootstrap.servers": text}).producer.client
    assert client["bootstrap.servers"] == servers


@pytest.mark.parametrize(
    "server",
    ["a:b", "a:", ":1", "a:0", "a:65536", "a:123456", "a:-1", "a:\u0663", "a :1", "a: 1", "a:1 b:2",
     "a:1\nb:2", "a:1;b:2", "a;b", "a|b", "a:1:b:2", "[a:1]", "['a:1']", '"a:1"', "'a:1'", "{a:1}",
     "a:1/chroot", "http://a:1/", "//a:1", "://a:1", "x://y://a:1", "1x://a:1", "::1", "[::1",
     "a b", "m\xfcnchen.example:1", "a\x00:1", "9092"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["{}", "good:1, {},other:2"])
def test_a_malformed_server_is_named(form, server):
    with pytest.raises(InvalidOption) as raised:
        parse({"kafka.bootstrap.servers": form.format(server)})
    assert str(raised.value) == (
        f"kafka.bootstrap.servers={server!r} is not of the form host:port, with a port from 1 to "
        "65535; write host:port, host:port, ..."
    )


@pytest.mark.parametrize(
    "secret",
    ["user:geheim@a:1", "SASL_SSL://user:geheim@a:1", "user:ge,heim@a:1", "a:1,user:geheim@",
     "Endpoint=sb://a.example/;SharedAccessKey=geheim="],
)  # fmt: skip
def test_credentials_among_the_servers_are_not_shown(secret):
    with pytest.raises(InvalidOption) as raised:
        parse({"kafka.bootstrap.servers": secret})
    assert str(raised.value) == (
        "kafka.bootstrap.servers=[hidden] is not a list of servers: it contains @ or =, so it may "
        "contain a secret; write host:port, host:port, ..., and set a login with kafka.sasl.*"
    )


@pytest.mark.parametrize("options", [{}, {"kafka.bootstrap.servers": "  "}, {"topic": "a"}])
def test_bootstrap_servers_are_required(options):
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers is required"):
        parse(options)


def test_given_values_replace_defaults():
    options = parsed(
        **{
            "topic": " flights ",
            "close.timeout.ms": "0",
            "kafka.buffer.memory": "1048576",
            "kafka.max.block.ms": " 250 ",
            "batch.id": "7",
            "kafka.linger.ms": "20",
        }
    )
    assert options.topic == "flights"
    assert options.values[table.CLOSE_TIMEOUT_MS] == 0
    assert options.producer.buffer_memory_bytes == 1_048_576
    assert options.producer.budget.max_block_ms == 250
    assert options.values[table.BATCH_ID] == 7
    assert options.producer.client["linger.ms"] == "20"


@pytest.mark.parametrize("name", ["kafka.metadata.evict.ms", "kafka.metadata.max.idle.ms"])
def test_an_option_may_have_java_name(name):
    assert parsed(**{name: "2000"}).producer.lifetime.evict_ms == 2000
    assert parsed(**{name: "2"}).warnings == (
        f"{name}=2 is not between 1000 and 2147483647; 1000 applies",
    )


def test_two_names_of_an_option_must_agree():
    both = {"kafka.metadata.evict.ms": "2000", "kafka.metadata.max.idle.ms": " 2000"}
    assert parsed(**both).producer.lifetime.evict_ms == 2000
    assert rejection(**both | {"kafka.metadata.evict.ms": "3000"}) == (
        "kafka.metadata.evict.ms and kafka.metadata.max.idle.ms set the same option; remove one"
    )


def test_limits_of_this_sink_are_not_passed_to_the_client():
    client = parsed(**{"kafka.buffer.memory": "1048576", "kafka.max.block.ms": "1"}).producer.client
    assert not {"buffer.memory", "max.block.ms", "topic"} & set(client)


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_names_are_read_in_any_case(change):
    options = {**SERVERS, "topic": "a", "close.timeout.ms": "5", "kafka.linger.ms": "20"}
    assert parse({change(name): value for name, value in options.items()}) == parse(options)


@pytest.mark.parametrize("name", ["checkpointLocation", "checkpointlocation", "queryName", "path"])
def test_options_that_spark_passes_to_every_sink_are_ignored(name):
    assert parsed(**{name: "anything"}) == parsed()


@pytest.mark.parametrize("value", ["true", "False"])
def test_include_headers_is_accepted_without_effect(value):
    assert parsed(includeHeaders=value).producer == parsed().producer


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("topik", "topic"),
        ("topics", "topic"),
        ("closeTimeoutMs", "close.timeout.ms"),
        ("Close_Timeout_Ms", "close.timeout.ms"),
        ("dead-letter-topic", "dead.letter.topic"),
        ("on.record.errors", "on.record.error"),
        ("kafka-linger-ms", "kafka.linger.ms"),
        ("truststore.location", "kafka.ssl.truststore.location"),
        ("kafka.linger.mss", "kafka.linger.ms"),
        ("kafka.lingers.ms", "kafka.linger.ms"),
        ("kafka.linger", "kafka.linger.ms"),
        ("kafka.lingerMs", "kafka.linger.ms"),
        ("kafka.producer.acks", "kafka.acks"),
        ("kafka.kafka.acks", "kafka.acks"),
        ("kafka.compresion.type", "kafka.compression.type"),
        ("kafka.sasl.jaas.conf", "kafka.sasl.jaas.config"),
        ("kafka.truststore.location", "kafka.ssl.truststore.location"),
        ("kafka.ssl.truststore", "kafka.ssl.truststore.location"),
        ("kafka.ssl.keystore", "kafka.ssl.keystore.location"),
        ("kafka.lient.rack", "kafka.client.rack"),
        ("kafka.max.blok.ms", "kafka.max.block.ms"),
        ("kafka.metadata.max.idle", "kafka.metadata.max.idle.ms"),
        ("kafka.close.timeout.ms", "close.timeout.ms"),
    ],
)
def test_a_misspelt_option_is_rejected_with_the_right_name(name, meant):
    message = rejection(**{name: "a"})
    assert message == f"{name}: it is no option of this sink; did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("bootstrap_servers", "not an option of this sink"),
        ("kafka.topic", "Kafka's producer has no such setting"),
    ],
)
def test_what_looks_like_a_slip_is_ignored_beside_the_right_option(name, owner):
    options = {"kafka.bootstrap.servers": "a:1", "topic": "a"}
    (warning,) = parse({**options, name: "b"}).warnings
    assert warning.endswith(f"{name} ({owner})")


def test_settings_of_serializers_are_meant_for_this_sink_only_with_a_format():
    url = {"kafka.schema.registry.url": "http://r:8081"}
    options = {"kafka.bootstrap.servers": "a:1", **url}
    assert "serializers for a schema registry" in parse(options).warnings[0]
    assert "did you mean schema.registry.url?" in rejection(**url, **{"value.format": "avro"})


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("kafka.group.id", "Kafka's consumer"),
        ("kafka.session.timeout.ms", "Kafka's consumer"),
        ("kafka.consumer.acks", "Kafka's consumer"),
        ("kafka.admin.retries", "Kafka's admin client"),
        ("kafka.retention.ms", "topics"),
        ("kafka.default.replication.factor", "Kafka's brokers"),
        ("kafka.sasl.aws.secretAccessKey", "Kafka's producer has no such setting"),
        ("kafka.ssl.protocol", "Java's TLS; this client uses OpenSSL"),
        ("kafka.compression.gzip.level", "compression.type is none"),
        ("kafka.metric.reporters", "Java's metrics"),
        ("kafka.sasl.login.refresh.window.factor", "tunes only Java's client"),
        ("startingOffsets", "Spark's Kafka source"),
        ("failOnDataLoss", "Spark's Kafka source"),
        ("truncate", "Spark's console"),
        ("acks", "the names of the Kafka client's settings begin with kafka."),
        ("group.id", "Kafka's consumer"),
        ("value.serializer", "the names of the Kafka client's settings begin with kafka."),
        ("flushInterval", "not an option of this sink"),
        ("batchId", "not an option of this sink"),
        ("zzz", "not an option of this sink"),
        ("format", "not an option of this sink"),
        ("schema", "not an option of this sink"),
        ("zookeeper.connect", "Kafka's brokers"),
        ("kafka.auto.create.topics", "Kafka's producer has no such setting"),
        ("kafka.transaction.timeout.ms", "only with delivery.guarantee=exactly-once"),
    ],
)  # fmt: skip
def test_what_spark_or_java_ignores_is_ignored_and_said(name, owner):
    options = parsed(**{name: "30000"})
    assert options.warnings == (f"these options have no effect on this sink: {name} ({owner})",)
    assert options.producer == parsed().producer


def test_one_warning_names_all_that_is_ignored():
    options = parsed(
        **{
            "kafka.group.id": "g",
            "subscribe": "t",
            "kafka.auto.offset.reset": "earliest",
            "online_ingestion_options": {"a": 1},
            "kafka.acks": "1",
        }
    )
    ignored, acks = options.warnings
    assert ignored == (
        "these options have no effect on this sink: kafka.group.id, kafka.auto.offset.reset "
        "(Kafka's consumer); subscribe (Spark's Kafka source); online_ingestion_options (not an "
        "option of this sink)"
    )
    assert acks.startswith("kafka.acks=1 switches idempotence off, as in Java: records may be lost")


def test_everything_that_is_wrong_is_said_at_once_under_the_names_as_they_were_typed():
    message = rejection(
        **{
            "kafka.Producer.Acks": "all",
            "Kafka.Linger.Ms": "soon",
            "kafka.request.required.acks": "most",
            "Dead.Letter.Topic": "a b",
            "topic": ["t"],
        }
    )
    assert message.startswith("the options have 5 mistakes: (1) ")
    for sentence in (
        "kafka.Producer.Acks: it is no option of this sink; did you mean kafka.acks?",
        "Kafka.Linger.Ms='soon' is invalid; allowed: 0 .. 900000",
        "kafka.request.required.acks='most' is invalid; allowed: all, -1, 0, 1",
        "Dead.Letter.Topic='a b' is not a valid topic name",
        "the value of topic is of type list",
    ):
        assert sentence in message


def test_a_name_without_a_dot_does_not_replace_a_word_of_a_message():
    message = rejection(TOPIC="t", If="x", **{"on.record.error": "dead-letter"})
    assert "needs dead.letter.topic: the topic for rejected records" in message
    (_, acks) = parsed(If="x", A="y", **{"kafka.acks": "1"}).warnings
    assert "records may be lost if a broker fails" in acks


def test_a_contradiction_does_not_hide_the_others():
    message = rejection(
        **{"value.format": "avro", "kafka.enable.idempotence": "true", "kafka.acks": "1"}
    )
    assert message.startswith("the options have 2 mistakes")
    assert "value.format=avro needs schema.registry.url" in message
    assert "kafka.enable.idempotence=true needs kafka.acks=all, not 1" in message


def test_what_another_mistake_may_explain_is_no_contradiction():
    wrong = {"kafka.delivery.timeout.ms": "20000", "kafka.request.timeout.ms": "10s"}
    assert rejection(**wrong).startswith("kafka.request.timeout.ms='10s' is invalid")


def test_contradictions_are_said_together_too():
    message = rejection(
        **{
            "on.record.error": "dead-letter",
            "kafka.partitioner.rack.aware": "true",
            "kafka.max.block.metadata.ms": "5",
            "kafka.enable.idempotence": "true",
            "kafka.acks": "1",
        }
    )
    assert message.startswith("the options have 4 mistakes")
    for sentence in (
        "needs dead.letter.topic",
        "needs kafka.client.rack",
        "kafka.max.block.metadata.ms has an effect only with",
        "kafka.enable.idempotence=true needs kafka.acks=all, not 1",
    ):
        assert sentence in message


def test_no_mistake_is_said_that_is_only_the_consequence_of_another():
    message = rejection(**{"on.record.error": "dead-letter", "dead-letter-topic": "t"})
    assert message.startswith("dead-letter-topic: it is no option")
    assert "needs" not in message


def test_without_servers_the_other_mistakes_are_said_too():
    with pytest.raises(InvalidOption) as raised:
        parse({"bootstrap.servers": "host:9092", "topik": "t", "kafka.acks": "2"})
    message = str(raised.value)
    assert message.startswith("the options have 3 mistakes")
    assert "bootstrap.servers without kafka. has no effect" in message
    assert "did you mean topic?" in message
    assert "kafka.acks='2' is invalid" in message


def test_what_would_change_a_login_is_not_ignored():
    assert "docs/databricks.md" in rejection(**{"databricks.serviceCredential": "c"})
    hint = "basic.auth.user.info: it is no option of this sink; did you mean schema.registry.basic"
    registry = {name: value for name, value in AVRO.items() if name not in SERVERS}
    assert rejection(**registry, **{"basic.auth.user.info": "u:p"}).startswith(hint)


@pytest.mark.parametrize(
    ("name", "value", "applies"),
    [
        ("kafka.max.block.ms", str(2**63 - 1), 2**31 - 1),
        ("kafka.max.block.metadata.ms", "2147483648", 2**31 - 1),
        ("kafka.metadata.max.age.ms", "0", 1),
        ("kafka.buffer.memory", "16384", 1_048_576),
        ("kafka.buffer.memory", "+1048577", 1_048_577),
        ("kafka.buffer.memory", str(2**63 - 1), 2**31 * 1024 - 1024),
    ],
)
def test_javas_wider_ranges_are_accepted_at_the_nearest_value(name, value, applies):
    others = {"kafka.max.block.ms.include.metadata": "false"} if "metadata.ms" in name else {}
    options = parsed(**others, **{name: value})
    assert options.values.by_name[name] == applies
    is_limit = int(value) >= 2**31 - 1
    assert bool(options.warnings) is (int(value) != applies and not is_limit)


def test_a_batch_size_that_the_buffer_lowers_is_warned_of():
    options = parsed(**{"kafka.buffer.memory": "33554432", "kafka.batch.size": "2097153"})
    assert options.producer.client["batch.size"] == "2097152"
    (warning,) = options.warnings
    assert warning == (
        "kafka.batch.size=2097153 is more than a sixteenth of kafka.buffer.memory=33554432; "
        "2097152 applies"
    )
    assert parsed(**{"kafka.batch.size": "2097152"}).warnings == ()
    assert parsed(**{"kafka.buffer.memory": "1048576"}).warnings == ()


@pytest.mark.parametrize("text", ["", "abc", "1.5", "10s", "1e3"])
@pytest.mark.parametrize(
    "name", ["close.timeout.ms", "kafka.buffer.memory", "kafka.max.block.ms", "batch.id"]
)
def test_text_that_is_no_whole_number_is_rejected(name, text):
    assert rejection(**{name: text}) == f"{name}={text!r} is not a whole number"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("close.timeout.ms", "-1", "0 and 2147483647"),
        ("close.timeout.ms", "2147483648", "0 and 2147483647"),
        ("kafka.max.block.ms", "-1", "0 and 2147483647"),
        ("kafka.buffer.memory", "-1", "1048576 and 2199023254528"),
        ("batch.id", "-1", "0 and 9223372036854775807"),
    ],
)
def test_number_out_of_range_is_rejected_with_the_range(name, value, allowed):
    assert rejection(**{name: value}) == f"{name}={value} is not between {allowed}"


def test_the_buffer_has_room_for_the_largest_record():
    too_large = {"kafka.max.request.size": "104857600"}
    options = parsed(**too_large)
    assert options.producer.buffer_memory_bytes == 104_857_600
    assert options.warnings == ()
    options = parsed(**too_large, **{"kafka.buffer.memory": "33554432"})
    assert options.producer.buffer_memory_bytes == 104_857_600
    assert options.warnings == (
        (
            "kafka.buffer.memory=33554432 is less than kafka.max.request.size=104857600; 104857600 "
            "applies to both"
        ),
    )


@pytest.mark.parametrize("topic", ["a", "A.b_c-1", "...", "a" * 249])
def test_topic_name_that_kafka_allows_is_accepted(topic):
    assert parsed(topic=topic).topic == topic


@pytest.mark.parametrize("topic", ["", " ", ".", "..", "a b", "a/b", "é", "a\0", "a" * 250])
def test_topic_name_that_kafka_would_reject_is_rejected(topic):
    assert re.match("topic=.* is not a valid topic name: allowed are", rejection(topic=topic))


@pytest.mark.parametrize(
    ("text", "column"), [("timestamp", "timestamp"), (" Event Time ", "Event Time"), ("", None)]
)
def test_the_timestamp_may_be_any_column(text, column):
    assert parsed(**{"Timestamp.Column": text}).timestamp_column == column
    assert parsed().timestamp_column is None


@pytest.mark.parametrize("column", ["value", "key", "topic", "partition", "headers"])
def test_the_timestamp_is_no_other_column_of_the_record(column):
    assert rejection(**{"timestamp.column": column}) == (
        f"timestamp.column={column}: the column {column} is the record's {column}; name a column "
        "of type timestamp, or remove the option"
    )


def test_equal_options_are_equal_keys_whatever_their_order():
    options = {**SERVERS, "topic": "a", "kafka.linger.ms": "20", "kafka.retries": "1"}
    one, other = parse(options), parse(dict(reversed(options.items())))
    assert one == other
    assert hash(one.producer) == hash(other.producer)
    assert one.producer != parse({**options, "kafka.linger.ms": "21"}).producer


def test_options_survive_pickling():
    options = parsed(**{"topic": "a", "kafka.sasl.password": "hunter2"})
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert copy.producer.client["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(copy)


def test_secrets_do_not_show_in_the_repr():
    options = parsed(**{"kafka.sasl.password": "hunter2", "kafka.client.id": "flights"})
    assert (
        "hunter2"
        not in f"{options!r} {options} {options.producer.client!r} {options.producer.client}"
    )
    assert "flights" in repr(options)


# --- dead letters --------------------------------------------------------------------------------


def test_dead_letters_need_both_options():
    options = {**SERVERS, "on.record.error": "dead-letter", "dead.letter.topic": "dlq"}
    assert parse(options).dead_letter_topic == "dlq"
    assert parse(SERVERS).dead_letter_topic is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"on.record.error": "ignore"}, "'ignore' is not fail or dead-letter"),
        ({"on.record.error": "dead-letter"}, "needs dead.letter.topic"),
        ({"dead.letter.topic": "dlq"}, "has an effect only with on.record.error=dead-letter"),
        ({"on.record.error": "dead-letter", "dead.letter.topic": "a b"}, "not a valid topic"),
        (
            {"on.record.error": "dead-letter", "dead.letter.topic": "t", "topic": "t"},
            "dead.letter.topic and topic are both t",
        ),
    ],
)
def test_dead_letter_options_that_contradict_each_other(options, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        parse({**SERVERS, **options})


# --- exactly-once --------------------------------------------------------------------------------


def test_exactly_once_needs_only_the_number_of_partitions():
    made = parse(EXACTLY_ONCE).exactly_once
    assert made == ExactlyOnceOptions(
        partitions=4, prefix=None, ledger_topic="t", first_batch=0, transaction_timeout_ms=600_000
    )
    assert parse({**SERVERS, "topic": "t"}).exactly_once is None


def test_exactly_once_takes_names_and_the_first_micro_batch():
    options = {
        "transactional.id.prefix": "orders",
        "exactly.once.ledger.topic": "ledger",
        "exactly.once.first.batch": "17",
        "kafka.transaction.timeout.ms": "60000",
    }
    made = parse({**EXACTLY_ONCE, **options}).exactly_once
    assert made == ExactlyOnceOptions(4, "orders", "ledger", 17, 60_000)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delivery.guarantee": "exactly once"}, "is not at-least-once or exactly-once"),
        ({"exactly.once.partitions": "0"}, "not between 1 and"),
        (
            {
                "value.format": "avro",
                "schema.registry.url": "http://localhost:8081",
                "auto.register.schemas": "false",
                "use.latest.version": "true",
            },
            "cannot be combined with use.latest.version=true",
        ),
        ({"transactional.id.prefix": " "}, "transactional.id.prefix is empty"),
        ({"kafka.transactional.id": "a"}, "transactional.id.prefix"),
        (
            {"kafka.enable.idempotence": "false"},
            "needs kafka.enable.idempotence=true, which kafka.enable.idempotence=false switches",
        ),
        (
            {"kafka.acks": "1"},
            "needs kafka.enable.idempotence=true, which kafka.acks=1 switches off; remove it",
        ),
        (
            {"asyncProgressTrackingEnabled": "true"},
            "cannot be combined with asyncProgressTrackingEnabled",
        ),
    ],
)
def test_what_does_not_go_with_exactly_once(options, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        parse({**EXACTLY_ONCE, **options})


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/reports", "/data/reports"),
        ("/data/a://b", "/data/a://b"),
        # What Spark, Hadoop and Java print; # and ? belong to the path, as in Hadoop.
        ("file:///data/reports", "/data/reports"),
        ("file:/data/reports", "/data/reports"),
        ("FILE:/data/reports", "/data/reports"),
        ("file:////data/reports", "/data/reports"),
        ("file:/data/r#1", "/data/r#1"),
        ("file:///data/r#1", "/data/r#1"),
        ("file:///data/r?x", "/data/r?x"),
        ("file:/data/r%231", "/data/r#1"),
        ("file:/data/a b", "/data/a b"),
        ("/data/r#1", "/data/r#1"),
        ("/data/p%20r", "/data/p%20r"),
        ("hdfs:/reports", "hdfs:///reports"),
        ("hdfs:///reports", "hdfs:///reports"),
        ("viewfs:/reports", "viewfs:///reports"),
        ("S3A://bucket/reports", "s3://bucket/reports"),
        ("s3://bucket/reports?region=eu-west-1", "s3://bucket/reports?region=eu-west-1"),
        ("s3a://bucket/reports", "s3://bucket/reports"),
        ("gs://bucket/reports", "gs://bucket/reports"),
        (
            "abfss://box@account.dfs.core.windows.net/r",
            "abfss://box@account.dfs.core.windows.net/r",
        ),
        ("hdfs://namenode:8020/reports", "hdfs://namenode:8020/reports"),
    ],
)
def test_reports_go_to_a_path_or_a_uri_that_pyarrow_knows(text, path):
    assert parsed(**{"report.path": text}).values[table.REPORT_PATH] == path
    # A process may get what another one has read.
    assert parsed(**{"report.path": path}).values[table.REPORT_PATH] == path
    assert local_path(text) == (Path(path) if path.startswith("/") else None)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("reports", "neither an absolute path nor a URI"),
        ("./reports", "neither an absolute path nor a URI"),
        ("~/reports", "neither an absolute path nor a URI"),
        ("C:\\reports", "neither an absolute path nor a URI"),
        ("C:/reports", "neither an absolute path nor a URI"),
        ("file:reports", "neither an absolute path nor a URI"),
        ("file:", "neither an absolute path nor a URI"),
        ("dbfs:/reports", "on Databricks that of a volume (/Volumes/...)"),
        ("volumes:/reports", "not in storage that Python on the driver can reach"),
        ("wasbs:/reports", "not in storage that Python on the driver can reach"),
        ("s3a:/bucket/x", "names no bucket or container"),
        ("s3:///bucket/x", "names no bucket or container"),
        ("gs:/b/x", "names no bucket or container"),
        ("abfss:/x", "names no bucket or container"),
        ("hdfs:reports", "has no absolute path"),
        ("s3://bucket/r#1", "contains #, and pyarrow ignores what follows"),
        ("hdfs:/r#1", "contains #, and pyarrow ignores what follows"),
        ("junk:AKIA:sec-word@bucket", "not in storage that Python on the driver can reach"),
        ("file://localhost/data", "write three slashes"),
        ("dbfs://x", "not in storage that Python on the driver can reach"),
        (
            "wasbs://box@account.blob.core.windows.net/r",
            "not in storage that Python on the driver can reach",
        ),
        ("junk://AKIA:sec-word@bucket", "a URI that begins with abfs, abfss, file, "),
        ("file://data/reports", "write three slashes"),
    ],
)
def test_reports_cannot_go_where_python_cannot_write(text, complaint):
    message = rejection(**{"report.path": text})
    assert message.startswith("report.path=")
    assert complaint in message
    assert "sec-word" not in message


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:sec-word@bucket/reports",
        "s3a://sec-word@bucket/reports",
        "s3://AKIA:sec/ret-word@bucket/reports",
        "s3://AKIA:sec-word",
        "abfss://box:sec-word@account.dfs.core.windows.net/reports",
        "abfss://account.dfs.core.windows.net/box?client_secret=sec-word",
        "abfss://account.dfs.core.windows.net/box?sv=1&sig=sec-word",
    ],
)
def test_credentials_in_the_place_of_reports_are_rejected_and_not_shown(uri):
    message = rejection(**{"report.path": uri})
    assert "contains credentials" in message
    for part in ("AKIA", "sec", "word"):
        assert part not in message


@pytest.mark.parametrize(
    ("missing", "complaint"),
    [
        ("topic", "needs exactly.once.ledger.topic if the option topic is not set"),
        ("delivery.guarantee", "has an effect only with delivery.guarantee=exactly-once"),
    ],
)
def test_what_exactly_once_needs(missing, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        parse({name: value for name, value in EXACTLY_ONCE.items() if name != missing})


def test_the_format_needs_the_number_of_partitions_and_sparks_own_id_of_the_micro_batch():
    check_for_format(parse(EXACTLY_ONCE))
    without = {k: v for k, v in EXACTLY_ONCE.items() if k != "exactly.once.partitions"}
    assert parse(without).exactly_once.partitions is None
    with pytest.raises(InvalidOption, match=r"needs exactly\.once\.partitions.*foreach_batch"):
        check_for_format(parse(without))
    with pytest.raises(InvalidOption, match=r"batch\.id=7 cannot be combined with"):
        check_for_format(parse({**EXACTLY_ONCE, "batch.id": "7"}))


@pytest.mark.parametrize(
    "name", ["transactional.id.prefix", "exactly.once.ledger.topic", "exactly.once.first.batch"]
)
def test_options_for_exactly_once_alone_are_rejected(name):
    message = rejection(**{name: "1000"})
    assert message.startswith(f"{name} has an effect only with delivery.guarantee=exactly-once")


def test_no_wait_of_a_transaction_is_longer_than_the_transaction():
    client = parse(EXACTLY_ONCE).producer.client
    made = transactional(client, "orders.0", 10_000)
    assert made["transactional.id"] == "orders.0"
    assert made["transaction.timeout.ms"] == "10000"
    assert made["delivery.timeout.ms"] == "10000"
    assert made["socket.timeout.ms"] == "10000"
    assert made.oauth_callback == client.oauth_callback
    longer = transactional(client, "orders.0", 600_000)
    assert longer["delivery.timeout.ms"] == client["delivery.timeout.ms"]
    assert longer["socket.timeout.ms"] == client["socket.timeout.ms"]


def test_the_rack_is_a_name_or_a_variable_of_the_executor(monkeypatch):
    assert parsed().producer.rack is None
    aware = {"kafka.partitioner.rack.aware": "true"}
    named = parsed(**aware, **{"kafka.client.rack": "eu-1a"}).producer.rack
    assert named == RackOptions("eu-1a", None, is_preferred=True)
    assert process_rack(named) == "eu-1a"
    assert not parsed(**{"kafka.client.rack": "eu-1a"}).producer.rack.is_preferred
    by_variable = parsed(**{"client.rack.variable": "ZONE"}).producer.rack
    monkeypatch.setenv("ZONE", "eu-1b")
    assert process_rack(by_variable) == "eu-1b"


def test_a_rack_that_nobody_knows_is_rejected(monkeypatch):
    assert "needs kafka.client.rack" in rejection(**{"kafka.partitioner.rack.aware": "true"})
    both = {"kafka.client.rack": "a", "client.rack.variable": "ZONE"}
    assert "remove one" in rejection(**both)
    assert "not the name of an environment variable" in rejection(**{"client.rack.variable": "a-b"})
    monkeypatch.delenv("ZONE", raising=False)
    with pytest.raises(InvalidOption, match=r"ZONE .* not set .*spark\.executorEnv\.ZONE"):
        process_rack(parsed(**{"client.rack.variable": "ZONE"}).producer.rack)


# --- values as Python has them --------------------------------------------------------------------


class Word(str, Enum):
    ALL = "all"


class PathOfBytes:
    def __fspath__(self):
        return b"hunter2"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("preflight", False, "false"),
        ("preflight", True, "true"),
        ("close.timeout.ms", 5, "5"),
        ("kafka.linger.ms", 0.5, "0.5"),
        ("report.path", Path("/reports"), "/reports"),
        ("kafka.acks", Word.ALL, "all"),
        ("kafka.enable.idempotence", True, "true"),
        ("kafka.enable.idempotence", np.bool_(False), "false"),
        ("close.timeout.ms", np.int64(5), "5"),
        ("kafka.linger.ms", np.float32(0.5), "0.5"),
    ],
)
def test_values_may_be_pythons(name, value, text):
    assert parsed(**{name: value}) == parsed(**{name: text})


@pytest.mark.parametrize(
    "name",
    ["topic", "dead.letter.topic", "kafka.sasl.password", "transactional.id.prefix", "report.path"],
)
def test_none_is_no_option(name):
    assert parsed(**{name: None}) == parsed()


@pytest.mark.parametrize(
    "value", [b"hunter2", ["hunter2"], ("hunter2",), {"a": "hunter2"}, {"hunter2"}, object(),
              date(2024, 1, 1), PathOfBytes(), Decimal(5)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("name", ["kafka.sasl.password", "topic", "kafka.bootstrap.servers"])
def test_a_value_without_a_text_is_rejected_by_name(name, value):
    with pytest.raises(InvalidOption) as raised:
        parse({**SERVERS, name: value})
    assert str(raised.value) == (
        f"the value of {name} is of type {type(value).__name__}; allowed: str, bool, int, float, a "
        "path, or None for an option that is not set"
    )


@pytest.mark.parametrize("name", [None, 1, ("topic",)])
def test_a_name_that_is_no_text_is_rejected(name):
    with pytest.raises(InvalidOption, match=f"^the name of an option is .*{type(name).__name__}$"):
        parse({**SERVERS, name: "x"})


def test_a_function_that_gets_no_options_says_how_it_is_called():
    """As Spark calls ``foreachBatch(foreach_batch)``."""
    with pytest.raises(InvalidOption, match=r"type str, .* needs foreach_batch\(options\)"):
        parse("localhost:9092")


@pytest.mark.parametrize("batch_id", [-1, 2**63, 1.0, "5", date(2026, 11, 28)])
def test_an_id_of_a_batch_that_the_ledger_cannot_keep_is_rejected(batch_id):
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t", "send.from": "driver"}
    check_batch_id(parse(options), batch_id)
    once = parse({**options, "delivery.guarantee": "exactly-once"})
    with pytest.raises(
        InvalidOption, match=r"needs an int from 0 to 2\*\*63 - 1 that grows"
    ) as raised:
        check_batch_id(once, batch_id)
    assert repr(batch_id) in str(raised.value)


@pytest.mark.parametrize("batch_id", [0, 20261128, 2**63 - 1])
def test_ids_of_batches_are_offsets(batch_id):
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t", "send.from": "driver"}
    check_batch_id(parse({**options, "delivery.guarantee": "exactly-once"}), batch_id)

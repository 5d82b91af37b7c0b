from __future__ import annotations

import pytest

from spark_kafka_sink.config.added_settings import producer_settings
from spark_kafka_sink.config.client_settings import (
    DEFAULTS,
    IGNORED,
    REJECTED,
    RENAMED,
    SAME_AS_DEFAULT,
    known_names,
    translate,
)
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.librdkafka.setting_specs import setting_problem

TLS = {"security.protocol": "ssl"}
PEM_TRUST_STORE = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/s.pem"}
PEM_KEY_STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/s.pem"}
JAAS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'PlainLoginModule required username="u" password="p";',
}


def rejection(settings: dict[str, str]) -> str:
    with pytest.raises(InvalidOption) as raised:
        translate(settings)
    return str(raised.value)


def beyond_defaults(settings: dict[str, str]) -> dict[str, str]:
    result = translate(settings)
    return {name: str(value) for name, value in result.items() if DEFAULTS.get(name) != value}


# --- names and values ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("enable.idempotence", "TRUE", "true"),
        ("enable.idempotence", "t", "true"),
        ("enable.ssl.certificate.verification", "0", "false"),
        ("ssl.endpoint.identification.algorithm", "NONE", "none"),
        ("ssl.endpoint.identification.algorithm", "HTTPS", "https"),
        ("security.protocol", "PLAINTEXT", "plaintext"),
        ("compression.type", "GZIP", "gzip"),
        ("client.id", "TRUE", "TRUE"),
    ],
)
def test_each_boolean_and_each_word_has_one_spelling_from_here_on(name, value, expected):
    assert translate({**TLS, name: value})[name] == expected


def test_defaults_are_safe_delivery_and_javas_partitioning_of_keys():
    assert dict(translate({})) == {
        "acks": "all",
        "batch.num.messages": "50000",
        "batch.size": "1000000",
        "linger.ms": "5",
        "client.id": "spark-kafka-sink",
        "message.max.bytes": "1048576",
        "max.in.flight.requests.per.connection": "5",
        "delivery.timeout.ms": "120000",
        "enable.idempotence": "true",
        "enable.metrics.push": "false",
        "partitioner": "murmur2_random",
        "broker.address.ttl": "30000",
        "reconnect.backoff.max.ms": "1000",
        "connections.max.idle.ms": "180000",
        "socket.connection.setup.timeout.ms": "7000",
        "socket.timeout.ms": "11000",
    }


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\tb", "a\x00b"])
def test_a_client_id_that_would_spoil_the_clients_statistics_is_changed(value):
    notices = Notices()
    assert translate({"client.id": value}, notices=notices)["client.id"] == "a_b"
    assert notices.warnings == (
        "kafka.client.id: quotation marks, backslashes and control characters become _",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "-1"),
        ("batch.size", "1048576"),
        ("bootstrap.servers", "a:1,b:2"),
        ("client.id", "flights"),
        ("compression.type", "zstd"),
        ("delivery.timeout.ms", "60000"),
        ("linger.ms", "30"),
        ("linger.ms", "0.5"),
        ("reconnect.backoff.max.ms", "20000"),
        ("retries", "2147483647"),
        ("security.protocol", "ssl"),
        ("socket.keepalive.enable", "true"),
        ("ssl.endpoint.identification.algorithm", "https"),
    ],
)
def test_setting_with_the_same_name_passes(name, value):
    assert beyond_defaults({**TLS, name: f" {value} "}) == {**TLS, name: value}


@pytest.mark.parametrize("value", ["0", "1", "+16384", "1000000"])
def test_javas_batch_size_does_not_make_requests_small(value):
    notices = Notices()
    assert translate({"batch.size": value}, notices=notices) == translate({})
    assert notices.warnings == ()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1_000_000),
        ({"batch.size": "16384"}, 1_000_000),
        ({"batch.size": "2000000"}, 1_048_576),
        ({"batch.size": "2000000", "max.request.size": "1500000"}, 1_500_000),
        ({"max.request.size": "50000"}, 50_000),
    ],
)
def test_the_largest_batch_is_bounded_by_the_size_of_requests_too(settings, expected):
    assert translate(settings).max_batch_bytes == expected


PASSWORDS = [
    (" pass ", " pass "), ("pass\n", "pass"), ("pass\r\n", "pass"), ("pass\n\n", "pass\n"),
    ("\npass \n", "\npass "), ("pass\r", "pass\r"), ("\tp\xa0", "\tp\xa0"), (" ", " "),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), PASSWORDS)
@pytest.mark.parametrize(
    "name",
    ["sasl.password", "sasl.oauthbearer.client.secret"],
)
def test_a_password_is_taken_as_it_is_but_for_a_final_line_break(name, value, expected):
    assert beyond_defaults({**TLS, name: value}) == {**TLS, name: expected}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(" pass ", "pass"), ("pass\n", "pass"), ("\tp\xa0", "p\xa0"), ("\u2003p", "\u2003p")],
)
@pytest.mark.parametrize(
    "name", ["ssl.key.password", "sasl.oauthbearer.assertion.private.key.passphrase"]
)
def test_white_space_around_javas_passwords_is_removed_as_in_java(name, value, expected):
    """The values are those that ConfigDef.parseType returned."""
    assert beyond_defaults({**TLS, name: value}) == {**TLS, name: expected}


def test_a_password_in_a_jaas_string_is_taken_as_it_is():
    jaas = ' \n a.PlainLoginModule required username="u" password=" pass \n"; \n\n'
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    client = beyond_defaults(login)
    assert client["sasl.password"] == " pass \n"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max.request.size": "2000"}, {"message.max.bytes": "2000"}),
        ({"send.buffer.bytes": "4096"}, {"socket.send.buffer.bytes": "4096"}),
        ({"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"metadata.broker.list": "a:1"}, {"bootstrap.servers": "a:1"}),
        ({"queue.buffering.max.ms": "30"}, {"linger.ms": "30"}),
        ({"message.timeout.ms": "60000"}, {"delivery.timeout.ms": "60000"}),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        ({"compression.gzip.level": "9"}, {}),
        *(
            (
                {"compression.type": codec, "compression.gzip.level": "1",
                 "compression.lz4.level": "2", "compression.zstd.level": "3"},
                {"compression.type": codec, "compression.level": level},
            )
            for codec, level in (("gzip", "1"), ("lz4", "2"), ("zstd", "3"))
        ),
        (
            {"compression.codec": "gzip", "compression.gzip.level": "9"},
            {"compression.type": "gzip", "compression.level": "9"},
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "<pem>"},
            {"ssl.ca.pem": "<pem>"},
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": "<key>",
                "ssl.keystore.certificate.chain": "<pem>",
            },
            {"ssl.key.pem": "<key>", "ssl.certificate.pem": "<pem>"},
        ),
        (PEM_TRUST_STORE, {"ssl.ca.location": "/s.pem"}),
        (PEM_KEY_STORE, {"ssl.key.location": "/s.pem", "ssl.certificate.location": "/s.pem"}),
        (
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "/s.p12",
                "ssl.keystore.password": "hunter2",
            },
            {"ssl.keystore.location": "/s.p12", "ssl.keystore.password": "hunter2"},
        ),
    ],
)  # fmt: skip
def test_java_setting_is_translated_for_the_client(settings, expected):
    assert beyond_defaults({**TLS, **settings}) == {**TLS, **expected}


# All settings of ProducerConfig in Kafka 4.3.
JAVA_SETTINGS = """
acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id
compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers connections.max.idle.ms delivery.timeout.ms enable.idempotence
enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type transaction.timeout.ms
transaction.two.phase.commit.enable transactional.id value.serializer
"""


def test_every_setting_of_the_java_producer_is_known():
    ours = {"buffer.memory", "max.block.ms", "metadata.max.idle.ms"}
    assert set(JAVA_SETTINGS.split()) - known_names() - ours == set()


@pytest.mark.parametrize(
    "backoff",
    [
        {"reconnect.backoff.ms": "50"},
        {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "50"},
    ],
)
def test_the_time_between_attempts_to_connect_is_constant_unless_a_maximum_is_given(backoff):
    constant = {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "50"}
    assert beyond_defaults(backoff) == constant
    assert beyond_defaults(backoff | {"reconnect.backoff.max.ms": "500"}) == {
        "reconnect.backoff.ms": "50",
        "reconnect.backoff.max.ms": "500",
    }


@pytest.mark.parametrize("more", [{}, {"reconnect.backoff.ms": "1000"}])
def test_the_time_between_attempts_to_connect_is_at_most_the_maximum(more):
    notices = Notices()
    client = translate({"reconnect.backoff.max.ms": "10", **more}, notices=notices)
    assert (client["reconnect.backoff.ms"], client["reconnect.backoff.max.ms"]) == ("10", "10")
    warning = "kafka.reconnect.backoff.ms=1000 is not between 0 and 10; 10 applies"
    assert list(notices.warnings) == [warning] * len(more)


def test_cipher_suites_are_rejected_because_they_would_not_restrict_every_version_of_tls():
    message = rejection({**TLS, "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"})
    assert "would restrict only TLS 1.2" in message


@pytest.mark.parametrize("name", sorted(REJECTED))
def test_setting_that_has_no_translation_is_rejected_with_advice(name):
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    assert rejection({**login, name: "1"}) == f"kafka.{name} is not supported: {REJECTED[name]}"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("acks", "most", "all, -1, 0, 1"),
        ("acks", "2", "all, -1, 0, 1"),
        ("batch.size", "-1", "1 .. 2147483647"),
        ("batch.size", "16k", "1 .. 2147483647"),
        ("compression.type", "brotli", "none, gzip, snappy, lz4, zstd"),
        ("delivery.timeout.ms", "-1", "0 .. 2147483647"),
        ("delivery.timeout.ms", "5s", "0 .. 2147483647"),
        ("delivery.timeout.ms", "0x1000", "0 .. 2147483647"),
        ("enable.idempotence", "yes", "true, false"),
        ("linger.ms", "", "0 .. 900000"),
        ("linger.ms", "5s", "0 .. 900000"),
        ("linger.ms", "nan", "0 .. 900000"),
        ("linger.ms", "-0.5", "0 .. 900000"),
        ("linger.ms", "0x5", "0 .. 900000"),
        ("max.in.flight.requests.per.connection", "0x5", "1 .. 1000000"),
        ("batch.size", "0.5", "1 .. 2147483647"),
        ("request.timeout.ms", "-1", "0 .. 2147483647"),
        ("request.timeout.ms", "30s", "0 .. 2147483647"),
        ("request.timeout.ms", "2147483648", "0 .. 2147483647"),
        ("security.protocol", "TLS", "plaintext, ssl, sasl_plaintext, sasl_ssl"),
    ],
)
def test_value_out_of_range_is_rejected_with_what_is_allowed(name, value, allowed):
    assert rejection({name: value}) == f"kafka.{name}={value!r} is invalid; allowed: {allowed}"


@pytest.mark.parametrize(
    ("name", "value", "applies", "is_said"),
    [
        ("linger.ms", "900001", "900000", True),
        ("linger.ms", str(2**63 - 1), "900000", False),
        ("max.request.size", "999", "1000", True),
        ("max.request.size", "1199925856", "1000000000", True),
        ("retry.backoff.ms", "0", "1", True),
        ("connections.max.idle.ms", str(2**63 - 1), "2147483647", False),
        ("retries", "+3", "3", False),
        ("request.timeout.ms", "+500", "500", False),
    ],
)
def test_a_number_that_java_allows_is_accepted_at_the_nearest_value(name, value, applies, is_said):
    notices = Notices()
    translated = translate({name: value}, notices=notices)
    assert translated[RENAMED.get(name, name)] == applies
    assert bool(notices.warnings) is is_said


@pytest.mark.parametrize(
    ("codec", "level", "expected"),
    [("gzip", "9", "9"), ("gzip", "-1", None), ("lz4", "17", "12"), ("zstd", "22", "12"),
     ("zstd", "-5", "1")],
)  # fmt: skip
def test_levels_of_compression_are_javas(codec, level, expected):
    settings = {"compression.type": codec, f"compression.{codec}.level": level}
    assert translate(settings).get("compression.level") == expected


@pytest.mark.parametrize(("codec", "level"), [("gzip", "0"), ("gzip", "10"), ("lz4", "18")])
def test_levels_that_java_rejects_are_rejected(codec, level):
    message = rejection({"compression.type": codec, f"compression.{codec}.level": level})
    assert message.startswith(
        f"kafka.compression.{codec}.level='{level}' is invalid; allowed: 1 .."
    )


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_only_tunes_java_is_ignored(name):
    notices = Notices()
    assert translate({name: "x"}, notices=notices) == translate({})
    assert notices.ignored == {IGNORED[name]: [f"kafka.{name}"]}


@pytest.mark.parametrize(
    ("name", "value"), [(name, v) for name, values in SAME_AS_DEFAULT.items() for v in values]
)
def test_a_setting_that_is_rejected_is_accepted_if_it_changes_nothing(name, value):
    assert translate({name: value.upper()}) == translate({})


def test_javas_other_retriever_of_tokens_is_rejected_with_the_setting_that_stands_for_it():
    retriever = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
    message = rejection({"sasl.oauthbearer.jwt.retriever.class": retriever})
    assert "set kafka.sasl.oauthbearer.grant.type=urn:ietf:params:oauth:grant-type:jwt" in message


def test_rejected_value_is_reported_under_the_given_name():
    settings = {"compression.type": "gzip", "compression.gzip.level": "99"}
    assert "kafka.compression.gzip.level" in rejection(settings)


@pytest.mark.parametrize("value", ["", "-1", "0", "5.5", "0x10", "1s", "x", "é", "\n"])
def test_whatever_the_value_only_invalid_option_is_raised(value):
    raised = {}
    for name in known_names():
        try:
            translate({name: value})
        except InvalidOption:
            pass
        except Exception as error:  # noqa: BLE001 - all kinds are what this test looks for
            raised[name] = error
    assert raised == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"compression.type": "gzip", "compression.gzip.level": "1", "compression.level": "2"},
        {**PEM_TRUST_STORE, "ssl.ca.location": "/other.pem"},
        {**PEM_KEY_STORE, "ssl.key.location": "/other.pem"},
    ],
    ids=" ".join,
)
def test_one_setting_under_two_names_is_rejected(settings):
    assert "keep one" in rejection({**TLS, **settings})


@pytest.mark.parametrize("other", ["20000000", "2000", "x"])
def test_javas_name_of_the_largest_record_wins_over_the_brokers(other):
    javas, brokers = {"max.request.size": "3000"}, {"message.max.bytes": other}
    for settings in (javas | brokers, brokers | javas):
        notices = Notices()
        assert translate(settings, notices=notices)["message.max.bytes"] == "3000"
        assert "kafka.message.max.bytes (kafka.max.request.size wins)" in notices.warnings[0]


@pytest.mark.parametrize(
    ("javas", "others"),
    [
        ({"max.request.size": "2000"}, {"message.max.bytes": "3000"}),
        ({"delivery.timeout.ms": "100000"}, {"message.timeout.ms": "200000"}),
        ({"compression.type": "gzip"}, {"compression.codec": "lz4"}),
        ({"bootstrap.servers": "a:1"}, {"metadata.broker.list": "b:1"}),
        ({"send.buffer.bytes": "1000"}, {"socket.send.buffer.bytes": "2000"}),
        (JAAS, {"sasl.mechanisms": "SCRAM-SHA-512"}),
        (JAAS, {"sasl.username": "another", "sasl.password": "other"}),
        (
            {"sasl.oauthbearer.client.credentials.client.id": "a"},
            {"sasl.oauthbearer.client.id": "b"},
        ),
        (
            {"sasl.oauthbearer.client.credentials.client.secret": "a"},
            {"sasl.oauthbearer.client.secret": "b"},
        ),
    ],
)
def test_javas_name_wins_over_librdkafkas(javas, others):
    notices = Notices()
    settings = translate(javas | others, notices=notices)
    assert settings == translate(javas)
    ignored = [name for names in notices.ignored.values() for name in names]
    assert sorted(ignored) == [f"kafka.{name}" for name in sorted(others)]


def test_what_the_sink_relies_on_cannot_be_changed():
    assert "kafka.partitioner" in rejection({"partitioner": "random"})


def test_what_limits_librdkafkas_queue_is_not_the_users():
    notices = Notices()
    translate({"queue.buffering.max.messages": "5"}, notices=notices)
    assert notices.ignored == {
        "kafka.buffer.memory limits what waits": ["kafka.queue.buffering.max.messages"]
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_mechanism_that_needs_a_user_is_rejected_without_one(mechanism):
    message = rejection({"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism})
    assert message.endswith("needs a user name and a password: set kafka.sasl.jaas.config")


def test_metrics_push_is_off_unless_requested():
    assert translate({"enable.metrics.push": "true"})["enable.metrics.push"] == "true"


def test_sasl_without_a_mechanism_is_rejected_with_the_choices():
    message = rejection({"security.protocol": "SASL_SSL"})
    assert "kafka.sasl.mechanism, such as PLAIN, SCRAM-SHA-512, OAUTHBEARER, or GSSAPI" in message


# --- what the producer's own work requires --------------------------------------------------------


def test_the_clients_queue_has_no_bound_but_the_buffers():
    settings = producer_settings(translate({}), 2**20)
    assert settings["queue.buffering.max.kbytes"] == str(2**31 - 1)
    assert settings["queue.buffering.max.messages"] == "0"


@pytest.mark.parametrize("batch_size", [{}, {"batch.size": "2000000"}])
def test_a_small_buffer_is_sent_in_parts(batch_size):
    """Under a quota, a request of its whole size is answered only after ``max.block.ms``."""
    settings = producer_settings(translate(batch_size), 2**20)
    assert settings.max_batch_bytes == 2**16


def test_a_buffer_of_16_mib_makes_no_request_smaller():
    translated = translate({})
    settings = producer_settings(translated, 2**24)
    assert settings.max_batch_bytes == translated.max_batch_bytes


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"socket.connection.setup.timeout.ms": "25000"}, "25000"),
        ({"socket.connection.setup.timeout.ms": "2000"}, "10000"),
        ({"socket.connection.setup.timeout.ms": "900000"}, "300000"),
        (
            {
                "socket.connection.setup.timeout.ms": "25000",
                "api.version.request.timeout.ms": "3000",
            },
            "3000",
        ),
    ],
)
def test_the_first_request_of_a_connection_waits_as_long_as_its_set_up(settings, expected):
    assert translate(settings)["api.version.request.timeout.ms"] == expected


def test_the_client_leaves_metadata_to_the_producer():
    settings = producer_settings(translate({}), 2**20)
    assert settings["topic.metadata.refresh.interval.ms"] == "-1"
    assert settings["metadata.max.age.ms"] == "86400000"
    propagation_ms = int(settings["topic.metadata.propagation.max.ms"])
    assert 1_000_000 < propagation_ms < 2**31 / 1000  # an int of microseconds in librdkafka


@pytest.mark.parametrize("buffer_memory", [1, 2**20, 2**41 - 1024])
def test_the_client_accepts_what_the_producer_requires(buffer_memory):
    for name, value in producer_settings(translate({}), buffer_memory).items():
        assert setting_problem(name, value) is None


@pytest.mark.parametrize("name", ["ssl.engine.location", "ssl.engine.id", "ssl.providers"])
def test_no_setting_loads_native_code(name):
    """``ssl.providers`` would run it even while the settings are checked."""
    with pytest.raises(InvalidOption, match=f"kafka.{name}.* native code"):
        parse(
            {
                "kafka.bootstrap.servers": "a:1",
                "kafka.security.protocol": "SSL",
                f"kafka.{name}": "/tmp/no-such-engine.so",
            }
        )

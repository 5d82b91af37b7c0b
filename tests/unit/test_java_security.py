from __future__ import annotations

import pytest

from spark_kafka_sink.config.client_settings import translate
from spark_kafka_sink.config.logins import parsed_jaas
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.config.stores import pem_in_lines
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
COMPLETE = f'{PLAIN} required username="u" password="hunter2";'


def login(mechanism: str, text: str) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": text}


def rejection(settings: dict[str, str]) -> str:
    with pytest.raises(InvalidOption) as raised:
        translate(settings)
    return str(raised.value)


def warnings(settings: dict[str, str]) -> tuple[str, ...]:
    notices = Notices()
    translate(settings, notices=notices)
    return notices.warnings


def translated(mechanism: str, text: str) -> tuple[str, str, str]:
    """Mechanism, user name and password."""
    result = translate(login(mechanism, text))
    assert "sasl.jaas.config" not in result
    mechanism, username, password = (
        str(result[f"sasl.{name}"]) for name in ("mechanism", "username", "password")
    )
    return mechanism, username, password


# --- JAAS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "kafkashaded."])
@pytest.mark.parametrize(
    ("module", "mechanism"),
    [(PLAIN, "PLAIN"), (SCRAM, "SCRAM-SHA-256"), (SCRAM, "SCRAM-SHA-512"), (SCRAM, "PLAIN")],
)
def test_jaas_of_plain_and_scram_gives_user_name_and_password(prefix, module, mechanism):
    text = f'{prefix}{module} required username="u" password="p";'
    assert translated(mechanism, text) == (mechanism, "u", "p")


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        ('username="u" password="p";', "u", "p"),
        ('password="p" username="u";', "u", "p"),
        ("username='u' password='p';", "u", "p"),
        ("username=u password=p;", "u", "p"),
        ('\n  username = "u"\n  password = "p"\n;\n', "u", "p"),
        ('username="u" password="p;q=r \'s\'";', "u", "p;q=r 's'"),
        ("username='u' password='p;q=r \"s\"';", "u", 'p;q=r "s"'),
        (r'username="u" password="a\"b\\c";', "u", r'a"b\c'),
        (r"username='u' password='a\'b\\c';", "u", r"a'b\c"),
        (r'username="u" password="a\tb\101\q";', "u", "a\tbAq"),
        ('username="password=\'x\'" password="p";', "password='x'", "p"),
        ('username="u" password="";', "u", ""),
        ('username="ü" password="€";', "ü", "€"),
        ('username="u"password="p"user_schema-registry="s";', "u", "p"),
        ("username='u' /* the = user */ password='p' // of = all\n;", "u", "p"),
        ('"username"="u" password="p\n;', "u", "p"),
    ],
)
def test_jaas_is_read_as_java_reads_it(text, username, password):
    assert translated("PLAIN", f"{PLAIN} required {text}") == ("PLAIN", username, password)


def test_of_jaas_only_the_password_is_hidden():
    result = translate(login("PLAIN", COMPLETE))
    assert repr(result["sasl.username"]) == "'u'"
    assert repr(result["sasl.password"]) == "[hidden]"


@pytest.mark.parametrize(
    "text",
    [
        COMPLETE.removesuffix(";"),
        COMPLETE.replace(" ", "\xa0"),
        f"{PLAIN} required username=u password=2/3*4!; ",
        f"{PLAIN} required username=u // a comment\n password=2/3*4!",
    ],
)
def test_what_java_refuses_but_means_one_thing_is_forgiven(text):
    """tests/integration/test_java_jaas.py compares what Java reads."""
    password = "2/3*4!" if "hunter2" not in text else "hunter2"
    assert parsed_jaas(text) == ("PlainLoginModule", {"username": "u", "password": password})


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} required username="u" password="hunter2" debug',
        f'{PLAIN} required username="u" password=;',
        f'{PLAIN} required username="u" "hunter2";',
        f'{PLAIN} required username="u" = = ;',
        f'{PLAIN} requiredusername="u";',
        f"{PLAIN}",
        '"" required username="u";',
        ";",
    ],
)
def test_what_means_nothing_is_malformed(text):
    assert parsed_jaas(text) is None


@pytest.mark.parametrize(
    ("mechanism", "text", "module"),
    [
        (
            "PLAIN",
            f'{PLAIN} required username="u" password="hunter2" user_b="x" serviceName=kafka;',
            "PlainLoginModule",
        ),
        (
            "SCRAM-SHA-256",
            f"{SCRAM} required username=u password=hunter2 tokenauth=no user_b=x serviceName=k;",
            "ScramLoginModule",
        ),
    ],
)
def test_options_that_the_login_module_does_not_read_are_ignored(mechanism, text, module):
    assert translated(mechanism, text) == (mechanism, "u", "hunter2")
    ignored = "serviceName in kafka.sasl.jaas.config, user_b in kafka.sasl.jaas.config"
    assert warnings(login(mechanism, text)) == (
        f"these options have no effect on this sink: {ignored} (Java's {module} does not read it)",
    )


@pytest.mark.parametrize("password", ["abc hunter2=x", '"abc"hunter2="x"'])
def test_what_may_be_a_piece_of_a_password_is_not_shown(password):
    text = f'{PLAIN} required username="u" password={password};'
    (warning,) = warnings(login("PLAIN", text))
    assert "an option in kafka.sasl.jaas.config" in warning
    assert "hunter2" not in warning


@pytest.mark.parametrize("protocol", [{}, {"security.protocol": "SSL"}])
@pytest.mark.parametrize(
    ("mechanism", "text"), [("PLAIN", COMPLETE), ("GSSAPI", "hunter2"), ("OAUTHBEARER", COMPLETE)]
)
def test_a_login_that_the_protocol_does_not_use_is_not_even_read(protocol, mechanism, text):
    settings = {"sasl.mechanism": mechanism, "sasl.jaas.config": text} | protocol
    assert not {name for name in translate(settings) if name.startswith("sasl.")}
    (warning,) = warnings(settings)
    name = protocol.get("security.protocol", "PLAINTEXT")
    assert warning.endswith(
        f"kafka.sasl.jaas.config, kafka.sasl.mechanism (kafka.security.protocol={name} has no "
        "login; SASL_SSL has one)"
    )


@pytest.mark.parametrize(
    ("mechanism", "text", "advice"),
    [
        ("PLAIN", f'{PLAIN} required password="hunter2";', "has no username"),
        ("PLAIN", f'{PLAIN} required username="hunter2";', "has no password"),
        ("SCRAM-SHA-256", COMPLETE, r"set kafka\.sasl\.mechanism to PLAIN"),
        ("scram-sha-256", f'{SCRAM} required username="u" password="hunter2";',
         r"set kafka\.sasl\.mechanism to SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("PLAIN", 'com.sun.security.auth.module.Krb5LoginModule required principal="hunter2";',
         r"uses Krb5LoginModule; set kafka\.sasl\.mechanism to GSSAPI"),
        ("OAUTHBEARER", 'com.example.TokenLoginModule required clientSecret="hunter2";',
         r"not TokenLoginModule; .*sasl\.oauthbearer\.token\.endpoint\.url"),
        ("PLAIN", 'com.example.FileLoginModule required file="hunter2";',
         r"not FileLoginModule; .* for PLAIN or SCRAM, kafka\.sasl\.username and"),
        ("SCRAM-SHA-256", f'{SCRAM} required username="u" password="hunter2" tokenauth="true";',
         "does not support Kafka's delegation tokens; log in with the password of a user"),
        ("PLAIN", f'{PLAIN} required userName="u" password="hunter2";',
         r"does not read userName; did you mean username\?"),
        ("PLAIN", "software.amazon.msk.auth.iam.IAMLoginModule required;",
         r"set kafka\.sasl\.mechanism to AWS_MSK_IAM"),
        ("PLAIN", "hunter2", "is not of the form"),
        ("PLAIN", "", "is not of the form"),
        ("PLAIN", f'{PLAIN} required username="u" password="hunter2;', "is not of the form"),
        ("PLAIN", COMPLETE * 2, "with one login module"),
    ],
)  # fmt: skip
def test_jaas_that_cannot_be_translated_is_rejected_without_its_text(mechanism, text, advice):
    with pytest.raises(InvalidOption, match=rf"kafka\.sasl\.jaas\.config.* {advice}") as raised:
        translate(login(mechanism, text))
    assert "hunter2" not in str(raised.value)


def test_jaas_without_a_mechanism_is_rejected():
    assert "set kafka.sasl.mechanism to PLAIN" in rejection(
        {"security.protocol": "SASL_SSL", "sasl.jaas.config": COMPLETE}
    )


# --- stores --------------------------------------------------------------------------------------


TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize("kind", [{}, {"ssl.keystore.type": "JKS"}, {"ssl.keystore.type": "jks"}])
def test_a_jks_key_store_is_left_to_the_driver(kind):
    """See test_key_stores.py."""
    store = {"ssl.keystore.location": "/store.jks", "ssl.keystore.password": "p"}
    client = translate(TLS | store | kind)
    assert client["ssl.keystore.location"] == "/store.jks"
    assert client["ssl.keystore.type"] == "JKS"


def test_a_jks_key_store_needs_a_password_as_in_java():
    message = rejection({**TLS, "ssl.keystore.location": "/store.jks"})
    assert "needs kafka.ssl.keystore.password, as in Java; set it, or set kafka.ssl.key" in message


@pytest.mark.parametrize(
    ("protocol", "with_tls"), [({}, "SSL"), ({"security.protocol": "sasl_plaintext"}, "SASL_SSL")]
)
@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.keystore.location": "/store.jks"},
        {"ssl.keystore.location": " ", "ssl.keystore.password": "p"},
        {"ssl.truststore.location": "/ca.pem", "ssl.ca.location": "/other.pem"},
        {"ssl.truststore.password": "p", "ssl.truststore.type": "PEM"},
        {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"},
    ],
    ids=" ".join,
)
def test_settings_of_tls_are_not_even_read_without_it(settings, protocol, with_tls):
    """As in Java."""
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    settings |= {**protocol, **(login if protocol else {})}
    assert not {name for name in translate(settings) if name.startswith("ssl.")}
    (warning,) = warnings(settings)
    ignored = ", ".join(f"kafka.{name}" for name in sorted(settings) if name.startswith("ssl."))
    written = protocol.get("security.protocol", "PLAINTEXT")
    reason = f"kafka.security.protocol={written} has no TLS; {with_tls} has"
    assert f"{ignored} ({reason})" in warning


def test_a_key_store_of_another_type_is_rejected_with_the_command_that_converts_it():
    message = rejection({**TLS, "ssl.keystore.location": "/a store", "ssl.keystore.type": "bcfks"})
    assert (
        "kafka.ssl.keystore.location: this client cannot read a keystore of type BCFKS" in message
    )
    assert "keytool -importkeystore -srckeystore '/a store' -srcstoretype BCFKS" in message
    assert "kafka.ssl.keystore.type=PKCS12" in message


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("keystore", "no key store is named; set kafka.ssl.keystore.location, or remove it"),
        ("truststore", "no trust store is named; remove it"),
    ],
)
def test_the_password_of_no_store_is_rejected(store, problem):
    """As in Java (DefaultSslEngineFactory)."""
    message = rejection({**TLS, f"ssl.{store}.password": "hunter2"})
    assert message.startswith(f"kafka.ssl.{store}.password: {problem}")


def test_a_pem_trust_store_has_no_password():
    store = {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"}
    message = rejection({**TLS, **store, "ssl.truststore.password": "hunter2"})
    assert message == "kafka.ssl.truststore.password: a PEM trust store has none; remove it"


@pytest.mark.parametrize("name", ["client.p12", "CLIENT.PFX"])
def test_a_key_store_without_a_type_is_pkcs12_if_its_name_says_so(name):
    """Java's default is JKS, but its reader of JKS also reads PKCS12."""
    settings = {**TLS, "ssl.keystore.location": f"/{name}", "ssl.keystore.password": "hunter2"}
    assert translate(settings)["ssl.keystore.location"] == f"/{name}"
    jks = translate({**settings, "ssl.keystore.type": "JKS"})
    assert jks["ssl.keystore.type"] == "JKS"


@pytest.mark.parametrize(
    "name",
    [
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.ca.location",
        "ssl.crl.location",
        "https.ca.location",
        "https.ca.pem",
    ],
)
@pytest.mark.parametrize("others", [{}, {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}])
def test_an_empty_store_is_rejected_by_name(name, others):
    assert rejection({**TLS, name: " ", **others}).startswith(f"kafka.{name} is empty")


@pytest.mark.parametrize(
    "name",
    ["ssl.key.location", "ssl.keystore.location", "sasl.oauthbearer.assertion.private.key.file"],
)
def test_pem_in_place_of_a_file_is_rejected_and_not_shown(name):
    message = rejection({**TLS, name: "-----BEGIN PRIVATE KEY----- hunter2"})
    assert message.startswith(f"kafka.{name} is PEM text")
    assert "hunter2" not in message


BODY = "QUJD" * 40


@pytest.mark.parametrize(
    "text",
    [
        f"-----BEGIN A KEY-----\n{BODY[:64]}\n{BODY[64:128]}\n{BODY[128:]}\n-----END A KEY-----\n",
        f"-----BEGIN A KEY-----{BODY}-----END A KEY-----",
        f"-----BEGIN A KEY----- {BODY[:99]} {BODY[99:]} -----END A KEY-----",
        rf"-----BEGIN A KEY-----\n{BODY[:64]}\n{BODY[64:]}\n-----END A KEY-----\n",
        rf"-----BEGIN A KEY-----\r\n{BODY}\r\n-----END A KEY-----\r\n",
    ],
)
def test_pem_may_lack_its_line_breaks(text):
    lines = pem_in_lines(text + text).split()
    one = ["-----BEGIN", "A", "KEY-----", BODY[:64], BODY[64:128], BODY[128:]]
    one += ["-----END", "A", "KEY-----"]
    assert lines == one + one


def test_pem_stays_a_secret():
    lined = pem_in_lines(Secret(f"-----BEGIN A KEY----- {BODY} -----END A KEY-----"))
    assert repr(lined) == "[hidden]"


def test_what_is_not_pem_is_left_as_it_is():
    for text in ("planted", "-----BEGIN A-----\nProc-Type: 4,ENCRYPTED\n\nQUJD\n-----END A-----"):
        assert pem_in_lines(text) == text


# --- OAUTHBEARER ---------------------------------------------------------------------------------

OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
}


def test_oauthbearer_takes_tokens_from_an_endpoint_or_from_a_function():
    assert translate({**OAUTH, **OIDC}).oauth_callback == ""
    assert translate(OAUTH, "mine:make").oauth_callback == "mine:make"


def test_oauthbearer_without_tokens_is_rejected():
    message = rejection(OAUTH)
    assert "needs tokens: set kafka.sasl.oauthbearer.token.endpoint.url with" in message


@pytest.mark.parametrize("other", [OIDC, {"enable.sasl.oauthbearer.unsecure.jwt": "true"}])
def test_two_ways_to_tokens_are_rejected(other):
    with pytest.raises(InvalidOption, match="are two ways to get tokens; keep one"):
        translate({**OAUTH, **other}, "mine:make")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_function_for_tokens_needs_oauthbearer(mechanism):
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    with pytest.raises(InvalidOption, match="an effect only with"):
        translate(login, "mine:make")

from __future__ import annotations

import pickle
import re
import traceback

import pytest

from spark_kafka_sink.config.client_settings import known_names, redact_unless_public
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

SECRETS = [
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
]
MISSPELT = ["sasl.pasword", "sasl.jaas.conf", "ssl.keystore.pasword", "unheard.of"]
# Its password comes early, where even a shortened repr shows it.
JAAS_THAT_SHOWS = 'PlainLoginModule required password="hunter2" username="u";'


def test_every_setting_that_sounds_secret_is_tested_as_one():
    sounds_secret = re.compile(r"password|passphrase|secret|key\.pem|keystore\.key|jaas")
    assert {name for name in known_names() if sounds_secret.search(name)} <= set(SECRETS)


@pytest.mark.parametrize("name", SECRETS + MISSPELT)
def test_secret_shows_in_no_repr_even_after_pickling(name):
    value = pickle.loads(pickle.dumps(redact_unless_public(name, "hunter2")))
    assert value == "hunter2"
    assert "hunter2" not in repr([value])


def failure_with_local_variables(settings: dict[str, str]) -> str:
    options = {f"kafka.{name}": Secret(value) for name, value in settings.items()}
    with pytest.raises(InvalidOption) as raised:
        read_options(options)
    # The first entry is this function, whose variables users never see.
    error = raised.value.with_traceback(raised.tb.tb_next)
    lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
    return "".join(lines) + repr(error)


@pytest.mark.parametrize("name", SECRETS + MISSPELT)
def test_secret_shows_in_no_failure_even_with_local_variables(name):
    settings = {"bootstrap.servers": "host:9092", name: "hunter2", "linger.ms": "x"}
    text = failure_with_local_variables(settings)
    assert "[hidden]" in text  # so variables are really shown
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "culprit",
    [
        {"lingers.ms": "1"},
        {"buffer.memory": "x"},
        {"bootstrap.servers": ""},
        {"delivery.timeout.ms": "1", "linger.ms": "2"},
        {"enable.idempotence": "true", "acks": "1"},
        {"ssl.keystore.location": "/store.jks", "ssl.keystore.password": "hunter2"},
        {"queuing.strategy": "lifo"},
        {"sasl.mechanism": "SCRAM-SHA-256"},
        {"sasl.jaas.config": JAAS_THAT_SHOWS.replace("username", "user")},
        {"sasl.jaas.config": JAAS_THAT_SHOWS.replace('";', ";")},
        {"sasl.jaas.config": JAAS_THAT_SHOWS * 2},
        {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": 'a.ScramLoginModule required password="hunter2" tokenauth=true;',
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": 'a.OAuthBearerLoginModule required oauth.access.token="hunter2";',
        },
        {
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": "a.IAMLoginModule required awsRoleSecretAccessKey=hunter2 "
            "awsRoleArn=r;",
        },
    ],
    ids=" ".join,
)
def test_jaas_password_shows_in_no_failure_even_with_local_variables(culprit):
    settings = {
        "bootstrap.servers": "host:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS_THAT_SHOWS,
    }
    text = failure_with_local_variables(settings | culprit)
    assert "[hidden]" in text
    assert "hunter2" not in text

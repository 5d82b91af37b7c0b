"""Why TLS fails, from what the Kafka client says; the integration tests ask real brokers."""

from __future__ import annotations

import pytest

from spark_kafka_sink.clients.sockets import concerns_clients_certificate, tls_explanation

VERIFY = "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed"
REJECTED = "ssl://127.0.0.1:1/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{REJECTED} bad certificate: SSL alert number 42", True),
        (f"{REJECTED} certificate unknown: SSL alert number 46", True),
        ("Receive failed: SSL routines::tlsv13 alert certificate required", True),
        ("Receive failed: SSL routines::tlsv1 alert unknown ca", True),
        ("SSL routines::ssl/tls alert handshake failure", False),
        (VERIFY, False),
        ("Connect to ipv4#127.0.0.1:1 failed: Connection refused", False),
    ],
)
def test_alerts_about_the_clients_certificate_are_recognized(text, expected):
    assert concerns_clients_certificate(text) == expected


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (f"ssl://127.0.0.1:1/bootstrap: {VERIFY}", {}),  # nobody listens there
        (f"ssl://127.0.0.1:1/bootstrap: {VERIFY}", {"ssl.ca.location": "/nowhere.pem"}),
        (VERIFY, {}),
    ],
)
def test_the_clients_own_words_remain_if_a_look_does_not_help(text, settings):
    problem, remedy = tls_explanation(text, {"bootstrap.servers": "127.0.0.1:1", **settings})
    assert problem == f"no TLS connection to 127.0.0.1:1: {text}"
    assert remedy.startswith("Check that kafka.security.protocol ")

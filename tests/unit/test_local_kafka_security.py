"""What a secured local Kafka requires of its clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.tools.local_kafka import Security
from spark_kafka_sink.tools.local_kafka.security import broker_properties

CERTIFICATE = Path("server.pem")
CLIENT_CA = Path("client-ca.pem")
USERS = {"alice": "planted-secret"}


@pytest.mark.parametrize(
    ("security", "protocol"),
    [
        (Security(CERTIFICATE), "SSL"),
        (Security(users=USERS), "SASL_PLAINTEXT"),
        (Security(CERTIFICATE, USERS), "SASL_SSL"),
        (Security(CERTIFICATE, client_ca=CLIENT_CA), "SSL"),
        (Security(CERTIFICATE, USERS, CLIENT_CA), "SASL_SSL"),
    ],
)
def test_the_protocol_follows_from_what_is_required(security, protocol):
    assert security.protocol == protocol


@pytest.mark.parametrize(
    ("security", "knows_users"),
    [
        (Security(CERTIFICATE), False),
        (Security(users=USERS), True),
        (Security(CERTIFICATE, client_ca=CLIENT_CA), True),
    ],
)
def test_acls_hold_where_clients_have_a_name(security, knows_users):
    assert ("authorizer.class.name" in broker_properties(security)) == knows_users


@pytest.mark.parametrize("users", [{}, USERS])
def test_clients_bring_a_certificate_if_there_is_an_authority_for_them(users):
    properties = broker_properties(Security(CERTIFICATE, users, CLIENT_CA))
    assert properties["listener.name.client.ssl.client.auth"] == "required"
    assert properties["listener.name.client.ssl.truststore.location"] == str(CLIENT_CA)
    assert "listener.name.client.ssl.client.auth" not in broker_properties(
        Security(CERTIFICATE, users)
    )


def test_certificates_of_clients_need_tls():
    with pytest.raises(ValueError, match="client_ca needs a certificate"):
        Security(users=USERS, client_ca=CLIENT_CA)


def test_security_that_requires_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="a certificate, users, or both"):
        Security()


def test_passwords_are_not_in_the_repr():
    assert "planted-secret" not in repr(Security(users=USERS))

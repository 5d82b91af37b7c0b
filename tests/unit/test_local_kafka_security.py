"""What a secured local Kafka requires of its clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.local_kafka import Security

CERTIFICATE = Path("server.pem")
USERS = {"alice": "planted-secret"}


@pytest.mark.parametrize(
    ("security", "protocol"),
    [
        (Security(CERTIFICATE), "SSL"),
        (Security(users=USERS), "SASL_PLAINTEXT"),
        (Security(CERTIFICATE, USERS), "SASL_SSL"),
    ],
)
def test_the_protocol_follows_from_what_is_required(security, protocol):
    assert security.protocol == protocol
    assert ("authorizer.class.name" in security.properties()) == ("SASL" in protocol)


def test_security_that_requires_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="a certificate, users, or both"):
        Security()


def test_passwords_are_not_in_the_repr():
    assert "planted-secret" not in repr(Security(users=USERS))

"""Security: TLS, logins and ACLs of a local Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MECHANISMS = ("PLAIN", "SCRAM-SHA-512")

_LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Security:
    """What a local Kafka requires of clients; it needs a certificate, users, or both.

    - ``certificate``: a PEM file with the brokers' private key (PKCS #8) and certificate chain;
      then clients use TLS.
    - ``users``: passwords by user name; then clients log in with SASL (PLAIN or SCRAM-SHA-512).
    - ``client_ca``: a PEM file with the certificate of an authority; then clients need
      certificates that it has signed (mutual TLS). Without ``users``, their subject is the user's
      name.

    With ``users`` or ``client_ca``, ACLs apply. Everyone may use what no ACL mentions.
    """

    certificate: Path | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        if self.certificate is None and not self.users:
            raise ValueError("Security needs a certificate, users, or both")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca needs a certificate: clients present theirs only with TLS")

    @property
    def protocol(self) -> str:
        """The clients' ``security.protocol``: SSL, SASL_PLAINTEXT or SASL_SSL."""
        if not self.users:
            return "SSL"
        return "SASL_PLAINTEXT" if self.certificate is None else "SASL_SSL"


def broker_properties(security: Security) -> dict[str, str]:
    """The brokers' settings, for a listener named CLIENT."""
    properties: dict[str, str] = {}
    if security.certificate is not None:
        properties["listener.name.client.ssl.keystore.type"] = "PEM"
        properties["listener.name.client.ssl.keystore.location"] = str(security.certificate)
    if security.client_ca is not None:
        properties |= {
            "listener.name.client.ssl.client.auth": "required",
            "listener.name.client.ssl.truststore.type": "PEM",
            "listener.name.client.ssl.truststore.location": str(security.client_ca),
        }
    if security.users:
        plain = "".join(f' user_{name}="{word}"' for name, word in security.users.items())
        properties |= {
            "listener.name.client.sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.client.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule "
            f"required{plain};",
            "listener.name.client.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram."
            "ScramLoginModule required;",
        }
    if security.users or security.client_ca is not None:
        properties |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            # the brokers themselves, and whoever uses the internal listener
            "super.users": "User:ANONYMOUS",
        }
    return properties


def format_arguments(security: Security) -> list[str]:
    """Arguments of Kafka's tool for storage: it creates the users of SCRAM."""
    return [
        argument
        for name, word in security.users.items()
        for argument in ("--add-scram", f"SCRAM-SHA-512=[name={name},password={word}]")
    ]

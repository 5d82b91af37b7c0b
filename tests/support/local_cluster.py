"""LocalCluster: a local Kafka of one or three brokers, with logins, TLS and other addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.local_kafka import (
    LocalKafka,
    free_ports,
    server_properties,
    wait_until_ready,
    write_properties,
)
from spark_kafka_sink.tools.local_servers.processes import GuardedProcess

MECHANISMS = ("PLAIN", "SCRAM-SHA-512")
START_SECONDS = 60.0

_LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Security:
    """What a cluster requires of clients; it needs a certificate, users, or both.

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


class LocalCluster(LocalKafka):
    """Like LocalKafka, whose arguments it has.

    - ``brokers``: 1 or 3, in the racks ``rack-1`` to ``rack-3``.
    - ``security``: TLS, logins and ACLs at ``bootstrap_servers``. The addresses of
      ``internal_servers`` then stay open to everyone on this machine, as a super user, for making
      topics and ACLs. Without ``security`` both are the same.
    - ``advertised_ports``: where clients of ``bootstrap_servers`` find each broker, for instance
      behind proxies; ``internal_servers`` then differ too.
    """

    def __init__(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        security: Security | None = None,
        advertised_ports: Sequence[int] = (),
    ) -> None:
        super().__init__(settings, folder)
        self._size = brokers
        self._security = security
        self._advertised_ports = advertised_ports or [None] * brokers
        self._has_internal_listener = bool(security or advertised_ports)
        self.internal_servers = ""

    def restart(self, node: int) -> None:
        """End broker ``node``, whatever its state, and start it with its data.

        Returns before it serves.
        """
        broker = self._processes[node - 1]
        broker.end()
        self._processes[node - 1] = GuardedProcess(broker.command, self._log(node))

    def _write_configurations(self) -> list[Path]:
        ports = free_ports(3 * self._size)
        brokers, controllers, internal = (ports[n::3] for n in range(3))
        servers = internal if self._has_internal_listener else brokers
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in brokers)
        self.internal_servers = ",".join(f"127.0.0.1:{port}" for port in servers)
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1))
        replicas, in_sync = str(self._size), str(min(2, self._size))
        shared = {
            "controller.quorum.voters": voters,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
        }
        paths = []
        nodes = zip(brokers, controllers, internal, self._advertised_ports, strict=True)
        for node, (broker, controller, own, advertised) in enumerate(nodes, 1):
            properties = {
                **server_properties(broker, controller, self.folder / f"data-{node}"),
                **shared,
                "node.id": str(node),
                "broker.rack": f"rack-{node}",
                **self._listeners(broker, controller, own, advertised),
                **self._settings,
            }
            paths.append(self.folder / f"server-{node}.properties")
            write_properties(paths[-1], properties)
        return paths

    def _listeners(
        self, broker: int, controller: int, internal: int, advertised: int | None
    ) -> dict[str, str]:
        """With an internal listener, brokers talk on it in plain text and without a login."""
        if not self._has_internal_listener:
            return {}
        protocol = self._security.protocol if self._security else "PLAINTEXT"
        own = f"INTERNAL://127.0.0.1:{internal}"
        return {
            "listeners": f"CLIENT://127.0.0.1:{broker},{own},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"CLIENT://127.0.0.1:{advertised or broker},{own}",
            "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            **(broker_properties(self._security) if self._security else {}),
        }

    def _wait_until_ready(self) -> None:
        deadline = Deadline(START_SECONDS)
        wait_until_ready(self.internal_servers, self._check_alive, deadline, str(self.folder))
        if self._security and self._security.users:
            create_users(self.internal_servers, self.bootstrap_servers, self._security)


def create_users(internal_servers: str, bootstrap_servers: str, security: Security) -> None:
    """The users of SCRAM; those of PLAIN are in the settings. Returns once they can log in.

    Where clients need certificates, only the controller knows the users for certain.
    """
    hashing = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users = [
        UserScramCredentialUpsertion(name, hashing, password.encode())
        for name, password in security.users.items()
    ]
    admin = AdminClient({"bootstrap.servers": internal_servers, "log_level": 2})
    for created in admin.alter_user_scram_credentials(users).values():
        created.result(START_SECONDS)
    if security.client_ca is not None:
        return  # this has no certificate to log in with; who has, comes seconds later
    for name, password in security.users.items():
        user = AdminClient(
            {
                "bootstrap.servers": bootstrap_servers,
                "security.protocol": security.protocol,
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": name,
                "sasl.password": password,
                "enable.ssl.certificate.verification": False,
                "log_level": 2,
            }
        )
        user.set_sasl_credentials(name, password)  # with white space at the beginning
        user.list_topics(timeout=START_SECONDS)

"""A KDC on loopback, its users' keytabs, and a Kafka whose clients log in with Kerberos."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from unittest.mock import patch

from local_cluster import LocalCluster, Security

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.local_kafka import free_ports
from spark_kafka_sink.tools.local_servers.processes import GuardedProcess

REALM = "EXAMPLE.ORG"
USER = f"alice@{REALM}"
BROKER = f"kafka/localhost@{REALM}"
START_SECONDS = 60.0
JAVAS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"

_CONFIGURATION = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    ticket_lifetime = {seconds}s
    renew_lifetime = 1d
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
        kdc_tcp_ports = {port}
        kdc_ports = ""
        kdc_listen = ""
        kdc_tcp_listen = 127.0.0.1:{port}
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        max_life = 1d
        max_renewable_life = 7d
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
    }}
    ELSEWHERE.ORG = {{
        kdc = 127.0.0.1:1
    }}
"""


class Realm:
    """A running KDC, for ``with Realm(folder) as realm``; its configuration is the environment's.

    ``ticket_seconds``: the lifetime of clients' tickets.
    """

    def __init__(self, folder: Path, ticket_seconds: int = 3600) -> None:
        self._folder = folder
        self._seconds = ticket_seconds
        self._log = folder / "kdc.log"
        self.configuration = folder / "krb5.conf"
        self.keytab = folder / "alice.keytab"
        self.brokers_keytab = folder / "kafka.keytab"

    def __enter__(self) -> Realm:
        (port,) = free_ports(1)
        self._port = port
        text = _CONFIGURATION.format(
            realm=REALM, port=port, folder=self._folder, seconds=self._seconds
        )
        self.configuration.write_text(text)
        (self._folder / "acl").touch()
        self._environment = patch.dict(
            os.environ,
            {
                "KRB5_CONFIG": str(self.configuration),
                "KRB5_KDC_PROFILE": str(self.configuration),
                "KRB5CCNAME": f"FILE:{self._folder / 'nobodys-tickets'}",
                "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            },
        )
        self._environment.start()
        _run("kdb5_util", "create", "-s", "-r", REALM, "-P", "password-of-the-database")
        for name, keytab in ((USER, self.keytab), (BROKER, self.brokers_keytab)):
            _run("kadmin.local", "-q", f"addprinc -randkey {name}")
            self.export(name, keytab)
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._environment.stop()

    def start(self) -> None:
        pid_file = str(self._folder / "kdc.pid")
        program = shutil.which("krb5kdc") or "krb5kdc"
        self._process = GuardedProcess([program, "-n", "-P", pid_file], self._log)
        deadline = Deadline(START_SECONDS)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                assert not deadline.expired, self._log.read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        self._process.end()

    def change_key(self, name: str) -> None:
        """Give a principal a key that its keytab does not have."""
        _run("kadmin.local", "-q", f"cpw -randkey {name}")

    def export(self, name: str, keytab: Path) -> None:
        """Add the principal's key to the keytab."""
        _run("kadmin.local", "-q", f"ktadd -norandkey -k {keytab} {name}")

    def kinit(self, cache: Path) -> None:
        """Fill a cache with a ticket that can be renewed."""
        _run("kinit", "-r", "1d", "-k", "-t", str(self.keytab), "-c", str(cache), USER)


def granting_ticket(cache: Path) -> str:
    """When the ticket that a cache was filled with begins and ends."""
    (line,) = [line for line in _run("klist", "-c", str(cache)).splitlines() if "krbtgt/" in line]
    return line


def _run(*command: str) -> str:
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=START_SECONDS, check=True
    )
    return ended.stdout


class KerberosCluster(LocalCluster):
    """A broker whose client listener has Kerberos only, with or without TLS."""

    def __init__(self, realm: Realm, certificate: Path | None = None) -> None:
        # What the listeners are is in our own settings.
        super().__init__(security=Security(certificate, {"nobody": "unused"}))
        self._realm = realm
        self.protocol = "SASL_PLAINTEXT" if certificate is None else "SASL_SSL"

    def _listeners(
        self, broker: int, controller: int, internal: int, advertised: int | None
    ) -> dict[str, str]:
        listeners = super()._listeners(broker, controller, internal, advertised)
        listeners = {
            name: value
            for name, value in listeners.items()
            if not name.startswith(("listener.name.client.plain", "listener.name.client.scram"))
        }
        self.bootstrap_servers = f"localhost:{broker}"
        own = f"INTERNAL://127.0.0.1:{internal}"
        login = (
            f'{JAVAS_MODULE} required useKeyTab=true storeKey=true principal="{BROKER}" '
            f'keyTab="{self._realm.brokers_keytab}";'
        )
        return listeners | {
            "advertised.listeners": f"CLIENT://localhost:{broker},{own}",
            "listener.name.client.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.client.gssapi.sasl.jaas.config": login,
            "listener.name.client.gssapi.connections.max.reauth.ms": "20000",
            "sasl.kerberos.service.name": "kafka",
        }

    def _wait_until_ready(self) -> None:
        self._security, security = None, self._security
        super()._wait_until_ready()
        self._security = security


@contextmanager
def javas_configuration(realm: Realm) -> Iterator[None]:
    options = f"{os.environ.get('KAFKA_OPTS', '')} -Djava.security.krb5.conf="
    options += shlex.quote(str(realm.configuration))
    with patch.dict(os.environ, {"KAFKA_OPTS": options.strip()}):
        yield

"""Options as the driver passes them to tasks: with what a client, Java or the environment adds."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from stat import S_ISREG

from spark_kafka_sink.advice import settings_error
from spark_kafka_sink.clients.aws_signer import add_region
from spark_kafka_sink.clients.local_files import FILE_ENDINGS
from spark_kafka_sink.config.java_security import (
    KEY_STORE_PASSWORDS,
    TOKEN_METHOD,
    key_store_conversion,
)
from spark_kafka_sink.config.msk_iam import CALLBACK
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.key_store import JCEKS, JKS, read_jks
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.librdkafka.client import Client

_CLOSE_SECONDS = 5.0

_KEY_STORE = "ssl.keystore.location"
_DER = b"\x30"  # what PKCS #12 begins with

_TRUST_STORE = "kafka.ssl.truststore"
_PASSWORD_VARIABLE = "SPARK_KAFKA_SINK_STORE_PASSWORD"  # noqa: S105 - the name of a variable
_KEYTOOL_SECONDS = 60.0

_ENTRY = re.compile(r"^Entry type: ", re.MULTILINE)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_REASON = re.compile(r"^keytool error: [\w.$]+: (.+)$", re.MULTILINE)


def read_options(options: Mapping[str, object]) -> SinkOptions:
    """``parse`` and ``complete``; raises InvalidOption."""
    return complete(parse(options))


def complete(options: SinkOptions) -> SinkOptions:
    """Parsed options with what tasks could not find out, after librdkafka has checked all settings.

    Needs the driver's machine: its Java if the trust store is in one of Java's formats, which may
    take a minute, its file of a key store of type JKS, and its environment if the servers do not
    show the region of Amazon's cluster.
    Raises InvalidOption.
    """
    client = completed(options.producer.client)
    _check_together(client)
    return replace(options, producer=replace(options.producer, client=client))


def completed(settings: ClientSettings) -> ClientSettings:
    """Settings without Java's stores, and with Amazon's region; raises InvalidOption."""
    pairs = dict(settings)
    location = pairs.pop("ssl.truststore.location", None)
    if location is not None:
        kind = pairs.pop("ssl.truststore.type")
        password = pairs.pop("ssl.truststore.password", None)
        pairs["ssl.ca.pem"] = _store_certificates(location, kind, password)
    if pairs.pop("ssl.keystore.type", None) is not None:
        _replace_key_store(pairs)
    if settings.oauth_callback == CALLBACK:
        name = "sasl.oauthbearer.config"
        pairs[name] = add_region(pairs[name], pairs["bootstrap.servers"])
    return replace(settings, pairs=tuple(sorted(pairs.items())))


@cache  # Spark builds several writers per micro-batch in one process
def _check_together(settings: ClientSettings) -> None:
    """Let librdkafka check all settings together, unless that would open files.

    Files may exist only on the executors; they are checked there.
    """
    if any(name.endswith(FILE_ENDINGS) for name in settings):
        return
    # With it, a new client logs in at the identity provider at once.
    checked = {name: value for name, value in settings.items() if name != TOKEN_METHOD}
    try:
        client = Client({**checked, "bootstrap.servers": "", "log_level": "0"})
    except ValueError as error:
        raise settings_error(str(error)) from None
    client.close(Deadline(_CLOSE_SECONDS))


def _replace_key_store(pairs: dict[str, str]) -> None:
    """Put the key and the certificates of a key store of Java's in the place of its file.

    Java reads PKCS #12 as JKS, too, and writes it since version 9; such a file stays as it is.
    Raises InvalidOption.
    """
    location = pairs[_KEY_STORE]
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise _unusable(location, str(error.strerror)) from None
    if content.startswith(_DER):
        return
    del pairs[_KEY_STORE]
    passwords = [pairs.pop(name) for name in KEY_STORE_PASSWORDS if name in pairs]
    if not content.startswith(JKS):
        kind = "JCEKS" if content.startswith(JCEKS) else "neither JKS nor PKCS12"
        raise _unusable(location, f"it is {kind}")
    try:
        entry = read_jks(content, passwords[0], passwords[-1])
    except ValueError as error:
        raise _unusable(location, str(error)) from None
    pairs["ssl.key.pem"], pairs["ssl.certificate.pem"] = entry.key, entry.chain


def _unusable(location: str, reason: str) -> InvalidOption:
    option = f"{PREFIX}{_KEY_STORE}"
    return InvalidOption(
        f"{option}={location} cannot be read as JKS on the driver: {reason}. Correct {option}, "
        ".type or .password, or kafka.ssl.key.password; or convert the store once, with "
        f"-srcalias to choose one of several keys: {key_store_conversion(location, 'JKS')}",
        option=option,
    )


# --- a trust store in one of Java's own formats, read by Java itself ------------------------------


def _store_certificates(location: str, kind: str, password: str | None) -> str:
    """The certificates that Java's clients trust with this store, as PEM text.

    ``kind``: a type of Java's, such as JKS or PKCS12. ``password`` None: as in Java, nothing checks
    whether the store was modified. Starts Java, once per process unless the file changes. Raises
    InvalidOption, which says how to convert the store.
    """
    try:
        file = Path(location).stat()
    except OSError as error:
        raise _unreadable(location, kind, str(error.strerror)) from None
    if not S_ISREG(file.st_mode):
        raise _unreadable(location, kind, "it is not a file")
    version = (file.st_ino, file.st_size, file.st_mtime_ns)
    return _cached_certificates(location, kind, password, version)


@cache  # Spark plans each micro-batch again, and every plan reads the options
def _cached_certificates(location: str, kind: str, password: str | None, _version: object) -> str:
    listing = _listing(location, kind, password)
    # Java trusts the first certificate of every entry, even of one with a key.
    first = [_CERTIFICATE.search(entry) for entry in _ENTRY.split(listing)[1:]]
    certificates = [matched[0] for matched in first if matched is not None]
    if not certificates:
        raise _unreadable(location, kind, "it has no certificate that this password shows")
    return "\n".join([*certificates, ""])


def _listing(location: str, kind: str, password: str | None) -> str:
    """What keytool prints about the store."""
    # Spark's.
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise _unreadable(location, kind, "there is none: neither JAVA_HOME nor java on the PATH")
    command = [
        java,
        "-XX:TieredStopAtLevel=1",
        "-Duser.language=en",
        # keytool, also where JAVA_HOME has no other command than java
        "sun.security.tools.keytool.Main",
        "-list", "-rfc",
        "-keystore", location,
        "-storetype", kind,
    ]  # fmt: skip
    environment = dict(os.environ)
    if password is not None:
        # Other users see the arguments of a process.
        command += ["-storepass:env", _PASSWORD_VARIABLE]
        environment[_PASSWORD_VARIABLE] = password
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=_KEYTOOL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"keytool took more than {_KEYTOOL_SECONDS:g} s"
        raise _unreadable(location, kind, reason) from None
    except OSError as error:
        raise _unreadable(location, kind, f"keytool: {error.strerror}") from None
    if answer.returncode != 0:
        reason_line = _REASON.search(answer.stdout)
        raise _unreadable(location, kind, reason_line[1] if reason_line else "keytool failed")
    return answer.stdout


def _unreadable(location: str, kind: str, reason: str) -> InvalidOption:
    store = f"-keystore {shlex.quote(location)} -storetype {shlex.quote(kind)}"
    return InvalidOption(
        f"{_TRUST_STORE}.location={location} cannot be read as {kind} with the driver's Java: "
        f"{reason}. Correct {_TRUST_STORE}.location, .type or .password; or convert the store "
        f"once, where a JDK is: keytool -list -rfc {store} > store.pem; then set "
        f"{_TRUST_STORE}.type=PEM, {_TRUST_STORE}.location=store.pem and no {_TRUST_STORE}.password"
    )

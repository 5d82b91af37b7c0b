"""[driver] Trust stores in Java's own formats, which Java reads: their certificates as PEM."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from stat import S_ISREG

from spark_kafka_sink.errors import InvalidOption

_TRUST_STORE = "kafka.ssl.truststore"
_PASSWORD_VARIABLE = "SPARK_KAFKA_SINK_STORE_PASSWORD"  # noqa: S105 - the name of a variable
_KEYTOOL_SECONDS = 60.0

_ENTRY = re.compile(r"^Entry type: ", re.MULTILINE)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_REASON = re.compile(r"^keytool error: [\w.$]+: (.+)$", re.MULTILINE)


def store_certificates(location: str, kind: str, password: str | None) -> str:
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

"""[both] Settings that depend on the files of the machine where a client is created."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from spark_kafka_sink.config.logins import fetches_tokens
from spark_kafka_sink.config.stores import pem_in_lines
from spark_kafka_sink.secret import Secret

#: where systems keep the CA certificates that they trust
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat, Amazon
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Red Hat 10
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine without its package, macOS
)

#: files of PEM, and the setting for their text
_PEM_FILES = {
    "ssl.ca.location": "ssl.ca.pem",
    "https.ca.location": "https.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
    "sasl.oauthbearer.assertion.private.key.file": "sasl.oauthbearer.assertion.private.key.pem",
}
_PROBE = "probe"

#: how the settings that name a file end
FILE_ENDINGS = (".location", ".file", ".keytab")


def ca_certificates() -> str | None:
    """The file or folder with the CA certificates that this machine trusts, if there is one.

    As OpenSSL has it, ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` come first. A machine may have none of
    its own; then those of the package certifi.
    """
    return next((path for path in _candidates() if Path(path).exists()), None)


def _candidates() -> Iterator[str]:
    import ssl  # here, because a worker without TLS starts sooner

    folders = os.environ.get("SSL_CERT_DIR", "").split(os.pathsep)
    yield from filter(None, [os.environ.get("SSL_CERT_FILE"), *folders])
    yield from BUNDLES
    yield ssl.get_default_verify_paths().openssl_cafile
    if importlib.util.find_spec("certifi"):
        import certifi

        yield certifi.where()


def add_local_files(settings: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings, with this machine's CA certificates, and with PEM that it can read.

    The library looks for them where its build says, for https even if there is no such file.
    """
    result = dict(settings)
    if settings.get("security.protocol", "").endswith("ssl"):
        _add_ca_certificates(result, "ssl")
    if fetches_tokens(settings):
        _add_ca_certificates(result, "https")
    for location, text in _PEM_FILES.items():
        pem = pem_to_pass(location, Path(result[location])) if location in result else None
        if pem is not None:
            del result[location]
            result[text] = pem
    return result


def file_versions(settings: Mapping[str, str]) -> tuple[object, ...]:
    """What differs once a file that the settings name was replaced; the order is theirs."""
    return tuple(
        _version(Path(value)) for name, value in settings.items() if name.endswith(FILE_ENDINGS)
    )


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        file = path.stat()
    except (OSError, ValueError):  # no file, or no path
        return None
    return file.st_ino, file.st_size, file.st_mtime_ns


def _add_ca_certificates(settings: dict[str, str], kind: str) -> None:
    location = f"{kind}.ca.location"
    if f"{kind}.ca.pem" in settings or settings.get(location, _PROBE) != _PROBE:
        return
    path = ca_certificates()
    if path is not None:
        settings[location] = path


def pem_to_pass(location: str, path: Path) -> str | None:
    """The text of a file that the client could not read itself, or None.

    OpenSSL requires line breaks that Java does not. For https, the client reads no folders.
    """
    try:
        if path.is_dir():
            if location != "https.ca.location":
                return None
            return "".join(pem_in_lines(_text(file)) for file in path.iterdir() if file.is_file())
        return _pem_of_file(path, _version(path))
    except OSError:
        return None  # the client says so


@cache  # a system's file has some 150 certificates, and each task may create clients
def _pem_of_file(path: Path, _version: object) -> str | None:
    text = _text(path)
    pem = pem_in_lines(text)
    return None if _lines(pem) == _lines(text) else pem


def _text(path: Path) -> str:
    return Secret(path.read_bytes().decode(errors="replace"))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]

"""Certificates for brokers and clients, as Kafka reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from spark_kafka_sink.tools.local_servers.java import java_home


def chain_pem(certificate: trustme.LeafCert) -> str:
    return b"".join(pem.bytes() for pem in certificate.cert_chain_pems).decode()


def key_pem(certificate: trustme.LeafCert, password: str | None = None) -> str:
    """The private key as PKCS #8, because Kafka reads no other."""
    pem = _key(certificate).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    if password is None:
        return pem.decode()
    # Java 17 reads no newer encryption (JDK-8231581), and cryptography writes no older one.
    command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{password}"]
    return subprocess.run(command, input=pem, capture_output=True, check=True).stdout.decode()


def write_pem(certificate: trustme.LeafCert, path: Path, password: str | None = None) -> Path:
    """Write the private key and the chain to one file."""
    path.write_text(key_pem(certificate, password) + chain_pem(certificate))
    return path


def write_pkcs12(certificate: trustme.LeafCert, path: Path, password: str) -> Path:
    """Write the private key and the certificate as PKCS #12."""
    leaf = load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes())
    encryption = BestAvailableEncryption(password.encode())
    path.write_bytes(
        serialize_key_and_certificates(b"client", _key(certificate), leaf, None, encryption)
    )
    return path


def write_jks(pkcs12: Path, path: Path, password: str) -> Path:
    """Write what is in a PKCS #12 file with the same password as Java's own JKS."""
    keytool(
        "-importkeystore", "-srckeystore", pkcs12, "-srcstoretype", "PKCS12",
        "-srcstorepass", password,
        "-destkeystore", path, "-deststoretype", "JKS", "-deststorepass", password, "-noprompt",
    )  # fmt: skip
    return path


def write_trust_store(certificate: Path, path: Path, kind: str, password: str) -> Path:
    """Write the certificate in a PEM file to a store of Java's own."""
    keytool(
        "-importcert", "-noprompt", "-alias", "authority", "-file", certificate,
        "-keystore", path, "-storetype", kind, "-storepass", password,
    )  # fmt: skip
    return path


def write_listing(store: Path, path: Path, kind: str, password: str) -> Path:
    """Write what keytool prints about a store, PEM among other text."""
    arguments = ("-keystore", store, "-storetype", kind, "-storepass", password)
    path.write_bytes(keytool("-list", "-rfc", *arguments))
    return path


def keytool(*arguments: object) -> bytes:
    java = java_home() / "bin" / "java"
    # As the sink starts it: Java's second compiler costs more than it saves.
    command = [java, "-XX:TieredStopAtLevel=1", "sun.security.tools.keytool.Main", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout


def _key(certificate: trustme.LeafCert) -> PrivateKeyTypes:
    return load_pem_private_key(certificate.private_key_pem.bytes(), None)

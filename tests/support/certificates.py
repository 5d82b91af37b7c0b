"""Certificates for brokers, as Kafka reads them."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


def write_server_pem(certificate: trustme.LeafCert, path: Path) -> Path:
    """Write the private key, which Kafka reads only as PKCS #8, and the chain to one file."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem + b"".join(each.bytes() for each in certificate.cert_chain_pems))
    return path

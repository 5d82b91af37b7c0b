"""[driver] Java's key stores of type JKS, whose private key and certificates become PEM text.

The format has not changed since Java 1.2. Reading it here needs no Java, and puts the key into no
other file.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.stores import (
    KEY_STORE_PASSWORDS,
    key_store_conversion,
    pem_in_lines,
)
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

_KEY_STORE = "ssl.keystore.location"
_DER = b"\x30"  # what PKCS #12 begins with
_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"

_VERSION = 2  # since Java 1.2
_PRIVATE_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = 20  # of SHA-1
_MIN_OCTETS = 2 + 2 * _DIGEST_BYTES  # tag, length, salt, digest
_WHITENER = b"Mighty Aphrodite"
# Sun's own protection of private keys, 1.3.6.1.4.1.42.2.17.1.1
_PROTECTION = bytes.fromhex("060a2b060104012a02110101")
_NO_PARAMETERS = b"\x05\x00"
_LONG_LENGTH = 0x80


def replace_key_store(pairs: dict[str, str]) -> None:
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
    if not content.startswith(_JKS):
        kind = "JCEKS" if content.startswith(_JCEKS) else "neither JKS nor PKCS12"
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


@dataclass(frozen=True)
class KeyEntry:
    """A private key and its chain as PEM text."""

    key: str
    chain: str


def read_jks(content: bytes, password: str, key_password: str) -> KeyEntry:
    """The private key of a key store, and the certificates that go with it.

    Raises ValueError, whose text says why it cannot be used, and shows no secret.
    """
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if not hmac.compare_digest(_sha1(_utf16(password) + _WHITENER + body), digest):
        raise ValueError("its password is wrong, or the file is damaged")
    reader = _Reader(body, len(_JKS))
    if reader.number(4) != _VERSION:
        raise ValueError("its version is unknown")
    entries = dict(reader.entry() for _ in range(reader.number(4)))
    keys = {alias: entry for alias, entry in entries.items() if entry is not None}
    if not keys:
        raise ValueError("it has no private key")
    if len(keys) > 1:
        raise ValueError(f"it has several private keys: {', '.join(sorted(keys))}")
    ((protected, chain),) = keys.values()
    return KeyEntry(
        Secret(_pem("PRIVATE KEY", _unprotected(protected, _utf16(key_password)))),
        "".join(_pem("CERTIFICATE", certificate) for certificate in chain),
    )


class _Reader:
    """Reads what java.io.DataOutputStream has written."""

    def __init__(self, content: bytes, position: int):
        self._content = content
        self._position = position

    def data(self, length: int) -> bytes:
        self._position += length
        return self._content[self._position - length : self._position]

    def number(self, length: int) -> int:
        return int.from_bytes(self.data(length), "big")

    def text(self) -> str:
        return self.data(self.number(2)).decode(errors="replace")

    def certificate(self) -> bytes:
        self.text()  # its type, X.509
        return self.data(self.number(4))

    def entry(self) -> tuple[str, tuple[bytes, list[bytes]] | None]:
        """The alias, and a protected key with its chain; None for a certificate alone."""
        kind, alias, _created = self.number(4), self.text(), self.number(8)
        if kind == _CERTIFICATE:
            self.certificate()
            return alias, None
        if kind != _PRIVATE_KEY:
            raise ValueError("an entry is of an unknown kind")
        protected = self.data(self.number(4))
        return alias, (protected, [self.certificate() for _ in range(self.number(4))])


def _unprotected(protected: bytes, password: bytes) -> bytes:
    """The key in the DER of PKCS #8: salt, key and digest, of which the key is XORed with SHA-1."""
    _, is_protected, octets = protected.partition(_PROTECTION)
    octets = octets.removeprefix(_NO_PARAMETERS)
    if not is_protected or len(octets) < _MIN_OCTETS:
        raise ValueError("its private key is protected in an unknown way")
    length_bytes = octets[1] - _LONG_LENGTH if octets[1] > _LONG_LENGTH else 0
    data = octets[2 + length_bytes :]
    salt, encrypted, digest = (
        data[:_DIGEST_BYTES],
        data[_DIGEST_BYTES:-_DIGEST_BYTES],
        data[-_DIGEST_BYTES:],
    )
    stream, block = b"", salt
    while len(stream) < len(encrypted):
        block = _sha1(password + block)
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, stream))  # noqa: B905 - the stream is longer
    if not hmac.compare_digest(_sha1(password + key), digest):
        raise ValueError("the password of its private key is wrong")
    return key


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _pem(label: str, der: bytes) -> str:
    text = b64encode(der).decode()
    return pem_in_lines(f"-----BEGIN {label}-----{text}-----END {label}-----")

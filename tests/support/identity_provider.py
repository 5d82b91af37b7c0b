"""An identity provider: signed tokens for a client's id and secret, and the key to verify them."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from http_stub import served

CLIENT_ID, CLIENT_SECRET = "alice", "secret-of-alice"
_KEY_ID = "1"


@dataclass
class IdentityProvider:
    """``token_requests``: the forms that clients have sent. ``lifetime``: in each answer."""

    token_url: str = ""
    keys_url: str = ""
    token_requests: list[dict[str, list[str]]] = field(default_factory=list)
    lifetime: dict[str, object] = field(default_factory=lambda: {"expires_in": 600})


@contextmanager
def identity_provider(tls: ssl.SSLContext | None = None) -> Iterator[IdentityProvider]:
    key = generate_private_key(65537, 2048)
    numbers = key.public_key().public_numbers()
    public = {
        "kty": "RSA",
        "kid": _KEY_ID,
        "use": "sig",
        "alg": "RS256",
        "n": _encoded(numbers.n.to_bytes(256, "big")),
        "e": _encoded(numbers.e.to_bytes(3, "big")),
    }
    credentials = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
    provider = IdentityProvider()

    def answer(path: str, headers: Message) -> tuple[int, object]:
        if path == "/keys":
            return 200, {"keys": [public]}
        if headers["Authorization"] != f"Basic {credentials}":
            return 401, {"error": "invalid_client"}
        provider.token_requests.append(parse_qs(headers.get_payload()))
        return 200, {"access_token": token(), "token_type": "Bearer", **provider.lifetime}

    def token() -> str:
        now = int(time.time())
        claims = {"sub": CLIENT_ID, "iat": now, "exp": now + 600, "scope": "kafka"}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}, claims)
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_encoded(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    with served(answer, tls) as url:
        provider.token_url, provider.keys_url = f"{url}/token", f"{url}/keys"
        yield provider


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")

"""An identity provider's token endpoint (OIDC client credentials)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message

from http_stub import served


@contextmanager
def token_endpoint(make: Callable[[], str], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Its URL. Clients with a secret get what ``make`` returns, except at ``/rejected``."""

    def answer(path: str, headers: Message) -> tuple[int, object]:
        has_secret = headers.get("Authorization", "").startswith("Basic ")
        if has_secret and path != "/rejected":
            return 200, {"access_token": make(), "expires_in": 600}
        return 401, {"error": "invalid_client"}

    with served(answer, tls) as url:
        yield f"{url}/token"

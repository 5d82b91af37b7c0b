"""An identity provider's token endpoint (OIDC client credentials)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from http_stub import JsonHandler, served


@contextmanager
def token_endpoint(make: Callable[[], str]) -> Iterator[str]:
    """Its URL; it gives what ``make`` returns to clients with a secret, at ``/refused`` to none."""

    class Endpoint(JsonHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            has_secret = self.headers.get("Authorization", "").startswith("Basic ")
            if has_secret and self.path != "/refused":
                self.answer(200, {"access_token": make(), "expires_in": 600})
            else:
                self.answer(401, {"error": "invalid_client"})

    with served(Endpoint) as url:
        yield f"{url}/token"

"""An identity provider's token endpoint (OIDC client credentials)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def token_endpoint(make: Callable[[], str]) -> Iterator[str]:
    """Its URL; it gives what ``make`` returns to clients with a secret, at ``/refused`` to none."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            has_secret = self.headers.get("Authorization", "").startswith("Basic ")
            is_known = has_secret and self.path != "/refused"
            answer = (
                {"access_token": make(), "expires_in": 600}
                if is_known
                else {"error": "invalid_client"}
            )
            body = json.dumps(answer).encode()
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

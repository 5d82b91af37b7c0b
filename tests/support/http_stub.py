"""An HTTP server on loopback that stands for a service and answers with JSON."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def served(
    answer: Callable[[str, Message], tuple[int, object]], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Its URL, without a path.

    ``answer``: path and headers of a request -> status and content. The body of a POST is the
    headers' payload.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, content = answer(self.path, self.headers)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.headers.set_payload(body.decode())
            self.do_GET()

        def log_message(self, *_):
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

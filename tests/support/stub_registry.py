"""A schema registry's API in this process, for faults: it registers, and answers as it is told."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


def basic(login: str) -> str:
    """The header of a login, ``user:password``."""
    return f"Basic {base64.b64encode(login.encode()).decode()}"


@dataclass
class StubRegistry:
    """``failure``: (status, body) of every answer from now on; ``delay_seconds`` before each.

    ``content_type``: that of every answer.
    ``failing_subject``: only its answers fail. ``tenants``: the registries of other logins or
    logical clusters at this URL. ``most_at_once``: how many requests there were at a time.
    """

    url: str = ""
    requests: list[str] = field(default_factory=list)
    subjects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failure: tuple[int, bytes] | None = None
    content_type: str = "application/json"
    delay_seconds: float = 0.0
    authorization: str | None = None
    last_headers: Message = field(default_factory=Message)
    first_id: int = 1
    is_compatible: bool = True
    gives_guids: bool = True
    failing_subject: str = ""
    tenants: dict[str | None, StubRegistry] = field(default_factory=dict)
    open_requests: int = 0
    most_at_once: int = 0

    def add(self, subject: str, schema: str, schema_type: str = "AVRO") -> int:
        """Register as a client would; returns the id."""
        return self._register(subject, {"schema": schema, "schemaType": schema_type})["id"]

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts[:2] == ["compatibility", "subjects"]:
            return 200, {"is_compatible": self.is_compatible}
        subject = parts[1] if len(parts) > 1 else ""
        if subject == self.failing_subject:
            return 422, {"error_code": 42201, "message": "no"}
        if parts[0] == "schemas" and parts[1] in ("ids", "guids"):
            every = [version for versions in self.subjects.values() for version in versions]
            field = parts[1].removesuffix("s")
            matching = [version for version in every if str(version.get(field)) == parts[2]]
            return (
                (200, matching[0]) if matching else (404, {"error_code": 40403, "message": "none"})
            )
        if method == "POST" and parts[2:] == ["versions"]:
            return 200, self._register(subject, body)
        if method == "POST":
            matching = [e for e in self.subjects.get(subject, []) if e["schema"] == body["schema"]]
            return (
                (200, matching[0]) if matching else (404, {"error_code": 40403, "message": "none"})
            )
        versions = self.subjects.get(subject, [])
        return (200, versions[-1]) if versions else (404, {"error_code": 40401, "message": "none"})

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        schema, kind = body["schema"], body.get("schemaType", "AVRO")
        versions = self.subjects.setdefault(subject, [])
        for version in versions:
            if version["schema"] == schema:
                return version
        every = {e["schema"]: e["id"] for v in self.subjects.values() for e in v}
        number = every.get(schema, self.first_id + len(every))
        entry = {
            "subject": subject,
            "version": len(versions) + 1,
            "id": number,
            "schema": schema,
            "schemaType": kind,
        }
        if self.gives_guids:
            entry["guid"] = str(uuid.uuid5(uuid.NAMESPACE_OID, schema))
        versions.append(entry)
        return entry


@contextmanager
def running_stub(tls: ssl.SSLContext | None = None) -> Iterator[StubRegistry]:
    stub = StubRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _wait(self) -> None:
            with lock:
                stub.open_requests += 1
                stub.most_at_once = max(stub.most_at_once, stub.open_requests)
            time.sleep(stub.delay_seconds)
            with lock:
                stub.open_requests -= 1

        def _answer(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            stub.requests.append(f"{method} {self.path}")
            stub.last_headers = self.headers
            self._wait()
            if stub.failure is not None:
                status, text = stub.failure
            elif stub.authorization not in (None, self.headers.get("Authorization")):
                status, text = 401, b'{"error_code": 401, "message": "who are you?"}'
            else:
                login = self.headers.get("Authorization")
                tenant = stub.tenants.get(self.headers.get("target-sr-cluster"))
                tenant = tenant or stub.tenants.get(login) or stub
                with lock:
                    status, answer = tenant.answer(method, self.path, body)
                text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", stub.content_type)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with suppress(ConnectionError):  # whoever asked has given up
                self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            pass

    lock = threading.Lock()  # guards the schemas and the numbers of requests

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # with 5, Linux resets some of 16 connections at once

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    stub.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""LocalRegistry: Apicurio Registry on this machine, for demos and tests.

It answers Confluent's API, on a free loopback port, and keeps schemas in memory. It ends with the
process that started it, even if that is killed, unless it is detached.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_servers.downloads import fetch_archive
from spark_kafka_sink.tools.local_servers.java import java_home, os_errors_as
from spark_kafka_sink.tools.local_servers.processes import GuardedProcess, is_running
from spark_kafka_sink.tools.local_servers.server import LocalServer

__all__ = ["LocalRegistry"]

APICURIO_VERSION = "3.3.3"
_SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_JAVA = 21  # Apicurio's
_API = "/apis/ccompat/v7"
_START_SECONDS = 60.0
_LISTENING = re.compile(r"Listening on: (http://127\.0\.0\.1:\d+)")
_INSTEAD = "To use an existing registry instead, set SCHEMA_REGISTRY_URL"


class LocalRegistry(LocalServer):
    """A schema registry for ``with LocalRegistry() as registry``; its address is ``registry.url``.

    ``folder``: keeps its log (``registry.log``). The default is a temporary folder, which is
    removed at the end unless the registry did not start.

    Needs Java 21 or later. Entering takes a few seconds, and downloads 155 MB the first time.
    Raises LocalServerError.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__("registry", folder)
        self.url = ""

    def __enter__(self) -> LocalRegistry:
        java = str(java_home(_JAVA) / "bin" / "java")  # before the download: it may be missing
        program = fetch_archive(
            "io.apicurio",
            "apicurio-registry-app",
            APICURIO_VERSION,
            "all",
            _SHA256,
            instead=_INSTEAD,
        )
        try:
            with os_errors_as(f"The registry must be able to write to {self.folder}"):
                self.folder.mkdir(parents=True, exist_ok=True)
                process = GuardedProcess(self._command(java, program), self._log)
                self._processes = [process]
                self.url = self._address(process.pid, Deadline(_START_SECONDS)) + _API
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def _log(self) -> Path:
        return self.folder / "registry.log"

    def _command(self, java: str, program: Path) -> list[str]:
        return [
            java,
            "-Xmx512m",
            # for a fast start, since it serves few clients
            "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Djava.io.tmpdir={self.folder}",
            "-Dapicurio.storage.kind=sql", "-Dapicurio.storage.sql.kind=h2",
            "-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=0",
            "-Dquarkus.management.host=127.0.0.1", "-Dquarkus.management.port=0",
            "-jar", str(program / "quarkus-run.jar"),
        ]  # fmt: skip

    def _address(self, pid: int, deadline: Deadline) -> str:
        """Wait until the log says where it listens, and return that address."""
        while True:
            has_ended = not is_running(pid)  # first: what it wrote at its end is then in the log
            log = self._log.read_text(errors="replace")
            if listening := _LISTENING.search(log):
                return listening.group(1)
            if has_ended:
                raise LocalServerError(
                    f"the registry exited during startup; see {self._log}\n{log[-1500:]}"
                )
            if deadline.expired:
                raise LocalServerError(
                    f"the registry did not start within {_START_SECONDS:g} s; see {self._log}"
                )
            time.sleep(0.05)  # there is no event when a log grows

"""Schemas that a registry has answered for, kept for the process and in a folder.

A registry that goes away stops no query whose schemas are known. Spark plans micro-batches in
Python processes that come and go. Those of the driver share a folder, and those of each executor.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from spark_kafka_sink.bounded import call_each
from spark_kafka_sink.config.registry_options import RegistryOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.registry.client import RegisteredSchema, RegistryClient
from spark_kafka_sink.registry.failures import unavailable

# The questions of a client may wait for one another; each has the deadline of its own, too.
_EXTRA_SECONDS = 1.0


@dataclass(frozen=True)
class WantedSchema:
    """What the registry is asked for. ``schema`` None: the subject's latest version."""

    subject: str
    format: str
    schema: str | None
    auto_register: bool
    normalize: bool


_known: dict[tuple[RegistryOptions, WantedSchema], RegisteredSchema] = {}
_lock = threading.Lock()


def resolve(
    registry: RegistryOptions, wanted: Sequence[WantedSchema], folder: Path | None
) -> Mapping[WantedSchema, RegisteredSchema]:
    """The registered schemas; those that are not known are requested all at once.

    ``folder``: the application's, or None. Raises what ``RegistryClient`` raises.
    """
    found = {each: _find(registry, each, folder) for each in dict.fromkeys(wanted)}
    missing = [each for each, schema in found.items() if schema is None]
    client = _client(registry, os.getpid()) if missing else None
    deadline = Deadline(registry.timeout_ms / 1000 + _EXTRA_SECONDS)
    for each, call in zip(
        missing,
        call_each(lambda each: _request(client, each), missing, deadline),
        strict=True,
    ):
        if isinstance(call.error, TimeoutError):
            raise unavailable(registry, each.subject, str(call.error))
        if call.error is not None:
            raise call.error
        if call.value is not None:
            found[each] = _kept(registry, each, call.value, folder)
    return {each: schema for each, schema in found.items() if schema is not None}


@cache
def _client(registry: RegistryOptions, pid: int) -> RegistryClient:  # noqa: ARG001
    """One client per process: its connections do not survive a fork."""
    return RegistryClient(registry)


def _request(client: RegistryClient | None, wanted: WantedSchema) -> RegisteredSchema:
    assert client is not None  # noqa: S101 - there is one if something is missing
    if wanted.schema is None:
        return client.latest(wanted.subject, wanted.format)
    ask = client.register if wanted.auto_register else client.look_up
    return ask(wanted.subject, wanted.format, wanted.schema, normalize=wanted.normalize)


def _find(
    registry: RegistryOptions, wanted: WantedSchema, folder: Path | None
) -> RegisteredSchema | None:
    with _lock:
        known = _known.get((registry, wanted))
    if known is None and folder is not None:
        known = _read(_file(registry, wanted, folder))
        if known is not None:
            with _lock:
                _known[registry, wanted] = known
    return known


def _kept(
    registry: RegistryOptions, wanted: WantedSchema, schema: RegisteredSchema, folder: Path | None
) -> RegisteredSchema:
    """Remember an answer; returns that of another process if it was first.

    A folder that cannot be written is as good as none.
    """
    if folder is not None:
        path = _file(registry, wanted, folder)
        with suppress(OSError):
            _write(path, schema)
        schema = _read(path) or schema
    with _lock:
        return _known.setdefault((registry, wanted), schema)


def _write(path: Path, schema: RegisteredSchema) -> None:
    """Write a file that is not there yet. It appears complete, readable for this user only."""
    handle, draft = tempfile.mkstemp(prefix="kafka-nb-schema-", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(schema), file)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links; there the last one wins
        Path(draft).replace(path)
        return
    Path(draft).unlink()


def _read(path: Path) -> RegisteredSchema | None:
    with suppress(OSError, ValueError, TypeError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            return RegisteredSchema(**json.loads(path.read_text(encoding="utf-8")))
    return None


def _file(registry: RegistryOptions, wanted: WantedSchema, folder: Path) -> Path:
    """The file of one answer. Its name contains no secret, not even hashed."""
    public = json.dumps([registry.url, asdict(wanted)], sort_keys=True)
    return folder / f"kafka-nb-schema-{hashlib.sha256(public.encode()).hexdigest()}"

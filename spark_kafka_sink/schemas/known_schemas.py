"""[both] Schemas that a registry has answered for, kept for the process and in a folder.

A registry that goes away stops no query whose schemas are known. Spark plans micro-batches in
Python processes that come and go. Those of the driver share a folder, and those of each executor.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from spark_kafka_sink import application_files
from spark_kafka_sink.clients.local_files import file_versions
from spark_kafka_sink.config.registry_options import RegistryOptions
from spark_kafka_sink.errors import SchemaNotFound
from spark_kafka_sink.process_limits import thread_limit_reached
from spark_kafka_sink.schemas.registry_client import RegisteredSchema, RegistryClient
from spark_kafka_sink.threads import per_process

_REQUESTS_AT_A_TIME = 16
_PREFIX = f"{application_files.PREFIX}schema-"


@dataclass(frozen=True)
class WantedSchema:
    """A schema to ask the registry for. ``schema`` None: the subject's latest version."""

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
    """The registered schemas; raises what ``RegistryClient`` raises."""
    schemas = {}
    for key, answer in look_for(registry, wanted, folder).items():
        if isinstance(answer, SchemaNotFound):
            raise answer
        schemas[key] = answer
    return schemas


def look_for(
    registry: RegistryOptions, wanted: Sequence[WantedSchema], folder: Path | None
) -> Mapping[WantedSchema, RegisteredSchema | SchemaNotFound]:
    """Schemas, or why there are none; requests those that are not known from the registry.

    ``folder``: the application's, or None. Raises what else ``RegistryClient`` raises.
    """
    schemas: dict[WantedSchema, RegisteredSchema | SchemaNotFound] = {}
    missing = []
    for key in dict.fromkeys(wanted):
        if (known := _known_schema(registry, key, folder)) is None:
            missing.append(key)
        else:
            schemas[key] = known
    if missing:
        schemas.update(zip(missing, _request_all(registry, missing, folder), strict=True))
    return schemas


def _request_all(
    registry: RegistryOptions, wanted: Sequence[WantedSchema], folder: Path | None
) -> list[RegisteredSchema | SchemaNotFound]:
    """The registry's answers, each kept as it arrives.

    After the first failure no request begins; the next attempt requests only the rest.
    Raises LimitReached if a thread does not start.
    """
    client = _client(registry, file_versions(registry))

    def request(schema: WantedSchema) -> RegisteredSchema | SchemaNotFound:
        try:
            return _keep(registry, schema, _request(client, schema), folder)
        except SchemaNotFound as error:
            return error

    with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as pool:
        try:
            futures = [pool.submit(request, schema) for schema in wanted]
        except RuntimeError as problem:
            raise thread_limit_reached(str(problem)) from None
        wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(cancel_futures=True)
    for future in futures:
        if not future.cancelled() and (error := future.exception()) is not None:
            raise error
    return [future.result() for future in futures]


@per_process
def _client(registry: RegistryOptions, versions: object) -> RegistryClient:  # noqa: ARG001
    """One client for each version of its files."""
    return RegistryClient(registry)


def _request(client: RegistryClient, wanted: WantedSchema) -> RegisteredSchema:
    if wanted.schema is None:
        return client.latest(wanted.subject, wanted.format)
    ask = client.register if wanted.auto_register else client.look_up
    return ask(wanted.subject, wanted.format, wanted.schema, normalize=wanted.normalize)


def _known_schema(
    registry: RegistryOptions, wanted: WantedSchema, folder: Path | None
) -> RegisteredSchema | None:
    with _lock:
        known = _known.get((registry, wanted))
    path = _file(registry, wanted, folder) if known is None else None
    if path is not None and (known := _read_schema(path)) is not None:
        with _lock:
            _known[registry, wanted] = known
    return known


def _keep(
    registry: RegistryOptions, wanted: WantedSchema, schema: RegisteredSchema, folder: Path | None
) -> RegisteredSchema:
    """Remember an answer; returns that of another process if it was first.

    An unwritable folder is treated as no folder.
    """
    path = _file(registry, wanted, folder)
    if path is not None:
        application_files.write(path, json.dumps(asdict(schema)).encode())
        schema = _read_schema(path) or schema
    with _lock:
        return _known.setdefault((registry, wanted), schema)


def _file(registry: RegistryOptions, wanted: WantedSchema, folder: Path | None) -> Path | None:
    """The file of one answer, or None. Two logins at one URL may reach two registries.

    Its name shows nothing of the login: a random key of the application hashes it.
    """
    if folder is None:
        return None
    key_file = folder / f"{_PREFIX}key"
    if application_files.read(key_file) is None:
        application_files.write(key_file, secrets.token_bytes(32))
    key = application_files.read(key_file)
    if key is None:
        return None
    question = json.dumps([registry.url, registry.pairs, asdict(wanted)])
    return folder / f"{_PREFIX}{hmac.digest(key, question.encode(), 'sha256').hex()}"


def _read_schema(path: Path) -> RegisteredSchema | None:
    with suppress(ValueError, TypeError):
        return RegisteredSchema(**json.loads(application_files.read(path) or b""))
    return None

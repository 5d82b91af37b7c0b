"""RegistryClient: what the sink asks of a schema registry, each question with a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.bounded import call_each
from spark_kafka_sink.config.local_files import authorities, pem_to_pass
from spark_kafka_sink.config.registry_options import FILES, REGISTRY_PREFIX, RegistryOptions
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import (
    InvalidOption,
    LibraryUnavailable,
    RegistryRefused,
)
from spark_kafka_sink.registry.failures import named, unavailable

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_TYPES = {"avro": "AVRO", "json": "JSON"}
_RETRIES = 3
_FIRST_RETRY_MS = 100
_LONGEST_RETRY_MS = 1000


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry has it: ``schema`` is its text; ``guid`` None: not given."""

    id: int
    guid: str | None
    schema: str


class RegistryClient:
    """A client of confluent-kafka's, whose calls end in time and fail by name.

    Raises InvalidOption for settings that contradict each other, LibraryUnavailable if the extra
    ``[registry]`` is not installed.
    """

    def __init__(self, options: RegistryOptions) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise LibraryUnavailable(
                f"the schema registry's client is not installed ({error}): run "
                "pip install 'spark-kafka-sink[registry]' on the driver and on all executors"
            ) from None
        self._options = options
        for name in FILES:
            if name in options and not Path(options[name]).exists():
                # the client's error does not say which
                raise InvalidOption(f"{REGISTRY_PREFIX}{name}={options[name]} does not exist here")
        trust = authorities()
        settings = {
            **({} if trust is None else {"ssl.ca.location": trust}),
            **options,
            "url": options.url,
            "timeout": options.timeout_ms / 1000,
            "max.retries": _RETRIES,
            "retries.wait.ms": _FIRST_RETRY_MS,
            "retries.max.wait.ms": _LONGEST_RETRY_MS,
        }
        try:
            with _readable_pem(options) as files:
                self._client = SchemaRegistryClient({**settings, **files})
            _trust_as_registry(self._client, options)
        except Exception as error:  # noqa: BLE001 - also those of its HTTP library
            raise InvalidOption(
                "the schema registry's client rejects its settings (schema.registry.*): "
                f"{options.hide_secrets(str(error))}"
            ) from None

    def close(self) -> None:
        """Close its connections."""
        self._client.__exit__()  # type: ignore[no-untyped-call]  # 2.14 has no close()

    def register(
        self, subject: str, schema_format: str, schema: str, *, normalize: bool
    ) -> RegisteredSchema:
        """Register a schema, if it is new; raises the errors of ``failures``."""
        wanted = _schema(schema, schema_format)
        answer = self._ask_for_schema(
            subject,
            lambda: self._client.register_schema_full_response(subject, wanted, normalize),
        )
        return RegisteredSchema(answer.schema_id, answer.guid, schema)

    def look_up(
        self, subject: str, schema_format: str, schema: str, *, normalize: bool
    ) -> RegisteredSchema:
        """A schema that is registered; raises SchemaNotFound and the errors of ``failures``."""
        wanted = _schema(schema, schema_format)
        answer = self._ask_for_schema(
            subject, lambda: self._client.lookup_schema(subject, wanted, normalize)
        )
        return RegisteredSchema(answer.schema_id, answer.guid, schema)

    def latest(self, subject: str, schema_format: str) -> RegisteredSchema:
        """The subject's latest version; raises SchemaNotFound and the errors of ``failures``.

        Raises RegistryRefused if it is not a schema of that format, or refers to others.
        """
        answer = self._ask_for_schema(subject, lambda: self._client.get_latest_version(subject))
        schema = answer.schema
        if (schema.schema_type or "AVRO") != _TYPES[schema_format]:
            raise RegistryRefused(
                f"the latest schema of the subject {subject} is {schema.schema_type}, not "
                f"{_TYPES[schema_format]}; correct the format or the subject"
            )
        if schema.references:
            raise RegistryRefused(
                f"the latest schema of the subject {subject} refers to other subjects, which this "
                "sink does not follow; register one schema that contains them"
            )
        return RegisteredSchema(answer.schema_id, answer.guid, schema.schema_str)

    def is_compatible(
        self, subject: str, schema_format: str, schema: str, *, normalize: bool
    ) -> bool:
        """Whether the subject's level allows the schema, which is not registered.

        Raises the errors of ``failures``.
        """
        wanted = _schema(schema, schema_format)
        return bool(
            self._ask(
                subject,
                lambda: self._client.test_compatibility_all_versions(subject, wanted, normalize),
            )
        )

    def _ask_for_schema(self, subject: str, question: Callable[[], Any]) -> Any:
        """The answer, which has an id."""
        answer = self._ask(subject, question)
        if answer is None or getattr(answer, "schema_id", None) is None:
            problem = "its answer has no id; is it a schema registry?"
            raise unavailable(self._options, subject, problem)
        return answer

    def _ask(self, subject: str, question: Callable[[], Any]) -> Any:
        """The answer; raises what ``failures`` makes of an error."""
        deadline = Deadline(self._options.timeout_ms / 1000)
        (call,) = call_each(lambda ask: ask(), [question], deadline)
        if call.error is not None:
            raise named(call.error, self._options, subject) from None
        return call.value


@contextmanager
def _readable_pem(options: RegistryOptions) -> Iterator[dict[str, str]]:
    """Copies of the files that lack line breaks; the client reads them when it is created."""
    with ExitStack() as copies:
        files = {}
        for name in FILES:
            pem = pem_to_pass(name, Path(options[name])) if name in options else None
            if pem is not None:
                copy = copies.enter_context(NamedTemporaryFile("w"))  # only its owner reads it
                copy.write(pem)
                copy.flush()
                files[name] = copy.name
        yield files


def _trust_as_registry(client: SchemaRegistryClient, options: RegistryOptions) -> None:
    """Let the client trust the same authorities when it fetches tokens; it has no option for it."""
    from authlib.integrations.httpx_client import OAuth2Client

    registry = client._rest_client  # noqa: SLF001
    tokens = registry.bearer_field_provider
    if isinstance(getattr(tokens, "client", None), OAuth2Client):
        tokens.client = OAuth2Client(
            client_id=options["bearer.auth.client.id"],
            client_secret=options["bearer.auth.client.secret"],
            scope=options["bearer.auth.scope"],
            verify=registry.verify,
        )


def _schema(schema: str, schema_format: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(schema, _TYPES[schema_format])

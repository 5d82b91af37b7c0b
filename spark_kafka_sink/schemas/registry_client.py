"""[both] RegistryClient: what the sink asks of a schema registry, each question with a deadline."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from urllib.request import getproxies

from spark_kafka_sink.advice import (
    Advice,
    advice_on_text,
    concerns_openssl,
    openssl_variables,
    proxy_variable,
)
from spark_kafka_sink.clients.local_files import ca_certificates, pem_to_pass
from spark_kafka_sink.config.registry_options import (
    FILES,
    REGISTRY_PREFIX,
    RegistryOptions,
    is_secret,
)
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import (
    InvalidOption,
    KafkaSinkError,
    LibraryUnavailable,
    RegistryRejected,
    RegistryUnavailable,
    SchemaIncompatible,
    SchemaNotFound,
)
from spark_kafka_sink.libraries import importing, not_loadable
from spark_kafka_sink.secret import hide, redacted
from spark_kafka_sink.threads import call_all

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

_TYPES = {"avro": "AVRO", "json": "JSON"}
_RETRIES = 3
_FIRST_RETRY_MS = 100
_MAX_RETRY_MS = 1000
_MIN_SECRET = 3
#: how long a token is used whose endpoint does not say it
_TOKEN_SECONDS = 60

_NOT_FOUND, _REQUEST_TIMEOUT, _CONFLICT, _TOO_MANY_REQUESTS, _SERVER_ERROR = 404, 408, 409, 429, 500
#: the registry's own codes for a subject, a version and a schema that it does not have
_NO_SUCH_SCHEMA = range(40401, 40404)
_REJECTIONS = {
    401: ("the login", Advice.REGISTRY_LOGIN_REJECTED),
    403: ("access", Advice.REGISTRY_LOGIN_REJECTED),
    407: ("the request", Advice.REGISTRY_BEHIND_PROXY),
    **dict.fromkeys(range(300, 400), ("the request", Advice.REGISTRY_REDIRECTS)),
}
#: its own code for a subject or registry in the mode READONLY
_READ_ONLY = 42205
_NOT_ALLOWED = (401, 403, 405)
_OTHER_REJECTION = ("the request", Advice.REGISTRY_REQUEST_REJECTED)
_PROXIES = ("http://", "https://", "socks5://", "socks5h://")
_MAY_BE_NO_REGISTRY = (Advice.REGISTRY_LOGIN_REJECTED, Advice.REGISTRY_REQUEST_REJECTED)


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry has it: ``schema`` is its text; ``guid`` None: not given."""

    id: int
    guid: str | None
    schema: str


class RegistryClient:
    """A client of confluent-kafka's, whose calls end in time and fail by name.

    Raises InvalidOption for settings that contradict each other, LibraryUnavailable if the extra
    ``[registry]`` is not installed. Every method raises RegistryUnavailable if no usable answer
    arrives, and RegistryRejected if the login or the request is rejected.
    """

    def __init__(self, options: RegistryOptions) -> None:
        with importing("confluent_kafka", extra="registry"):
            from confluent_kafka.schema_registry import SchemaRegistryClient
        self._options = options
        for name in FILES:
            if name in options and not Path(options[name]).exists():
                # the client's error does not say which
                raise InvalidOption(f"{REGISTRY_PREFIX}{name}={options[name]} does not exist here")
        trust = ca_certificates()
        urls = len(options.url.split(","))
        self._rounds = 1 if urls == 1 else 1 + _RETRIES
        settings = {
            **({} if trust is None else {"ssl.ca.location": trust}),
            **options,
            "url": options.url,
            # Each URL has its share: a silent one leaves the others time. The client would repeat
            # a request to one URL before it tries the next, so ``_ask`` repeats all of them.
            "timeout": options.timeout_ms / 1000 / urls,
            "max.retries": _RETRIES if urls == 1 else 0,
            "retries.wait.ms": _FIRST_RETRY_MS,
            "retries.max.wait.ms": _MAX_RETRY_MS,
        }
        with _naming_causes(options):
            with _readable_pem(options) as files:
                _check_certificate({**options, **files})
                self._client = _new_client(SchemaRegistryClient, {**settings, **files}, options)
            _trust_as_registry(self._client, options)
        self._token_requests = _token_requests(self._client)
        _ask_first_what_answered(self._client)

    def close(self) -> None:
        """Close its connections."""
        self._client.__exit__()  # type: ignore[no-untyped-call]  # 2.14 has no close()

    def register(
        self, subject: str, schema_format: str, schema: str, *, normalize: bool
    ) -> RegisteredSchema:
        """Register a schema, if it is new; also raises SchemaIncompatible."""
        wanted = _schema(schema, schema_format)
        answer = self._ask_for_schema(
            subject,
            lambda: self._client.register_schema_full_response(subject, wanted, normalize),
            not_found=None,
        )
        return RegisteredSchema(answer.schema_id, answer.guid, schema)

    def look_up(
        self, subject: str, schema_format: str, schema: str, *, normalize: bool
    ) -> RegisteredSchema:
        """A schema that is registered; also raises SchemaNotFound."""
        wanted = _schema(schema, schema_format)
        answer = self._ask_for_schema(
            subject, lambda: self._client.lookup_schema(subject, wanted, normalize)
        )
        return RegisteredSchema(answer.schema_id, answer.guid, schema)

    def latest(self, subject: str, schema_format: str) -> RegisteredSchema:
        """The subject's latest version; also raises SchemaNotFound.

        Raises RegistryRejected if it is no schema of that format, refers to others, or has rules.
        """
        answer = self._latest(subject)
        schema = answer.schema
        if (schema.schema_type or "AVRO") != _TYPES[schema_format]:
            raise RegistryRejected(
                f"the latest schema of the subject {subject} is {schema.schema_type}, not "
                f"{_TYPES[schema_format]}; correct the format or the subject"
            )
        if schema.references:
            raise RegistryRejected(
                f"the latest schema of the subject {subject} refers to other subjects, which this "
                "sink does not follow; register one schema that contains them"
            )
        rules = schema.rule_set
        if rules and (rules.domain_rules or getattr(rules, "encoding_rules", None)):
            raise RegistryRejected(
                f"the latest schema of the subject {subject} has rules, such as for the encryption "
                "of fields, which this sink does not apply. If records may be written without "
                "them, set the schema's text as value.schema or key.schema"
            )
        return RegisteredSchema(answer.schema_id, answer.guid, schema.schema_str)

    def any_latest(self, subject: str) -> RegisteredSchema:
        """The subject's latest version, whatever is in it; also raises SchemaNotFound."""
        answer = self._latest(subject)
        return RegisteredSchema(answer.schema_id, answer.guid, answer.schema.schema_str)

    def is_compatible(
        self, subject: str, schema_format: str, schema: str, *, normalize: bool
    ) -> bool:
        """Whether the subject's level allows the schema, which is not registered."""
        wanted = _schema(schema, schema_format)
        return bool(
            self._ask(
                subject,
                lambda: self._client.test_compatibility_all_versions(subject, wanted, normalize),
            )
        )

    def _latest(self, subject: str) -> Any:
        return self._ask_for_schema(
            subject,
            lambda: self._client.get_latest_version(subject),
            not_found=Advice.NO_LATEST_SCHEMA,
        )

    def _ask_for_schema(
        self,
        subject: str,
        question: Callable[[], Any],
        not_found: Advice | None = Advice.SCHEMA_NOT_FOUND,
    ) -> Any:
        """The answer, which has an id."""
        answer = self._ask(subject, question, not_found)
        if answer is None or getattr(answer, "schema_id", None) is None:
            problem = "its answer has no id, so it may be no schema registry"
            raise _unavailable(self._options, subject, problem)
        return answer

    def _ask(
        self,
        subject: str,
        question: Callable[[], Any],
        not_found: Advice | None = Advice.SCHEMA_NOT_FOUND,
    ) -> Any:
        """The answer; an error becomes one of the sink's.

        ``not_found``: what to do about a schema that is not there; None: the question registers it.
        """
        seconds = self._options.timeout_ms / 1000
        deadline = Deadline(seconds)
        (call,) = call_all(lambda ask: ask(), [question], deadline)
        for retry in range(self._rounds - 1):
            if not _is_passing(call.error) or deadline.remaining() < seconds / self._rounds:
                break
            time.sleep(deadline.slice(_FIRST_RETRY_MS / 1000 * 2**retry))
            (call,) = call_all(lambda ask: ask(), [question], deadline)
        error = call.error
        if isinstance(error, TimeoutError) and self._token_requests:
            from confluent_kafka.schema_registry.error import OAuthTokenError

            error = OAuthTokenError(str(error))  # as if the client had given up in time
        if error is not None:
            raise _sink_error(error, self._options, subject, not_found) from None
        return call.value


@contextmanager
def _naming_causes(options: RegistryOptions) -> Iterator[None]:
    """Raise InvalidOption for what the client says about a setting while it is created."""
    try:
        yield
    except KafkaSinkError:
        raise
    except Exception as error:  # noqa: BLE001 - including those of its HTTP library
        text = hide_secrets(str(error), options)
        if (problem := _proxy_problem(error, options)) is not None:
            raise problem from None
        if concerns_openssl(text):
            raise LibraryUnavailable(
                f"the schema registry's client cannot set up TLS: {text}"
                f"{openssl_variables(text)}. {Advice.OPENSSL_CONFIGURATION.remedy}"
            ) from None
        if "X509" in text and "ssl.ca.location" not in options:  # no option names the file
            raise LibraryUnavailable(
                f"the schema registry's client cannot set up TLS: {text}{openssl_variables(text)}. "
                f"Correct SSL_CERT_FILE, or set {REGISTRY_PREFIX}ssl.ca.location"
            ) from None
        if not isinstance(error, (OSError, ValueError)) and type(error).__name__ != "InvalidURL":
            text = f"{type(error).__name__}: {text}"  # about no setting
            raise not_loadable("confluent_kafka", text) from None
        named = "ssl.ca.location" if "X509" in text else "*"
        raise InvalidOption(
            f"the schema registry's client rejects its settings ({REGISTRY_PREFIX}{named}): {text}"
            f"{openssl_variables(text)}"
        ) from None


def _new_client(
    new: type[SchemaRegistryClient], settings: dict[str, Any], options: RegistryOptions
) -> SchemaRegistryClient:
    """A client, also where the environment names a proxy that cannot be used, but not for it."""
    try:
        return new(settings)
    except Exception as error:
        urls = options.url.split(",")
        is_theirs = "proxy" not in options and _proxy_problem(error, options) is not None
        if not is_theirs or any(map(proxy_variable, urls)):
            raise
    # Its HTTP library prepares every proxy of the environment, unless there is another one.
    client = new({**settings, "proxy": urls[0]})
    registry = client._rest_client  # noqa: SLF001
    registry.session = type(registry.session)(
        verify=registry.verify, auth=registry.auth, timeout=registry.timeout, trust_env=False
    )
    return client


def _ask_first_what_answered(client: SchemaRegistryClient) -> None:
    """Let requests begin with the URL that answered last; the client begins with the first."""
    registry = client._rest_client  # noqa: SLF001

    def note(response: Any) -> None:
        if not _is_transient(response.status_code):
            urls = registry.base_urls
            answered = [url for url in urls if str(response.url).startswith(f"{url}/")]
            registry.base_urls = answered + [url for url in urls if url not in answered]

    registry.session.event_hooks = {"response": [note]}


def _proxy_problem(error: Exception, options: RegistryOptions) -> KafkaSinkError | None:
    """What the environment lacks for a proxy: the HTTP library prepares all that it finds."""
    if isinstance(error, ImportError) and "socks" in str(error).lower():
        named = f"the option {REGISTRY_PREFIX}proxy"
        if "proxy" not in options:
            named = _proxy_variables(lambda proxy: proxy.startswith("socks"))
        return LibraryUnavailable(
            f"{named} names a SOCKS proxy, for which a package is missing: run pip install socksio "
            "on the driver and on all executors, or unset it"
        )
    if "proxy" in options:
        return None
    if "Unknown scheme for proxy" in str(error):
        named = _proxy_variables(lambda proxy: "://" in proxy and not proxy.startswith(_PROXIES))
        return RegistryUnavailable(
            f"{named} names a proxy of a kind that the schema registry's client does "
            "not know: begin it with http://, https:// or socks5://, or unset it"
        )
    if type(error).__name__ == "InvalidURL":  # the options' URLs have been checked
        return RegistryUnavailable(
            f"{_proxy_variables(bool)} does not name a proxy by its URL "
            f"({hide_secrets(str(error), options)}): correct it, or unset it"
        )
    return None


def _proxy_variables(is_meant: Callable[[str], bool]) -> str:
    """The environment's variables that name such proxies, without their values."""
    names = [
        f"{kind}_proxy".upper()
        for kind, proxy in getproxies().items()
        if kind != "no" and is_meant(proxy)
    ]
    return f"the environment variable {' or '.join(names) or 'ALL_PROXY'}"


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


def _check_certificate(settings: Mapping[str, str]) -> None:
    """Raise InvalidOption for a certificate or key that the client could not load.

    The client's own error names no file, and without a key's password the client waits for somebody
    to type it.
    """
    if "ssl.certificate.location" not in settings:
        return
    import ssl  # here, because a worker without TLS starts sooner

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(
            settings["ssl.certificate.location"],
            settings.get("ssl.key.location"),
            lambda: settings.get("ssl.key.password", ""),
        )
    except OSError as error:
        password = f"{REGISTRY_PREFIX}ssl.key.password"
        raise InvalidOption(
            f"the schema registry's client cannot load its certificate or key: {error}. Correct "
            f"{REGISTRY_PREFIX}ssl.certificate.location, {REGISTRY_PREFIX}ssl.key.location or "
            f"{password}, which a key with a password needs"
        ) from None


def _trust_as_registry(client: SchemaRegistryClient, options: RegistryOptions) -> None:
    """Let the client trust the same CA certificates when it fetches tokens of any lifetime.

    It has no option for it.
    """
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
        fetch = tokens.client.fetch_token

        def fetch_token(**request: Any) -> dict[str, Any]:
            # The client computes with the lifetime, which may be missing, or a text.
            token = fetch(**request)
            seconds = int(token.get("expires_in") or _TOKEN_SECONDS)
            return {"expires_at": time.time() + seconds, **token, "expires_in": seconds}

        tokens.client.fetch_token = fetch_token


def _token_requests(client: SchemaRegistryClient) -> list[None]:
    """One item for each token that the client is requesting, with its own attempts and waits."""
    under_way: list[None] = []
    tokens = client._rest_client.bearer_field_provider  # noqa: SLF001
    if not hasattr(tokens, "generate_access_token"):
        return under_way
    request = tokens.generate_access_token

    def noted() -> None:
        under_way.append(None)
        try:
            request()
        finally:
            under_way.pop()

    tokens.generate_access_token = noted
    return under_way


def hide_secrets(text: str, options: RegistryOptions) -> str:
    """An error's ``text`` without secrets, their parts, and those of the system's proxies."""
    values = [value for name, value in options.items() if is_secret(name)]
    values += [proxy for proxy in getproxies().values() if "@" in proxy]
    parts = {part for value in values for part in _parts(value)}
    return redacted(hide(text, (part for part in parts if len(part) >= _MIN_SECRET)))


def _parts(secret: str) -> Iterator[str]:
    """A secret, user and password in it, and what of them an error about a URL may quote."""
    user = secret.partition("://")[2].rpartition("@")[0] if "://" in secret else secret
    for text in (secret, user, user.partition(":")[2]):
        yield from (text, unquote(text))
    yield from re.split("[:/?#@]", unquote(user))


def _schema(schema: str, schema_format: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(schema, _TYPES[schema_format])


def _place(registry: RegistryOptions) -> str:
    """The registry, and the proxy that requests to it take."""
    proxy = _proxy_source(registry)
    through = f" (through the proxy of the {proxy})" if proxy else ""
    return f"the schema registry {registry.url}{through}"


def _proxy_source(registry: RegistryOptions) -> str:
    """What names the proxy that requests take; "" without one."""
    if "proxy" in registry:
        return f"option {REGISTRY_PREFIX}proxy"
    variable = next(filter(None, map(proxy_variable, registry.url.split(","))), "")
    return f"environment variable {variable}" if variable else ""


def _sink_error(
    error: Exception, registry: RegistryOptions, subject: str, not_found: Advice | None
) -> KafkaSinkError:
    """The error as RegistryUnavailable, RegistryRejected, SchemaIncompatible or SchemaNotFound."""
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    if isinstance(error, SchemaRegistryError):
        return _answer_error(error, registry, subject, not_found)
    if isinstance(error, OAuthTokenError):
        url = registry.get("bearer.auth.issuer.endpoint.url", "its endpoint")
        problem = hide_secrets(
            f"no token for the login at the schema registry {registry.url} from {url}: "
            f"{' '.join(error.message.split())}".rstrip("."),
            registry,
        )
        if _is_rejection(error.__context__):
            return RegistryRejected(f"{problem}. {Advice.REGISTRY_TOKEN_REJECTED.remedy}")
        advice = advice_on_text(problem, Advice.REGISTRY_TOKEN_UNAVAILABLE)
        return RegistryUnavailable(f"{problem}. {advice.remedy}")
    if isinstance(error, (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)):
        # The client takes every answer with status 200 for a registry's.
        return RegistryUnavailable(
            f"{_place(registry)} gave no usable answer for the subject {subject}: "
            f"it is not a schema registry's (the client failed with {type(error).__name__}). "
            f"{Advice.REGISTRY_ANSWER_UNREADABLE.remedy}"
        )
    # Some errors have no text, but each has a type.
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _unavailable(registry, subject, hide_secrets(text.rstrip("."), registry))


def _is_rejection(cause: BaseException | None) -> bool:
    """Whether the token's endpoint has rejected the client; otherwise it did not answer.

    ``cause``: of authlib, or of the HTTP library, which differs between versions of the client.
    """
    from authlib.common.errors import AuthlibBaseError

    status = getattr(getattr(cause, "response", None), "status_code", None)
    if status is not None:
        return not _is_transient(status)
    return isinstance(cause, (AuthlibBaseError, ValueError))  # the latter: it is no such endpoint


def _is_passing(error: Exception | None) -> bool:
    """Whether the same request may have an answer a moment later."""
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    if isinstance(error, OAuthTokenError):
        return not _is_rejection(error.__context__)
    if isinstance(error, SchemaRegistryError):
        return _is_transient(error.http_status_code)
    # It is an error of httpx or httpx2: confluent-kafka uses what is installed.
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)


def _is_transient(status: int) -> bool:
    return status >= _SERVER_ERROR or status in (_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS)


def _answer_error(
    error: SchemaRegistryError, registry: RegistryOptions, subject: str, not_found: Advice | None
) -> KafkaSinkError:
    status = error.http_status_code
    reason = "it gives no reason"
    if error.error_message is not None:
        reason = hide_secrets(str(error.error_message).rstrip("."), registry)
    if _is_transient(status):
        return _unavailable(registry, subject, f"HTTP {status}: {reason}")
    if status == _NOT_FOUND:
        return _not_found_error(error, registry, subject, reason, not_found)
    if status == _CONFLICT:
        return SchemaIncompatible(
            f"{_place(registry)} rejects the schema for the subject {subject} as incompatible: "
            f"{reason}. {Advice.SCHEMA_INCOMPATIBLE.remedy}",
            subject=subject,
        )
    what, advice = _REJECTIONS.get(status, _OTHER_REJECTION)
    if error.error_code == _READ_ONLY:
        advice = Advice.REGISTRY_IS_READ_ONLY
    advice = advice_on_text(f"{registry.url} {reason}", advice)
    remedies = [advice.remedy]
    # The answer is that of a server before it, or of what is no registry.
    if error.error_code in (None, -1) and advice in _MAY_BE_NO_REGISTRY:
        unreadable = Advice.REGISTRY_ANSWER_UNREADABLE.remedy
        remedies = [unreadable] if advice is _OTHER_REJECTION[1] else [*remedies, unreadable]
    if not_found is None and status in _NOT_ALLOWED and advice is not Advice.REGISTRY_IS_READ_ONLY:
        remedies.append(Advice.REGISTRY_IS_READ_ONLY.remedy)
    return RegistryRejected(
        f"{_place(registry)} rejects {what} for the subject {subject}, HTTP {status}: {reason}. "
        f"{'. '.join(remedies)}"
    )


def _not_found_error(
    error: SchemaRegistryError,
    registry: RegistryOptions,
    subject: str,
    reason: str,
    not_found: Advice | None,
) -> KafkaSinkError:
    """``reason``: the registry's. ``not_found``: as in ``RegistryClient._ask``."""
    if error.error_code not in _NO_SUCH_SCHEMA:
        hint = "its URL may lack a path, such as Apicurio's /apis/ccompat/v7"
        problem = f"HTTP {_NOT_FOUND}: {reason}; {hint}"
        return _unavailable(registry, subject, problem, Advice.REGISTRY_ANSWER_UNREADABLE)
    if not_found is None:
        problem = f"HTTP {_NOT_FOUND} to a new schema: {reason}, a fault of the registry"
        return _unavailable(registry, subject, problem)
    return SchemaNotFound(
        f"{_place(registry)} has no such schema for the subject {subject}: {reason}. "
        f"{not_found.remedy}",
        subject=subject,
    )


def _unavailable(
    registry: RegistryOptions,
    subject: str,
    problem: str,
    default: Advice = Advice.REGISTRY_UNAVAILABLE,
) -> RegistryUnavailable:
    advice = advice_on_text(f"{registry.url} {problem}", default)
    remedy = advice.remedy
    if advice is Advice.REGISTRY_UNAVAILABLE:
        remedy += f", {registry.timeout_ms} ms"
    if _proxy_source(registry):
        remedy = f"{Advice.REGISTRY_BEHIND_PROXY.remedy}. {remedy}"
    return RegistryUnavailable(
        f"{_place(registry)} gave no usable answer for the subject {subject}: {problem}"
        f"{openssl_variables(problem)}. {remedy}"
    )

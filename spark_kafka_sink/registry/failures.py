"""What a schema registry's client raises -> the sink's errors, which say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.advice import Advice, advice_on_text
from spark_kafka_sink.config.registry_options import RegistryOptions
from spark_kafka_sink.errors import (
    KafkaSinkError,
    RegistryRefused,
    RegistryUnavailable,
    SchemaIncompatible,
    SchemaNotFound,
)

if TYPE_CHECKING:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

_NOT_FOUND, _REQUEST_TIMEOUT, _CONFLICT, _TOO_MANY_REQUESTS, _SERVER_ERROR = 404, 408, 409, 429, 500
#: the registry's own codes: of a subject, a version, a schema
_NO_SUCH_SCHEMA = range(40401, 40404)
_REFUSALS = {
    401: ("the login", Advice.REGISTRY_LOGIN_REFUSED),
    403: ("access", Advice.REGISTRY_LOGIN_REFUSED),
}
_OTHER_REFUSAL = ("the request", Advice.REGISTRY_REQUEST_REFUSED)


def named(error: Exception, registry: RegistryOptions, subject: str) -> KafkaSinkError:
    """RegistryUnavailable, RegistryRefused, SchemaIncompatible or SchemaNotFound."""
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    if isinstance(error, SchemaRegistryError):
        return _answered(error, registry, subject)
    if isinstance(error, OAuthTokenError):
        url = registry.get("bearer.auth.issuer.endpoint.url", "its endpoint")
        problem = registry.hide_secrets(
            f"no token for the login at the schema registry {registry.url} from {url}: "
            f"{error.message}"
        )
        if _is_refusal(error.__context__):
            return RegistryRefused(f"{problem}. {Advice.REGISTRY_TOKEN_REFUSED.remedy}")
        advice = advice_on_text(problem, Advice.REGISTRY_TOKEN_UNAVAILABLE)
        return RegistryUnavailable(f"{problem}. {advice.remedy}")
    # Some errors have no text, but each has a type.
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return unavailable(registry, subject, registry.hide_secrets(text))


def _is_refusal(cause: BaseException | None) -> bool:
    """Whether the token's endpoint has refused; otherwise it did not answer.

    ``cause``: of authlib, or of the HTTP library, which differs between versions of the client.
    """
    from authlib.common.errors import AuthlibBaseError

    status = getattr(getattr(cause, "response", None), "status_code", None)
    if status is not None:
        return not _is_transient(status)
    return isinstance(cause, (AuthlibBaseError, ValueError))  # the latter: it is no such endpoint


def _is_transient(status: int) -> bool:
    return status >= _SERVER_ERROR or status in (_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS)


def _answered(
    error: SchemaRegistryError, registry: RegistryOptions, subject: str
) -> KafkaSinkError:
    status, place = error.http_status_code, f"the schema registry {registry.url}"
    reason = registry.hide_secrets(str(error.error_message).rstrip("."))
    if _is_transient(status):
        return unavailable(registry, subject, f"HTTP {status}: {reason}")
    if status == _NOT_FOUND and error.error_code not in _NO_SUCH_SCHEMA:
        hint = "its URL may lack a path, such as Apicurio's /apis/ccompat/v7"
        return unavailable(registry, subject, f"HTTP {status}: {reason}; {hint}")
    if status == _NOT_FOUND:
        return SchemaNotFound(
            f"{place} has no such schema for the subject {subject}: {reason}. "
            f"{Advice.SCHEMA_NOT_FOUND.remedy}",
            subject=subject,
        )
    if status == _CONFLICT:
        return SchemaIncompatible(
            f"{place} rejects the schema for the subject {subject} as incompatible: "
            f"{reason}. {Advice.SCHEMA_INCOMPATIBLE.remedy}",
            subject=subject,
        )
    what, advice = _REFUSALS.get(status, _OTHER_REFUSAL)
    advice = advice_on_text(f"{registry.url} {reason}", advice)
    return RegistryRefused(
        f"{place} refuses {what} for the subject {subject}, HTTP {status}: {reason}. "
        f"{advice.remedy}"
    )


def unavailable(registry: RegistryOptions, subject: str, problem: str) -> RegistryUnavailable:
    """The registry gave no usable answer."""
    default = Advice.REGISTRY_UNAVAILABLE
    advice = advice_on_text(f"{registry.url} {problem}", default)
    more = f", {registry.timeout_ms} ms" if advice is default else ""
    return RegistryUnavailable(
        f"the schema registry {registry.url} was asked for the subject {subject}, and gave no "
        f"usable answer: {problem}. {advice.remedy}{more}"
    )

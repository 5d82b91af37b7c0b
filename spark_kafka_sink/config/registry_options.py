"""The schema registry's client: its settings, which of them are secret, and what they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from spark_kafka_sink.config.option import did_you_mean
from spark_kafka_sink.errors import InvalidOption

REGISTRY_PREFIX = "schema.registry."

_SECRETS = frozenset(
    {
        "basic.auth.user.info",
        "bearer.auth.token",
        "bearer.auth.client.secret",
        "proxy",  # its URL may contain a password
        "ssl.key.password",
    }
)
#: settings of confluent-kafka's SchemaRegistryClient, which are Confluent's names in Java too
_PUBLIC = frozenset(
    {
        "basic.auth.credentials.source",
        "bearer.auth.client.id",
        "bearer.auth.credentials.source",
        "bearer.auth.identity.pool.id",
        "bearer.auth.issuer.endpoint.url",
        "bearer.auth.logical.cluster",
        "bearer.auth.scope",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
    }
)
SETTINGS = _SECRETS | _PUBLIC


@dataclass(frozen=True)
class RegistryOptions(Mapping[str, str]):
    """Checked settings, named without ``schema.registry.``, without secrets in the repr.

    ``timeout_ms``: how long one answer may take, with all attempts.
    """

    url: str
    pairs: tuple[tuple[str, str], ...]
    timeout_ms: int

    def __getitem__(self, name: str) -> str:
        return dict(self.pairs)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def is_secret(name: str) -> bool:
    """Whether a setting, named without prefix and in lower case, holds a secret."""
    return name in _SECRETS


def is_public(name: str) -> bool:
    """Whether the value of a setting, named without prefix and in lower case, may be shown."""
    return name in _PUBLIC


def registry_url(text: str) -> str:
    """A list of URLs, separated by commas. No ValueError shows credentials."""
    urls = [each.strip() for each in text.split(",")]
    for url in urls:
        try:
            parts = urlsplit(url)
            has_credentials = "@" in parts.netloc
        except ValueError:
            raise ValueError("the URL is malformed (its value is not shown)") from None
        if has_credentials:
            raise ValueError(
                f"'{parts.scheme}://...' contains credentials, which logs would show; set "
                f"{REGISTRY_PREFIX}basic.auth.user.info=user:password instead"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a URL that begins with http:// or https://")
    return ",".join(urls)


def check_names(names: Iterable[str]) -> None:
    """Raise InvalidOption for a setting, named without prefix, that the client does not have."""
    for name in names:
        if name not in SETTINGS:
            raise InvalidOption(
                f"{REGISTRY_PREFIX}{name} is not a setting of the schema registry's client"
                f"{did_you_mean(name, SETTINGS)}"
            )

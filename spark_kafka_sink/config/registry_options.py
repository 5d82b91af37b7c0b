"""[both] The schema registry's client: its settings, which are secret, what they become."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_kafka_sink.config.option import check_file_name, check_not_empty, did_you_mean
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import split_url

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
        "bearer.auth.issuer.endpoint.query",
        "bearer.auth.issuer.endpoint.url",
        "bearer.auth.logical.cluster",
        "bearer.auth.scope",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
    }
)
SETTINGS = _SECRETS | _PUBLIC
#: settings of the client that the sink sets itself, or whose answers it keeps itself
_OWN = frozenset(
    {
        "cache.capacity",
        "cache.latest.ttl.sec",
        "max.retries",
        "retries.max.wait.ms",
        "retries.wait.ms",
        "timeout",
    }
)

_BASIC_SOURCE = "basic.auth.credentials.source"
_USER_INFO = "USER_INFO"  # what the client does anyway
_LOGIN = f"{REGISTRY_PREFIX}basic.auth.user.info=user:password"
_WHOSE = {
    "URL": f", without credentials in {REGISTRY_PREFIX}url",
    "SASL_INHERIT": ", those of the Kafka login",
}
_BEARER_SOURCE = "bearer.auth.credentials.source"
_JAVAS_BEARER_SOURCES = ("SASL_OAUTHBEARER_INHERIT", "CUSTOM")
#: registries without Confluent's API
_OTHER_APIS = {
    r"^arn:aws[\w-]*:glue:|//([\w.-]*\.)?glue(-fips)?\.[\w.-]+\.amazonaws\.com": "AWS Glue's",
    r"//[\w.-]+\.servicebus\.[\w.-]+": "Azure's",
}
_PROXIES = ("http", "https", "socks5", "socks5h")
_ISSUER = "bearer.auth.issuer.endpoint.url"
FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


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
    """A list of URLs, separated by commas. No ValueError shows a secret."""
    for pattern, name in _OTHER_APIS.items():
        if re.search(pattern, text, re.IGNORECASE):
            raise ValueError(
                f"[hidden] is {name} registry, which does not have Confluent's API and is not "
                "supported: use one that has it, such as Karapace or Apicurio; or write bytes"
            )
    urls = []
    for url in filter(None, map(str.strip, text.split(","))):
        parts = split_url(url, may_have="")
        if "@" in parts.netloc:
            raise ValueError(
                f"[hidden] contains credentials, which logs would show; set {_LOGIN} instead"
            )
        urls.append(f"{parts.scheme}{url[len(parts.scheme) :]}")  # the client requires lower case
    if not urls:
        raise ValueError("[hidden] has no URL")
    return ",".join(urls)


def check_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, named without prefix, without those that only Java's client has.

    Raises InvalidOption, which shows no URL, for what the client does not have or cannot use.
    """
    for name, value in settings.items():
        option = REGISTRY_PREFIX + name
        if name in _OWN:
            raise InvalidOption(
                f"{option} is not supported: the sink keeps answers, and "
                f"{REGISTRY_PREFIX}request.timeout.ms bounds all attempts; remove it",
                option=option,
            )
        if name not in SETTINGS:
            raise InvalidOption(
                f"{option} is not a setting of the schema registry's client"
                f"{did_you_mean(name, SETTINGS)}",
                option=option,
            )
        if name in FILES:
            check_not_empty(option, value)
            check_file_name(option, value, "a file on the driver and all executors")
        try:
            _check_value(name, value)
        except ValueError as error:
            raise InvalidOption(f"{option}={error}", option=option) from None
    source = settings.get(_BASIC_SOURCE, _USER_INFO)
    if source != _USER_INFO:
        raise InvalidOption(
            f"{REGISTRY_PREFIX}{_BASIC_SOURCE}={source} is not supported: remove it, and set "
            f"{_LOGIN}{_WHOSE.get(source, '')}"
        )
    if _BASIC_SOURCE in settings and "basic.auth.user.info" not in settings:
        raise InvalidOption(f"{REGISTRY_PREFIX}{_BASIC_SOURCE}={source} needs {_LOGIN}")
    source = settings.get(_BEARER_SOURCE, "")
    if source in _JAVAS_BEARER_SOURCES:
        raise InvalidOption(
            f"{REGISTRY_PREFIX}{_BEARER_SOURCE}={source} is not supported: set OAUTHBEARER and "
            f"{REGISTRY_PREFIX}bearer.auth.issuer.endpoint.url, .client.id and .client.secret; or "
            f"STATIC_TOKEN and {REGISTRY_PREFIX}bearer.auth.token"
        )
    return {name: value for name, value in settings.items() if name != _BASIC_SOURCE}


def _check_value(name: str, value: str) -> None:
    """Raise ValueError with a sentence that follows ``name=``."""
    if name == "proxy":
        parts = split_url(value, _PROXIES, may_have="?#")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError(
                "[hidden] does not end with a port, as a proxy's URL does; write /, ? and # in a "
                "password as %2F, %3F and %23"
            )
    if name == _ISSUER and "@" in split_url(value).netloc:
        raise ValueError(
            "[hidden] contains credentials, which logs would show; set "
            f"{REGISTRY_PREFIX}bearer.auth.client.id and .client.secret instead"
        )

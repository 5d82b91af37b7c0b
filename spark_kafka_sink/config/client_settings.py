"""[both] Java's client settings -> librdkafka's, or an error that says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from spark_kafka_sink.config import logins, stores
from spark_kafka_sink.config.java_settings import (
    ALIASES,
    ALLOWED,
    IGNORED,
    MINUS_ONE_IS_ZERO,
    REJECTED,
    RENAMED,
    SAME_AS_DEFAULT,
    guarantees,
    timeouts,
)
from spark_kafka_sink.config.option import (
    PREFIX,
    Notices,
    check_file_name,
    check_not_empty,
    nearest_in_range,
)
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret, read_secret, redacted

if TYPE_CHECKING:
    from spark_kafka_sink.librdkafka.setting_specs import SettingSpec

_NUMBERS = {"integer": re.compile(r"-?[0-9]+"), "float": re.compile(r"-?[0-9]+(\.[0-9]+)?")}
_WHOLE_NUMBER = re.compile(r"\+?[0-9]+")
_UNQUOTABLE = re.compile(r'["\\\x00-\x1f]')
_TRUE = ("true", "t", "1")  # what librdkafka reads as true, in any case

DEFAULTS: Mapping[str, str] = {
    "client.id": "spark-kafka-sink",
    "acks": "all",
    "enable.idempotence": "true",
    "delivery.timeout.ms": "120000",
    "message.max.bytes": "1048576",
    "batch.size": "1000000",  # librdkafka's
    # The end of a divided batch may be stored though brokers reject its beginning as too large
    # (bad_batches). Of small records, librdkafka's 10,000 make less than batch.size.
    "batch.num.messages": "50000",
    "linger.ms": "5",
    "max.in.flight.requests.per.connection": "5",
    "enable.metrics.push": "false",  # its last report delays every close by up to 1 s
    "partitioner": "murmur2_random",  # no option changes it
    # Load balancers drop idle connections silently: Azure's after 4 minutes, AWS's after 350 s.
    "connections.max.idle.ms": "180000",
    # A connection may have fallen silent all the same: two of them, one after the other, must fit
    # into close.timeout.ms. But brokers that throttle a client answer up to 10 s late.
    "socket.timeout.ms": "11000",
    # An address of a name may be dead: three connections, each with such an address, must fit too.
    "socket.connection.setup.timeout.ms": "7000",
    # As in Java. The client shuffles addresses whenever it looks them up, and tries them in turn
    # only until it does so again.
    "broker.address.ttl": "30000",
    "reconnect.backoff.max.ms": "1000",  # Java's
}

_INSTEAD_OF_FILES = (
    "a file, or set kafka.ssl.truststore.certificates, kafka.ssl.keystore.key and "
    "kafka.ssl.keystore.certificate.chain"
)
_PEM_TEXTS = frozenset(
    {
        "https.ca.pem",
        "sasl.oauthbearer.assertion.private.key.pem",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.pem",
    }
)

# librdkafka takes an empty text as none.
_NEEDS_TEXT = frozenset(
    {
        *_PEM_TEXTS,
        "https.ca.location",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.crl.location",
        "ssl.key.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
    }
)

_SECRETS = frozenset(
    {
        "sasl.jaas.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)


def is_secret(name: str) -> bool:
    """Whether a setting, named without ``kafka.`` and in lower case, holds a secret."""
    return name in _SECRETS


def redact_unless_public(name: str, value: str) -> str:
    """``value``, as a Secret if it is one, may be a misspelt one, or is a URL with one."""
    is_public = name in known_names() and redacted(value) == value
    return Secret(value) if is_secret(name) or not is_public else value


def read_setting(name: str, text: str) -> str:
    """The value of a setting: ``text`` without the white space around it, unless it is a secret."""
    return read_secret(text) if is_secret(name) else redact_unless_public(name, text.strip())


def translate(
    settings: Mapping[str, str], oauth_callback: str = "", notices: Notices | None = None
) -> ClientSettings:
    """Translate Java's producer settings, named without ``kafka.``, and add our defaults.

    ``oauth_callback``: the option of that name, or "". ``notices``: where ignored settings, and
    what others cost, are noted.
    The result may lack what only the driver's machine knows (``driver.options.complete``).
    Raises InvalidOption for settings that are not supported, out of range, or contradict each
    other; the error says what to write instead. Needs librdkafka's description of its settings.
    """
    notices = Notices() if notices is None else notices
    settings = _without_ignored(settings, notices)
    settings = {name: read_setting(name, value) for name, value in settings.items()}
    settings = logins.without_unused_login(settings, oauth_callback, notices)
    settings = stores.without_unused_tls(settings, notices)
    if logins.is_msk_iam(settings):
        settings = logins.translate_msk_iam(settings, oauth_callback, notices)
        oauth_callback = logins.MSK_IAM_CALLBACK
    elif logins.is_oauth(settings):
        settings = logins.translate_oauth(settings, oauth_callback, notices)
    for name, value in settings.items():
        option = PREFIX + name
        if name in _NEEDS_TEXT:
            check_not_empty(option, value)
        if name.endswith((".location", ".file")):
            check_file_name(option, value, _INSTEAD_OF_FILES)
        if name in REJECTED:
            raise InvalidOption(f"{option} is not supported: {REJECTED[name]}", option=option)
    result = _renamed(_expanded(settings, notices), notices)
    specs = _setting_specs()
    effective = {**{name: spec.default for name, spec in specs.items()}, **DEFAULTS, **result}
    result |= guarantees(result, effective, notices)
    logins.check_mechanism(result, oauth_callback)
    if logins.fetches_tokens(result):
        logins.check_endpoint(result)
    merged = {
        **DEFAULTS,
        **result,
        **timeouts(result, effective, specs, notices),
        **stores.java_trust_store(settings),
        **stores.java_key_store(settings),
    }
    trust = next((f"{PREFIX}{name}" for name in stores.TRUST if name in settings), "")
    return ClientSettings(tuple(sorted(merged.items())), oauth_callback, trust)


@cache
def _setting_specs() -> Mapping[str, SettingSpec]:
    # Imported here: finding the format must not load librdkafka.
    from spark_kafka_sink.librdkafka.setting_specs import producer_setting_specs

    return producer_setting_specs()


@cache
def known_names() -> frozenset[str]:
    """All names that ``translate`` recognizes, including those it ignores or rejects."""
    return frozenset(
        _setting_specs().keys() | RENAMED.keys() | REJECTED.keys() | IGNORED.keys() | _CONVERTED
    )


def _without_ignored(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    result = {}
    for name, value in settings.items():
        if name in IGNORED:
            notices.ignore(PREFIX + name, IGNORED[name])
        elif value.strip().lower() not in SAME_AS_DEFAULT.get(name, ()):
            result[name] = value
    return result


def _renamed(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    result: dict[str, str] = {}
    for name, value in settings.items():
        target = RENAMED.get(name, name)
        javas = _javas_name(name, settings)
        if javas is not None:
            notices.ignore(PREFIX + name, f"{PREFIX}{javas} wins")
            continue
        if target in result:
            raise InvalidOption(f"{PREFIX}{name} sets {PREFIX}{target} a second time; keep one")
        result[target] = "0" if name in MINUS_ONE_IS_ZERO and value == "-1" else value
        if target in _PEM_TEXTS:
            result[target] = stores.pem_in_lines(value)
        result[target] = _adapted(name, target, result[target], notices)
        _check_value(name, target, result[target])
        result[target] = _spelled(target, result[target])
    return result


def _javas_name(name: str, settings: Mapping[str, str]) -> str | None:
    """Java's own name of a setting that is named as in librdkafka, if that is set, too."""
    if name in ALIASES:
        return ALIASES[name] if ALIASES[name] in settings else None
    names = (java for java, target in RENAMED.items() if target == name and java not in ALIASES)
    return next((java for java in names if java in settings), None)


def _adapted(name: str, target: str, value: str, notices: Notices) -> str:
    """What stands for a value that Java accepts, and this client does not."""
    option = PREFIX + name
    if target == "client.id" and _UNQUOTABLE.search(value):
        # librdkafka's statistics, which are JSON, contain it as it is.
        notices.warn(f"{option}: quotation marks, backslashes and control characters become _")
        return _UNQUOTABLE.sub("_", value)
    spec = _setting_specs().get(target)
    if spec is None or not _WHOLE_NUMBER.fullmatch(value):
        return value
    if target in ALLOWED:
        return value.removeprefix("+") if " .. " in ALLOWED[target] else value
    low, between, high = spec.allowed.partition(" .. ")
    if not between or spec.type not in _NUMBERS:
        return value
    number = int(value)
    if int(low) <= number <= int(high):
        return str(number)
    return str(nearest_in_range(option, number, int(low), int(high), notices))


def _spelled(setting: str, value: str) -> str:
    """A valid value as librdkafka's manual spells it; the client accepts other spellings too."""
    spec = _setting_specs().get(setting)
    if spec is None or spec.type not in ("boolean", "enum value"):
        return value
    word = value.lower()
    if spec.type == "boolean":
        return "true" if word in _TRUE else "false"
    return word if word in spec.allowed.split(", ") else value


def _check_value(name: str, target: str, value: str) -> None:
    problem = _problem(target, value)
    if problem is None:
        return
    option = PREFIX + name
    if isinstance(value, Secret):
        raise InvalidOption(f"{option} is invalid (its value is not shown)", option=option)
    raise InvalidOption(f"{option}={value!r} is invalid; {problem}", option=option)


def _problem(setting: str, value: str) -> str | None:
    from spark_kafka_sink.librdkafka.setting_specs import setting_problem

    if setting in ALLOWED:
        return None if _is_among(ALLOWED[setting], value) else f"allowed: {ALLOWED[setting]}"
    problem, spec = setting_problem(setting, value), _setting_specs().get(setting)
    if spec is None:
        return problem
    # librdkafka itself reads 16k as 16.
    is_malformed = spec.type in _NUMBERS and not _NUMBERS[spec.type].fullmatch(value)
    if problem is None and not is_malformed:
        return None
    return f"allowed: {spec.allowed}" if spec.allowed else str(problem).strip()


def _is_among(allowed: str, value: str) -> bool:
    """Whether ``value`` is in ``low .. high``, or one of the words."""
    if " .. " not in allowed:
        return value in allowed.split(", ")
    low, high = map(int, allowed.split(" .. "))
    return bool(_NUMBERS["integer"].fullmatch(value)) and low <= int(value) <= high


# --- settings that need conversion ---------------------------------------------------------------


def _expanded(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    """``settings``, with JAAS strings, stores and the like turned into librdkafka's settings."""
    result = {name: value for name, value in settings.items() if name not in _CONVERTED}
    for convert in _CONVERTERS:
        for name, value in convert(settings, notices).items():
            if name in ("sasl.username", "sasl.password") and name in result:
                # Java does not know these names.
                notices.ignore(PREFIX + name, f"{logins.JAAS_OPTION} wins")
            elif name in result:
                raise InvalidOption(f"{PREFIX}{name} is set twice, in different ways; keep one")
            result[name] = value
    return result


#: Java's, by codec
_COMPRESSION_LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
_MOST_COMPRESSION = 12  # librdkafka's

_CONVERTED = stores.REPLACED | frozenset(
    {
        logins.JAAS,
        "batch.size",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "ssl.endpoint.identification.algorithm",
    }
)


def _batch_size(settings: Mapping[str, str], _notices: Notices) -> dict[str, str]:
    """At least the default.

    Java's bounds the batch of one partition, and a request has those of many. librdkafka's bounds
    the request, which has one partition: Java's usual 16384 would make very many requests.
    """
    size = settings.get("batch.size")
    if size is None:
        return {}
    if not _WHOLE_NUMBER.fullmatch(size):
        return {"batch.size": size}  # which is rejected
    return {"batch.size": str(max(int(size), int(DEFAULTS["batch.size"])))}


def _compression_level(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    codec = settings.get("compression.type", settings.get("compression.codec", "none")).lower()
    name = f"compression.{codec}.level"
    for other in _COMPRESSION_LEVELS:
        if other != codec and f"compression.{other}.level" in settings:
            notices.ignore(f"{PREFIX}compression.{other}.level", f"compression.type is {codec}")
    if name not in settings:
        return {}
    option, text = PREFIX + name, settings[name]
    if codec == "gzip" and text == "-1":
        return {}  # Java's word for the default
    low, high = _COMPRESSION_LEVELS[codec]
    if not _NUMBERS["integer"].fullmatch(text) or not low <= int(text) <= high:
        raise InvalidOption(
            f"{option}={text!r} is invalid; allowed: {low} .. {high}", option=option
        )
    level = nearest_in_range(option, int(text), 1, _MOST_COMPRESSION, notices)
    return {"compression.level": str(level)}


def _endpoint_check(settings: Mapping[str, str], _notices: Notices) -> dict[str, str]:
    algorithm = settings.get("ssl.endpoint.identification.algorithm")
    if algorithm is None:
        return {}
    # In Java an empty string switches the check off.
    return {"ssl.endpoint.identification.algorithm": algorithm or "none"}


def _constant_backoff(settings: Mapping[str, str], _notices: Notices) -> dict[str, str]:
    """Java's behaviour: the time between attempts to connect grows only if a maximum is set."""
    backoff = settings.get("reconnect.backoff.ms")
    if backoff is None or "reconnect.backoff.max.ms" in settings:
        return {}
    return {"reconnect.backoff.max.ms": backoff}


_CONVERTERS = (
    logins.credentials,
    stores.trust_store,
    stores.key_store,
    _batch_size,
    _compression_level,
    _endpoint_check,
    _constant_backoff,
)

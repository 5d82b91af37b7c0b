"""[both] Java's client settings -> librdkafka's, or an error that says what to write instead."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from spark_kafka_sink.config import kerberos, logins, stores
from spark_kafka_sink.config.option import (
    PREFIX,
    ContradictoryOption,
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

# --- what Java's settings mean: librdkafka's names for them, and what is instead of others --------

#: librdkafka's aliases -> Java's names, so that every setting has one name from here on
ALIASES: Mapping[str, str] = {
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
}

RENAMED: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    **ALIASES,
}

#: Values that Java allows, where librdkafka allows others.
ALLOWED: Mapping[str, str] = {
    "acks": "all, -1, 0, 1",
    "request.timeout.ms": "0 .. 2147483647",
}

# For these, Java's -1 means the same as librdkafka's 0.
MINUS_ONE_IS_ZERO = frozenset(
    {"receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms"}
)

_BYTES = "the sink writes bytes; serialize in Spark, for instance with to_json, to_avro or cast"
_JVM_TLS = "it names Java classes, but this client uses OpenSSL; remove it"
_OURS = "the sink sets it itself"
_NATIVE_CODE = "an option may not name native code that the sink would run"
_PLACEMENT = (
    "keys choose partitions as in Java's default partitioner (murmur2); to choose them yourself, "
    "write a column `partition`"
)
_TRANSACTIONS = "set delivery.guarantee=exactly-once; the sink then begins and ends transactions"

_TLS = "Java's TLS; this client uses OpenSSL"
_METRICS = "Java's metrics"
_TUNING = "tunes only Java's client"

#: Settings that change nothing in what is written, where, and by whom -> whose they are.
IGNORED: Mapping[str, str] = {
    # librdkafka's producer reads it, too. Spark's source and sink often have the same options.
    "allow.auto.create.topics": "Kafka's consumer",
    **dict.fromkeys(
        (
            "auto.include.jmx.reporter",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ),
        _METRICS,
    ),
    **dict.fromkeys(
        (
            "ssl.enabled.protocols",
            "ssl.keymanager.algorithm",
            "ssl.protocol",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
        _TLS,
    ),
    **dict.fromkeys(
        (
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
            "socket.connection.setup.timeout.max.ms",
        ),
        _TUNING,
    ),
    **dict.fromkeys(
        (
            "queue.buffering.max.kbytes",
            "queue.buffering.max.messages",
        ),
        "kafka.buffer.memory limits what waits",
    ),
    **dict.fromkeys(
        (
            "delivery.report.only.error",
            "log.queue",
            "enabled_events",
            "produce.offset.report",
            "statistics.interval.ms",
        ),
        _OURS,
    ),
}

#: Settings that would change what is written, where, or by whom -> what to do instead.
REJECTED: Mapping[str, str] = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "partitioner.class": _PLACEMENT,
    "partitioner": _PLACEMENT,
    "partitioner.ignore.keys": "to spread rows regardless of their keys, make the keys null",
    "client.dns.lookup": "only use_all_dns_ips is; in kafka.bootstrap.servers, name the brokers by "
    "their canonical names",
    "config.providers": "pass the values themselves, for instance from dbutils.secrets",
    "interceptor.classes": "it names Java classes; transform the rows in Spark",
    "transactional.id": f"{_TRANSACTIONS}, whose names begin with transactional.id.prefix",
    "transaction.two.phase.commit.enable": _TRANSACTIONS,
    "topic.metadata.propagation.max.ms": "set kafka.max.block.ms: it bounds the wait for a "
    "topic that is still being created",
    "topic.metadata.refresh.interval.ms": "set kafka.metadata.max.age.ms",
    "security.providers": _JVM_TLS,
    "ssl.cipher.suites": "it would restrict only TLS 1.2, not TLS 1.3 as in Java, and OpenSSL "
    "has other names; set ssl.cipher.suites on the brokers, which restricts all versions",
    "ssl.provider": _JVM_TLS,
    "ssl.engine.factory.class": _JVM_TLS,
    "sasl.client.callback.handler.class": logins.INSTEAD_OF_LOGIN_CLASSES,
    "sasl.login.callback.handler.class": logins.INSTEAD_OF_LOGIN_CLASSES,
    "sasl.login.class": logins.INSTEAD_OF_LOGIN_CLASSES,
    "sasl.oauthbearer.header.urlencode": "the client never encodes its id and secret so; remove it",
    "sasl.oauthbearer.jwt.retriever.class": f"{logins.INSTEAD_OF_LOGIN_CLASSES}; for Java's "
    "JwtBearerJwtRetriever, set kafka.sasl.oauthbearer.grant.type="
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "sasl.oauthbearer.jwt.validator.class": logins.INSTEAD_OF_LOGIN_CLASSES,
    "enable.gapless.guarantee": "remove it; with it, a client could send nothing more after "
    "one failed record",
    "opaque": _OURS,
    "interceptors": _OURS,
    "plugin.library.paths": "librdkafka's plugins are not supported",
    "ssl.engine.location": _NATIVE_CODE,
    "ssl.engine.id": _NATIVE_CODE,
    "ssl.providers": f"{_NATIVE_CODE}; the configuration of OpenSSL may, which the environment "
    "variable OPENSSL_CONF names",
}

#: Values of those, in lower case, that mean what the sink does anyway.
SAME_AS_DEFAULT: Mapping[str, tuple[str, ...]] = {
    "client.dns.lookup": ("use_all_dns_ips",),
    "config.providers": ("",),
    "interceptor.classes": ("",),
    "partitioner": ("murmur2_random",),
    "partitioner.class": (
        "",
        "org.apache.kafka.clients.producer.internals.defaultpartitioner",
        "null",
    ),
    "partitioner.ignore.keys": ("false",),
    "sasl.oauthbearer.header.urlencode": ("false",),
    "sasl.oauthbearer.jwt.retriever.class": tuple(
        f"{logins.KAFKAS_OAUTH}.{name}".lower()
        for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever")
    ),
    "sasl.oauthbearer.jwt.validator.class": (f"{logins.KAFKAS_OAUTH}.DefaultJwtValidator".lower(),),
    "security.providers": ("",),
    "ssl.cipher.suites": ("",),
    "transaction.two.phase.commit.enable": ("false",),
}

# --- rules across settings: idempotence, order and timeouts ---------------------------------------

# --- one setting after another --------------------------------------------------------------------

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
    # (batch_gate). Of small records, librdkafka's 10,000 make less than batch.size.
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

# Java has no such settings. Around its own passwords, it removes white space, too (ConfigDef).
_VERBATIM = frozenset({"sasl.oauthbearer.client.secret", "sasl.password"})


def is_secret(name: str) -> bool:
    """Whether a setting, named without ``kafka.`` and in lower case, holds a secret."""
    return name in _SECRETS


def redact_unless_public(name: str, value: str) -> str:
    """``value``, as a Secret if it is one, may be a misspelt one, or is a URL with one."""
    is_public = name in known_names() and redacted(value) == value
    return Secret(value) if is_secret(name) or not is_public else value


def read_setting(name: str, text: str) -> str:
    """The value of a setting: ``text`` without the white space around it, as in Java."""
    if name in _VERBATIM:
        return read_secret(text)
    return redact_unless_public(name, text.strip(logins.BLANKS if is_secret(name) else None))


def translate(
    settings: Mapping[str, str], oauth_callback: str = "", notices: Notices | None = None
) -> ClientSettings:
    """Translate Java's producer settings, named without ``kafka.``, and add our defaults.

    ``oauth_callback``: the option of that name, or "". ``notices``: where ignored settings, and
    what others cost, are noted.
    The result may lack what only the driver's machine knows (``driver.options.complete_options``).
    Raises InvalidOption for settings that are not supported, out of range, or contradict each
    other; the error says what to write instead. Raises LibraryUnavailable if librdkafka was built
    without what they need. Needs librdkafka's description of its settings.
    """
    notices = Notices() if notices is None else notices
    settings = _without_ignored(settings, notices)
    settings = {name: read_setting(name, value) for name, value in settings.items()}
    settings, oauth_callback = logins.without_unused_login(settings, oauth_callback, notices)
    settings = stores.without_unused_tls(settings, notices)
    if logins.is_msk_iam(settings):
        settings = logins.translate_msk_iam(settings, oauth_callback, notices)
        oauth_callback = logins.MSK_IAM_CALLBACK
    elif logins.is_oauth(settings):
        settings = logins.translate_oauth(settings, oauth_callback, notices)
    elif kerberos.is_kerberos(settings):
        settings = kerberos.translate_kerberos(settings, notices)
    else:
        unused = settings.keys() & {kerberos.KINIT}
        settings = notices.without(settings, unused, "this login is not with Kerberos")
    _check_library(settings)
    for_tickets = kerberos.kerberos_settings(settings)
    settings.pop(kerberos.TICKET_CACHE, None)
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
        **_shortest_backoff(result, effective, notices),
        **stores.java_trust_store(settings),
        **stores.java_key_store(settings),
        **for_tickets,
    }
    trust = next((f"{PREFIX}{name}" for name in stores.TRUST if name in settings), "")
    return ClientSettings(tuple(sorted(merged.items())), oauth_callback, trust)


#: how mechanisms begin, and what librdkafka calls them
_LOGIN_FEATURES = {
    kerberos.GSSAPI: "sasl_gssapi",
    "PLAIN": "sasl_plain",
    "SCRAM-": "sasl_scram",
    "OAUTHBEARER": "sasl_oauthbearer",
}
_COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")


def _check_library(settings: Mapping[str, str]) -> None:
    """Raise LibraryUnavailable if librdkafka was built without what the settings need."""
    from spark_kafka_sink.librdkafka.build import check_features

    needed = []
    protocol = settings.get("security.protocol", "")
    if protocol.lower().endswith("ssl"):
        needed.append((f"{PREFIX}security.protocol={protocol}", "ssl"))
    if protocol.lower().startswith("sasl"):
        mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")).upper()
        needed += [
            (f"{PREFIX}sasl.mechanism={mechanism}", feature)
            for begin, feature in _LOGIN_FEATURES.items()
            if mechanism.startswith(begin)
        ]
        if logins.fetches_tokens(settings):
            needed.append((f"{PREFIX}{logins.TOKEN_METHOD}=oidc", "oidc"))
    codec = settings.get("compression.type", settings.get("compression.codec", "")).lower()
    if codec in _COMPRESSIONS:
        needed.append((f"{PREFIX}compression.type={codec}", codec))
    check_features(needed)


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


# --- settings that need conversion ----------------------------------------------------------------


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
_MAX_COMPRESSION = 12  # librdkafka's

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
    level = nearest_in_range(option, int(text), 1, _MAX_COMPRESSION, notices)
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


# --- rules across settings ------------------------------------------------------------------------

_IDEMPOTENCE = "enable.idempotence"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_DELIVERY, _LINGER, _REQUEST = "delivery.timeout.ms", "linger.ms", "request.timeout.ms"
_SOCKET = "socket.timeout.ms"
_BACKOFF, _MAX_BACKOFF = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
_SETUP, _API_VERSION = "socket.connection.setup.timeout.ms", "api.version.request.timeout.ms"

_MAX_INT = 2**31 - 1
_MAX_IN_FLIGHT = 5
_DUPLICATES = "retried records may be stored twice or out of order"


def guarantees(
    settings: Mapping[str, str], effective: Mapping[str, str], notices: Notices
) -> dict[str, str]:
    """``enable.idempotence`` as Java decides it, and a warning of what it costs to be without it.

    ``settings``: the user's. ``effective`` adds the defaults of all others. Raises InvalidOption if
    the user sets it to true, and others contradict that.
    """
    obstacles = _obstacles(effective)
    if settings.get(_IDEMPOTENCE) == "true" and obstacles:
        name, (needed, _) = next(iter(obstacles.items()))
        raise ContradictoryOption(
            f"{PREFIX}{_IDEMPOTENCE}=true needs {PREFIX}{name}{needed}, not {settings[name]}",
            option=f"{PREFIX}{_IDEMPOTENCE}",
        )
    is_off = effective[_IDEMPOTENCE] != "true"
    for name, (needed, effect) in ({} if is_off else obstacles).items():
        notices.warn(
            f"{PREFIX}{name}={effective[name]} switches idempotence off, as in Java: {effect}; "
            f"keep {PREFIX}{name}{needed}, or set {PREFIX}{_IDEMPOTENCE}=false to accept that"
        )
    if int(effective[_IN_FLIGHT]) == 1 and int(effective["retries"]) > 0 and (is_off or obstacles):
        # In Java this keeps the order. librdkafka builds the next request ahead and sends it
        # before the retry.
        notices.warn(
            f"{PREFIX}{_IN_FLIGHT}=1 does not keep the order of records without idempotence, "
            "unlike in Java: the client sends the next request before it retries a failed one; "
            f"{PREFIX}{_IDEMPOTENCE}=true keeps it with up to {_MAX_IN_FLIGHT} in flight"
        )
    return {_IDEMPOTENCE: "false"} if obstacles else {}


def without_idempotence(settings: Mapping[str, str]) -> str:
    """The setting that switches idempotence off, with its value; of a client's settings."""
    name = next(iter(_obstacles({"retries": "1", **settings})), _IDEMPOTENCE)
    return f"{PREFIX}{name}={settings[name]}"


def _obstacles(effective: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The settings that idempotence does not allow -> what it needs, and what the value means."""
    obstacles = {}
    acks = effective["acks"]
    if acks not in ("all", "-1"):
        lost = "records may be lost without an error" if acks == "0" else "records may be lost"
        obstacles["acks"] = ("=all", f"{lost} if a broker fails, and {_DUPLICATES}")
    if int(effective["retries"]) == 0:
        obstacles["retries"] = (" at 1 or more", "a single failed request fails the task")
    if int(effective[_IN_FLIGHT]) > _MAX_IN_FLIGHT:
        obstacles[_IN_FLIGHT] = (f" at {_MAX_IN_FLIGHT} or less", _DUPLICATES)
    return obstacles


def timeouts(
    settings: Mapping[str, str],
    effective: Mapping[str, str],
    specs: Mapping[str, SettingSpec],
    notices: Notices,
) -> dict[str, str]:
    """The timeouts of delivery, requests and connections that follow from the user's settings.

    Raises InvalidOption if ``delivery.timeout.ms`` is set but shorter than ``linger.ms`` plus
    ``request.timeout.ms``. If it is not set, it is raised to that sum if needed. Java does both;
    up to 3.9, its default of ``linger.ms`` is 0.
    """
    request = int(effective[_REQUEST])
    result: dict[str, str] = {}
    if _DELIVERY in settings:
        linger = float(settings.get(_LINGER, 0))
        _check_delivery_timeout(int(settings[_DELIVERY]), linger, request)
    else:
        shortest = min(math.ceil(float(effective[_LINGER]) + request), _MAX_INT)
        result[_DELIVERY] = str(max(int(effective[_DELIVERY]), shortest))
    if _REQUEST in settings:
        # In librdkafka this bounds only the broker's wait for its replicas; the client itself
        # waits for socket.timeout.ms. Both ranges are narrower than Java's.
        wanted = int(settings[_REQUEST])
        for name in (_REQUEST, _SOCKET):
            result[name] = str(specs[name].nearest(wanted))
        if _SOCKET in settings:
            del result[_SOCKET]
        elif int(result[_SOCKET]) < wanted:
            notices.warn(
                f"{PREFIX}{_REQUEST}={wanted} is more than this client waits for an answer, "
                f"{result[_SOCKET]}"
            )
    if _SETUP in settings and _API_VERSION not in settings:
        # The first request of a connection has a time-out of its own here, which Java's has not.
        longest = max(int(settings[_SETUP]), int(effective[_API_VERSION]))
        result[_API_VERSION] = str(specs[_API_VERSION].nearest(longest))
    return result


def _shortest_backoff(
    settings: Mapping[str, str], effective: Mapping[str, str], notices: Notices
) -> dict[str, str]:
    """At most the maximum, as in Java; librdkafka rejects a longer one."""
    most = int(effective[_MAX_BACKOFF])
    if int(effective[_BACKOFF]) <= most:
        return {}
    if _BACKOFF in settings:
        nearest_in_range(PREFIX + _BACKOFF, int(settings[_BACKOFF]), 0, most, notices)
    return {_BACKOFF: str(most)}


def _check_delivery_timeout(delivery: int, linger: float, request: int) -> None:
    option = PREFIX + _DELIVERY
    shortest = min(math.ceil(linger + request), _MAX_INT)
    if delivery == 0:
        raise InvalidOption(
            f"{option}=0 would let the client retry forever; set it to at least {shortest}",
            option=option,
        )
    if delivery < shortest:
        most = delivery - math.ceil(linger)
        lower = f", or {PREFIX}{_REQUEST} to at most {most}" if most > 0 else ""
        raise ContradictoryOption(
            f"{option}={delivery} is shorter than {PREFIX}{_LINGER} + {PREFIX}{_REQUEST}, "
            f"{linger:g} + {request}; set it to at least {shortest}{lower}",
            option=option,
        )

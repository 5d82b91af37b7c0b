"""[both] Java's Kerberos logins -> librdkafka's: Krb5LoginModule, and kafka.sasl.kerberos.*"""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_kafka_sink.config.logins import (
    JAAS,
    JAAS_OPTION,
    KERBEROS_MODULE,
    check_names,
    ignore,
    parsed_jaas,
)
from spark_kafka_sink.config.option import PREFIX, Notices
from spark_kafka_sink.errors import InvalidOption

GSSAPI = "GSSAPI"
SERVICE_NAME = "sasl.kerberos.service.name"
PRINCIPAL = "sasl.kerberos.principal"
KEYTAB = "sasl.kerberos.keytab"
#: the program, as in Java; ``clients.kerberos`` makes librdkafka's command of it
KINIT = "sasl.kerberos.kinit.cmd"
#: how often librdkafka runs that command; 0: never
RENEWAL_MS = "sasl.kerberos.min.time.before.relogin"
#: the sink's own: the name of a cache that is not the default one
TICKET_CACHE = "sasl.kerberos.ticket.cache"

_KEYTAB_TYPE = re.compile("(?:(?:ANY:)?FILE:|SRVTAB:)", re.IGNORECASE)
#: what a shell, or librdkafka's own templates, would read as something else
_UNWRITABLE = re.compile(r"%\{|[\0-\x1f\x7f]")
_OPTIONS = frozenset({"keyTab", "principal", "serviceName", "ticketCache", "useKeyTab"})
_SWITCHES = frozenset({"renewTGT", "useTicketCache"})
#: what these say concerns only Java: where it keeps the key, whom it asks, what it prints
_WITHOUT_EFFECT = frozenset(
    {
        "clearPass",
        "debug",
        "doNotPrompt",
        "isInitiator",
        "refreshKrb5Config",
        "storeKey",
        "storePass",
        "tryFirstPass",
        "useFirstPass",
    }
)


def is_kerberos(settings: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, are of a Kerberos login, Java's default."""
    if not settings.get("security.protocol", "").lower().startswith("sasl"):
        return False
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms"))
    if mechanism is not None:
        return mechanism.upper() == GSSAPI
    parsed = parsed_jaas(settings[JAAS]) if JAAS in settings else None
    if parsed is not None:
        return parsed[0] == KERBEROS_MODULE
    # Without any of these, the mechanism has been forgotten.
    return JAAS not in settings and not settings.keys().isdisjoint((SERVICE_NAME, KEYTAB))


def translate_kerberos(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    """``settings`` in librdkafka's names; raises InvalidOption, as Java raises its errors.

    A JAAS string of another login module stays as it is.
    """
    result = {**settings, "sasl.mechanism": GSSAPI}
    result.pop("sasl.mechanisms", None)
    parsed = parsed_jaas(result.get(JAAS, ""))
    if parsed is not None and parsed[0] == KERBEROS_MODULE:
        del result[JAAS]
        login = _login({name: str(value) for name, value in parsed[1].items()}, notices)
        _check_service_name(login, result)
        for name in sorted(login.keys() & result.keys() - {SERVICE_NAME}):
            notices.ignore(PREFIX + name, f"{JAAS_OPTION} wins")
        if KEYTAB not in login:
            result = notices.without(result, result.keys() & {KEYTAB}, f"{JAAS_OPTION} wins")
        result |= login
    elif JAAS not in result and KEYTAB in result and PRINCIPAL not in result:
        raise InvalidOption(
            f"{PREFIX}{KEYTAB} needs {PREFIX}{PRINCIPAL}, whose key is in that file",
            option=f"{PREFIX}{KEYTAB}",
        )
    if KEYTAB in result:
        result[KEYTAB] = _KEYTAB_TYPE.sub("", result[KEYTAB], count=1)
    for name in (KEYTAB, KINIT, PRINCIPAL, TICKET_CACHE):
        _check_writable(name, result.get(name, ""))
    return result


def kerberos_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What a client gets beside the user's settings, which are translated already.

    It runs no command until ``clients.kerberos`` has found the machine's files.
    """
    if not is_kerberos(settings):
        return {}
    cache = {name: settings[name] for name in (TICKET_CACHE,) if name in settings}
    return {**cache, RENEWAL_MS: "0"}


def _login(options: Mapping[str, str], notices: Notices) -> dict[str, str]:
    """The settings of a JAAS string; raises InvalidOption where Java's module does."""
    check_names(KERBEROS_MODULE, options.keys(), _OPTIONS | _SWITCHES | _WITHOUT_EFFECT)
    for name in sorted(options.keys() - _OPTIONS - _SWITCHES - _WITHOUT_EFFECT):
        ignore(name, f"Java's {KERBEROS_MODULE} does not read it", notices)
    uses_keytab, uses_cache = (_is_true(options, name) for name in ("useKeyTab", "useTicketCache"))
    if "keyTab" in options and not uses_keytab:
        raise _invalid("keyTab needs useKeyTab=true")
    if not uses_cache and ("ticketCache" in options or _is_true(options, "renewTGT")):
        raise _invalid("ticketCache and renewTGT need useTicketCache=true")
    if not uses_keytab and not uses_cache:
        raise _invalid(
            f"{KERBEROS_MODULE} would ask for a password; set useKeyTab=true with keyTab and "
            "principal, or useTicketCache=true"
        )
    names = {"principal": PRINCIPAL, "serviceName": SERVICE_NAME}
    if uses_keytab:
        # With both, Java takes a ticket of the same user from the cache, if there is one.
        for name in ("keyTab", "principal"):
            if not options.get(name):
                raise _invalid(f"useKeyTab=true needs {name}")
        names["keyTab"] = KEYTAB
    else:
        names["ticketCache"] = TICKET_CACHE
    return {setting: options[name] for name, setting in names.items() if name in options}


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


def _check_service_name(login: Mapping[str, str], settings: Mapping[str, str]) -> None:
    name = login.get(SERVICE_NAME)
    if name is not None and settings.get(SERVICE_NAME, name) != name:
        raise InvalidOption(
            f"{PREFIX}{SERVICE_NAME}={settings[SERVICE_NAME]} and serviceName={name} in "
            f"{JAAS_OPTION} differ; keep one",
            option=f"{PREFIX}{SERVICE_NAME}",
        )


def _check_writable(name: str, value: str) -> None:
    if _UNWRITABLE.search(value):
        raise InvalidOption(
            f"{PREFIX}{name} or {JAAS_OPTION}: names with control characters or %{{ are not "
            "supported",
            option=PREFIX + name,
        )
    if name == KINIT and len(value.split()) > 1:
        raise InvalidOption(
            f"{PREFIX}{name}: name only the program, as in Java; the sink adds its arguments",
            option=PREFIX + name,
        )


def _invalid(problem: str) -> InvalidOption:
    return InvalidOption(f"{JAAS_OPTION}: {problem}", option=JAAS_OPTION)

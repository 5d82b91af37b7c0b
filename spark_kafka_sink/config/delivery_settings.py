"""Java's rules across settings: idempotence, order and timeouts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.errors import InvalidOption

if TYPE_CHECKING:
    from spark_kafka_sink.librdkafka.setting_specs import SettingSpec

_IDEMPOTENCE = "enable.idempotence"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_DELIVERY, _LINGER, _REQUEST = "delivery.timeout.ms", "linger.ms", "request.timeout.ms"
_SOCKET = "socket.timeout.ms"

_MAX_INT = 2**31 - 1
_MOST_IN_FLIGHT = 5


def check_guarantees(settings: Mapping[str, str], effective: Mapping[str, str]) -> None:
    """Raise InvalidOption if the user's settings silently weaken ordering or idempotence.

    ``effective`` adds the defaults of all other settings.
    """
    if effective[_IDEMPOTENCE] == "true":
        _check_idempotent(settings, effective)
    elif int(effective[_IN_FLIGHT]) == 1 and int(effective["retries"]) > 0:
        # In Java this keeps the order. librdkafka builds the next request ahead and sends it
        # before the retry.
        raise InvalidOption(
            f"{PREFIX}{_IN_FLIGHT}=1 does not keep the order of records without idempotence: the "
            "client sends the next request before it retries a failed one. Keep "
            f"{PREFIX}{_IDEMPOTENCE}=true, which keeps the order with up to {_MOST_IN_FLIGHT} "
            f"requests in flight; or set {PREFIX}retries=0; or, if order does not matter, set "
            f"{PREFIX}{_IN_FLIGHT} to 2 or more"
        )


def _check_idempotent(settings: Mapping[str, str], effective: Mapping[str, str]) -> None:
    if effective["acks"] not in ("all", "-1"):
        effect = "retried records may be stored twice or out of order"
        raise _no_idempotence(settings, "acks", "=all", effect)
    if int(effective["retries"]) == 0:
        effect = "a single failed request fails the task"
        raise _no_idempotence(settings, "retries", " at 1 or more", effect)
    in_flight = effective[_IN_FLIGHT]
    if int(in_flight) > _MOST_IN_FLIGHT:
        raise InvalidOption(
            f"{PREFIX}{_IN_FLIGHT}={in_flight} is more than {_MOST_IN_FLIGHT}, the most with "
            f"which idempotence keeps the order; lower it or set {PREFIX}{_IDEMPOTENCE}=false"
        )


def _no_idempotence(
    settings: Mapping[str, str], name: str, needed: str, effect: str
) -> InvalidOption:
    if _IDEMPOTENCE in settings:
        return InvalidOption(
            f"{PREFIX}{_IDEMPOTENCE}=true needs {PREFIX}{name}{needed}, not {settings[name]}"
        )
    return InvalidOption(
        f"{PREFIX}{name}={settings[name]} switches idempotence off, so that {effect}; set "
        f"{PREFIX}{_IDEMPOTENCE}=false to accept that, or keep {PREFIX}{name}{needed}"
    )


def timeouts(
    settings: Mapping[str, str], effective: Mapping[str, str], specs: Mapping[str, SettingSpec]
) -> dict[str, str]:
    """The delivery, request and socket timeouts that follow from the user's settings.

    Raises InvalidOption if ``delivery.timeout.ms`` is set but shorter than ``linger.ms`` plus
    ``request.timeout.ms``. If it is not set, it is raised to that sum if needed. Java does both.
    """
    shortest = min(math.ceil(float(effective[_LINGER]) + int(effective[_REQUEST])), _MAX_INT)
    result: dict[str, str] = {}
    if _DELIVERY in settings:
        _check_delivery_timeout(int(settings[_DELIVERY]), shortest, effective)
    else:
        result[_DELIVERY] = str(max(int(effective[_DELIVERY]), shortest))
    if _REQUEST in settings:
        # In librdkafka this bounds only the broker's wait for its replicas; the client itself
        # waits for socket.timeout.ms. Both ranges are narrower than Java's.
        for name in (_REQUEST, _SOCKET):
            result[name] = str(specs[name].nearest(int(settings[_REQUEST])))
        if _SOCKET in settings:
            del result[_SOCKET]
    return result


def _check_delivery_timeout(delivery: int, shortest: int, effective: Mapping[str, str]) -> None:
    if delivery == 0:
        raise InvalidOption(
            f"{PREFIX}{_DELIVERY}=0 would let the client retry forever; set it to at least "
            f"{shortest}"
        )
    if delivery < shortest:
        request = delivery - math.ceil(float(effective[_LINGER]))
        lower = f", or {PREFIX}{_REQUEST} to at most {request}" if request > 0 else ""
        raise InvalidOption(
            f"{PREFIX}{_DELIVERY}={delivery} is shorter than {PREFIX}{_LINGER} + "
            f"{PREFIX}{_REQUEST}, {effective[_LINGER]} + {effective[_REQUEST]}; set it to at "
            f"least {shortest}{lower}"
        )

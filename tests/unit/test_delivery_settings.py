from __future__ import annotations

import pytest

from spark_kafka_sink.config.client_settings import translate
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.config.option_table import CLOSE_TIMEOUT_MS
from spark_kafka_sink.errors import InvalidOption

IN_FLIGHT = "max.in.flight.requests.per.connection"


def rejection(settings: dict[str, str]) -> str:
    with pytest.raises(InvalidOption) as raised:
        translate(settings)
    return str(raised.value)


# --- idempotence and order -----------------------------------------------------------------------


@pytest.mark.parametrize("safe", [{}, {"acks": "all"}, {"acks": "-1"}, {"retries": "1"}])
def test_delivery_is_idempotent(safe):
    assert translate(safe)["enable.idempotence"] == "true"


DUPLICATES = "retried records may be stored twice or out of order"


@pytest.mark.parametrize(
    ("name", "value", "effect", "needed"),
    [
        ("acks", "0", f"records may be lost without an error if a broker fails, and {DUPLICATES}",
         "=all"),
        ("acks", "1", f"records may be lost if a broker fails, and {DUPLICATES}", "=all"),
        ("retries", "0", "a single failed request fails the task", " at 1 or more"),
        (IN_FLIGHT, "6", DUPLICATES, " at 5 or less"),
    ],
)  # fmt: skip
def test_weaker_delivery_switches_idempotence_off_as_in_java(name, value, effect, needed):
    notices = Notices()
    translated = translate({name: value}, notices=notices)
    assert translated["enable.idempotence"] == "false"
    assert translated[name] == value
    (warning,) = notices.warnings
    assert warning == (
        f"kafka.{name}={value} switches idempotence off, as in Java: {effect}; keep "
        f"kafka.{name}{needed}, or set kafka.enable.idempotence=false to accept that"
    )


@pytest.mark.parametrize(("name", "value"), [("acks", "1"), ("retries", "0"), (IN_FLIGHT, "6")])
def test_weaker_delivery_that_was_accepted_explicitly_needs_no_warning(name, value):
    notices = Notices()
    assert translate({name: value, "enable.idempotence": "false"}, notices=notices)[name] == value
    assert notices.warnings == ()


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("acks", "0", "=all"),
        ("acks", "1", "=all"),
        ("retries", "0", " at 1 or more"),
        (IN_FLIGHT, "6", " at 5 or less"),
    ],
)
@pytest.mark.parametrize("true", ["true", "TRUE", "t", "1"])
def test_weaker_delivery_contradicts_idempotence_that_was_requested(name, value, needed, true):
    assert rejection({name: value, "enable.idempotence": true}) == (
        f"kafka.enable.idempotence=true needs kafka.{name}{needed}, not {value}"
    )


@pytest.mark.parametrize("weaker", [{"enable.idempotence": "false"}, {"acks": "1"}])
@pytest.mark.parametrize("name", [IN_FLIGHT, "max.in.flight"])
def test_the_user_reads_that_one_request_in_flight_keeps_no_order_without_idempotence(name, weaker):
    notices = Notices()
    assert translate({name: "1", **weaker}, notices=notices)[IN_FLIGHT] == "1"
    assert f"kafka.{IN_FLIGHT}=1 does not keep the order of records" in notices.warnings[-1]


@pytest.mark.parametrize(
    "settings",
    [
        {IN_FLIGHT: "1"},
        {IN_FLIGHT: "1", "enable.idempotence": "false", "retries": "0"},
        {IN_FLIGHT: "2", "enable.idempotence": "false"},
    ],
    ids=" ".join,
)
def test_no_warning_where_one_request_in_flight_keeps_the_order_or_nobody_expects_it(settings):
    notices = Notices()
    assert translate(settings, notices=notices)[IN_FLIGHT] == settings[IN_FLIGHT]
    assert notices.warnings == ()


# --- timeouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "delivery"),
    [
        ({"delivery.timeout.ms": "30005"}, "30005"),
        # As with Java up to 3.9, whose linger.ms is 0 if it is not set.
        (dict.fromkeys(("request.timeout.ms", "delivery.timeout.ms"), "30000"), "30000"),
        ({"delivery.timeout.ms": "1500", "linger.ms": "500", "request.timeout.ms": "1000"}, "1500"),
        ({"delivery.timeout.ms": "30001", "linger.ms": "0.5"}, "30001"),
        # Raised, as in Java, if it is not given.
        ({"linger.ms": "200000"}, "230000"),
        ({"request.timeout.ms": "1200000"}, "1200005"),
        ({"request.timeout.ms": "2147483647"}, "2147483647"),
        (dict.fromkeys(("request.timeout.ms", "delivery.timeout.ms"), "2147483647"), "2147483647"),
        ({"request.timeout.ms": "1000"}, "120000"),
    ],
    ids=str,
)
def test_a_record_has_time_for_lingering_and_one_request(settings, delivery):
    assert translate(settings)["delivery.timeout.ms"] == delivery


@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
@pytest.mark.parametrize(
    ("delivery", "linger", "request_timeout", "at_least", "at_most"),
    [
        ("30004", "5", "30000", "30005", "29999"),
        ("30000", "0.5", "30000", "30001", "29999"),
        ("9", "5", "10", "15", "4"),
    ],
)
def test_a_delivery_timeout_too_short_for_one_request_is_rejected(
    name, delivery, linger, request_timeout, at_least, at_most
):
    settings = {name: delivery, "linger.ms": linger, "request.timeout.ms": request_timeout}
    assert rejection(settings) == (
        f"kafka.delivery.timeout.ms={delivery} is shorter than kafka.linger.ms + "
        f"kafka.request.timeout.ms, {linger} + {request_timeout}; set it to at least {at_least}, "
        f"or kafka.request.timeout.ms to at most {at_most}"
    )


def test_no_request_timeout_is_suggested_where_lingering_takes_all_the_time():
    message = rejection({"delivery.timeout.ms": "1000", "linger.ms": "1000"})
    assert message.endswith("1000 + 30000; set it to at least 31000")


def test_a_delivery_timeout_is_measured_against_the_defaults_too():
    assert "shorter than" in rejection({"delivery.timeout.ms": "29999"})


@pytest.mark.parametrize("request_timeout", ["0", "30000"])
def test_endless_delivery_is_rejected(request_timeout):
    settings = {"linger.ms": "0", "request.timeout.ms": request_timeout}
    assert "retry forever" in rejection({"delivery.timeout.ms": "0", **settings})


@pytest.mark.parametrize(
    ("java_settings", "request_ms", "socket_ms"),
    [
        ({"request.timeout.ms": "0"}, "1", "10"),
        ({"request.timeout.ms": "20000"}, "20000", "20000"),
        ({"request.timeout.ms": "400000"}, "400000", "300000"),
        ({"request.timeout.ms": "1200000"}, "900000", "300000"),
        ({"request.timeout.ms": "20000", "socket.timeout.ms": "5000"}, "20000", "5000"),
    ],
)
def test_a_request_timeout_bounds_the_broker_and_the_client(java_settings, request_ms, socket_ms):
    notices = Notices()
    settings = translate(java_settings, notices=notices)
    assert settings["request.timeout.ms"] == request_ms
    assert settings["socket.timeout.ms"] == socket_ms
    wanted = java_settings["request.timeout.ms"]
    cut = f"kafka.request.timeout.ms={wanted} is more than this client waits for an answer, 300000"
    assert notices.warnings == ((cut,) if int(wanted) > 300_000 else ())


def test_without_a_request_timeout_the_broker_has_the_clients_and_the_client_a_shorter_one():
    settings = translate({})
    assert "request.timeout.ms" not in settings
    # Longer than brokers hold an answer back; twice as long is shorter than close.timeout.ms.
    assert 10_000 < int(settings["socket.timeout.ms"]) < int(CLOSE_TIMEOUT_MS.default) / 2

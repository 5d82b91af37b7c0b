"""A session answers what the client asks about the login, and yields all other events."""

from __future__ import annotations

import sys
import time
import types

import pytest
from fake_client import FakeClient
from fake_clock import FakeClock

from spark_kafka_sink.clients.oauth_token import TokenFunction
from spark_kafka_sink.clients.session import Session, explained
from spark_kafka_sink.config.logins import MSK_IAM_CALLBACK
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import AuthenticationFailed, InvalidOption, TokenUnavailable
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import BrokerError, TokenNeeded, TokenRequestFailed

LOST = BrokerError(ErrorCode.TRANSPORT, "connection refused")
REJECTED = BrokerError(ErrorCode.AUTHENTICATION, "invalid token")
# librdkafka's, for a broker that is stopping
LOST_IN_HANDSHAKE = [
    BrokerError(
        ErrorCode.AUTHENTICATION,
        f"sasl_ssl://b:1/bootstrap: SASL PLAIN mechanism handshake failed: Local: {reason}: "
        "broker's supported mechanisms: (n/a) (after 0ms in state DOWN)",
    )
    for reason in ("Broker transport failure", "Timed out")
]
NO_TOKEN = BrokerError(
    ErrorCode.AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: no route to host"
)


@pytest.fixture
def calls(monkeypatch):
    """What the session does with the user's function."""
    made = []
    for name in ("call", "replace", "pass_on"):
        monkeypatch.setattr(TokenFunction, name, lambda *_, name=name: made.append(name))
    return made


@pytest.fixture
def session():
    return Session(lambda *_, **__: FakeClient(), ClientSettings(()))


def test_a_request_for_a_token_calls_the_function_and_is_no_event_for_others(session, calls):
    session.client.events += [LOST, TokenNeeded()]
    assert list(session.poll()) == [LOST]
    assert calls == ["call", "pass_on"]


def test_tokens_are_passed_on_without_events_too(session, calls):
    assert list(session.poll()) == []
    assert calls == ["pass_on"]


def test_a_login_that_brokers_reject_replaces_the_token(session, calls):
    session.client.events += [LOST, REJECTED]
    assert list(session.poll()) == [LOST, REJECTED]
    assert calls == ["replace", "pass_on"]


@pytest.mark.parametrize("lost", LOST_IN_HANDSHAKE)
def test_a_connection_that_is_lost_before_the_login_replaces_no_token(session, calls, lost):
    session.client.events.append(lost)
    assert list(session.poll()) == [lost]
    assert calls == ["pass_on"]
    assert explained(lost, ClientSettings(())) == lost.text


def test_a_login_without_a_token_replaces_none(session, calls):
    session.client.events.append(NO_TOKEN)
    assert list(session.poll()) == [NO_TOKEN]
    assert calls == ["pass_on"]


ENDPOINT = ClientSettings((("sasl.mechanism", "OAUTHBEARER"), ("sasl.oauthbearer.method", "oidc")))


def test_a_client_that_fetches_tokens_itself_is_made_to_fetch_another():
    clock = FakeClock()
    session = Session(lambda *_, **__: FakeClient(), ENDPOINT, clock)

    def rejected_again():
        session.client.events.append(REJECTED)
        assert list(session.poll()) == [REJECTED]
        return session.client.token_failures

    (reason,) = rejected_again()
    own = BrokerError(ErrorCode.AUTHENTICATION, f"{NO_TOKEN.text}: {reason}")
    session.client.events.append(own)  # what librdkafka makes of it
    assert list(session.poll()) == []
    assert rejected_again() == [reason]  # again and again would put the next one off
    clock.now += 15
    assert rejected_again() == [reason, reason]


def test_settings_that_the_client_rejects_are_an_invalid_option():
    def reject(*_, **__):
        raise ValueError("no provider for SASL mechanism X")

    with pytest.raises(InvalidOption, match=r"mechanism X\. Correct the option"):
        Session(reject, ClientSettings(()))


def test_a_client_with_a_token_function_awaits_its_token_until_that_was_passed_on(calls):
    session = Session(lambda *_, **__: FakeClient(), ClientSettings((), "module:function"))
    assert session.awaits_token
    session.client.events.append(TokenNeeded())
    list(session.poll())
    assert not session.awaits_token  # the call of this test has no outcome to wait for


def test_a_client_without_a_token_function_awaits_no_token(session):
    assert not session.awaits_token


@pytest.mark.parametrize(
    ("error", "callback", "sentence"),
    [
        (
            REJECTED,
            "",
            "the brokers at b:1 reject the login: invalid token. Correct the user name, pa",
        ),
        (NO_TOKEN, "module:function", "b:1: no route to host. Correct oauth.callback or what"),
        (NO_TOKEN, MSK_IAM_CALLBACK, "'spark-kafka-sink[msk-iam]', and provide credentials where"),
        (
            NO_TOKEN,
            "",
            "no token for the login at b:1 from its endpoint: no route to host. Correct",
        ),
        (LOST, "", "connection refused"),
    ],
)
def test_a_login_that_brokers_reject_is_told_from_one_without_a_token(error, callback, sentence):
    settings = ClientSettings((("bootstrap.servers", "b:1"),), callback)
    assert sentence in explained(error, settings)


ONE_OF_TWO_ANSWERS = [
    'Expected JSON response with "access_token" field',
    "Failed to parse JSON response at 0/812",
]


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (-1, "Could not resolve host", TokenUnavailable),
        *[(status, "x", TokenUnavailable) for status in (None, 408, 429, 500, 503, 599)],
        *[(status, "x", AuthenticationFailed) for status in (302, 400, 401, 403, 404, 499)],
        (200, "Response is not JSON encoded: text/html", AuthenticationFailed),
        *[(200, text, TokenUnavailable) for text in ONE_OF_TWO_ANSWERS],
        *[(404, text, AuthenticationFailed) for text in ONE_OF_TWO_ANSWERS],
    ],
)
def test_the_status_of_an_endpoint_says_whether_it_may_give_a_token_later(status, text, error):
    settings = ClientSettings((*ENDPOINT.items(), ("bootstrap.servers", "b:1")))
    session = Session(lambda *_, **__: FakeClient(), settings)
    failure = BrokerError(
        ErrorCode.AUTHENTICATION, f"Failed to acquire SASL OAUTHBEARER token: {text}"
    )
    session.client.events += [TokenRequestFailed(status), failure]
    assert list(session.poll()) == [failure]
    assert type(session.login_error(failure)) is error
    # Brokers have been asked.
    assert type(session.login_error(REJECTED)) is AuthenticationFailed


@pytest.mark.parametrize(
    ("make", "error"),
    [(lambda _: 1 / 0, TokenUnavailable), (lambda _: "no expiry", AuthenticationFailed)],
)
def test_a_function_that_raises_may_give_a_token_later(make, error, monkeypatch):
    module = types.ModuleType("tokens_of_test")
    module.make = make
    monkeypatch.setitem(sys.modules, module.__name__, module)
    settings = ClientSettings((("bootstrap.servers", "b:1"),), "tokens_of_test:make")
    session = Session(lambda *_, **__: FakeClient(), settings)
    session.client.events.append(TokenNeeded())
    deadline = Deadline(60)
    while not session.client.token_failures:
        assert not deadline.expired
        list(session.poll())
        time.sleep(0.001)
    text = f"Failed to acquire SASL OAUTHBEARER token: {session.client.token_failures[0]}"
    raised = session.login_error(BrokerError(ErrorCode.AUTHENTICATION, text))
    assert type(raised) is error
    assert session.client.token_failures[0] in str(raised)

"""What becomes of the user's function for tokens: a token, or the reason why there is none."""

from __future__ import annotations

import sys
import threading
import time
import types

import pytest
from fake_clock import FakeClock

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.producer.oauth_token import TokenFunction

CONFIGURATION = "planted-secret-configuration"
VALUE = "planted-secret-token"
LATER = time.time() + 900


class Client:
    def __init__(self):
        self.tokens, self.failures = [], []

    def set_token(self, *token):
        self.tokens.append(token)

    def fail_token(self, reason):
        self.failures.append(reason)


class Engine:
    def __init__(self):
        self.clock, self.client = FakeClock(), Client()
        settings = (("sasl.oauthbearer.config", Secret(CONFIGURATION)),)
        self.tokens = TokenFunction(ClientSettings(settings, "tokens_of_test:make"), self.clock)

    def pass_on_until_told(self):
        deadline = Deadline(60)
        while not (self.client.tokens or self.client.failures):
            assert not deadline.expired
            self.tokens.pass_on(self.client)
            time.sleep(0.001)  # the function runs in a thread of its own
        return self.client


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def function(monkeypatch):
    """Makes a function the one that the option names."""

    def function(make):
        module = types.ModuleType("tokens_of_test")
        module.make = make
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return function


def test_nothing_is_passed_on_before_a_token_is_needed(engine, function):
    function(lambda _: pytest.fail("called"))
    engine.tokens.pass_on(engine.client)
    assert (engine.client.tokens, engine.client.failures) == ([], [])


@pytest.mark.parametrize(
    ("more", "principal", "extensions"),
    [
        ((), "", {}),
        (("alice",), "alice", {}),
        (("alice", {"cluster": "c"}), "alice", {"cluster": "c"}),
    ],
)
def test_what_the_function_returns_reaches_the_client(
    engine, function, more, principal, extensions
):
    given = []

    def make(configuration):
        given.append(configuration)
        return (VALUE, LATER, *more)

    function(make)
    engine.tokens.call()
    client = engine.pass_on_until_told()
    assert client.tokens == [(VALUE, int(LATER * 1000), principal, extensions)]
    assert given == [CONFIGURATION]
    engine.tokens.pass_on(client)
    assert len(client.tokens) == 1


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (VALUE, "it has to return the token and its expiry"),
        ((VALUE,), "it has to return the token and its expiry"),
        ((b"bytes", LATER), "the token is not a text"),
        ((f"{VALUE}\n\x00", LATER), "the token is not a text"),
        (("", LATER), "the token is not a text"),
        ((VALUE, "soon"), "the expiry is not a number of seconds"),
        ((VALUE, None), "the expiry is not a number of seconds"),
        ((VALUE, float("nan")), "the expiry is not a number of seconds"),
        ((VALUE, LATER * 1000), "the expiry is in milliseconds; return seconds"),
        ((VALUE, LATER, None, ["x"]), "the extensions are not a dict"),
    ],
)
def test_a_function_that_returns_something_else_is_named(engine, function, returned, reason):
    function(lambda _: returned)
    engine.tokens.call()
    (told,) = engine.pass_on_until_told().failures
    assert told.startswith(f"oauth.callback=tokens_of_test:make: {reason}")
    assert VALUE not in told


def test_an_error_of_the_function_is_named_without_its_configuration(engine, function):
    def make(configuration):
        raise RuntimeError(f"refused {configuration}\nand more")

    function(make)
    engine.tokens.call()
    (told,) = engine.pass_on_until_told().failures
    assert told == "oauth.callback=tokens_of_test:make raised RuntimeError: refused [hidden]"


def test_a_function_that_cannot_be_imported_is_named(engine):
    engine.tokens.call()
    (told,) = engine.pass_on_until_told().failures
    assert "raised ModuleNotFoundError: No module named 'tokens_of_test'" in told


def test_a_function_that_hangs_is_named_and_its_late_token_is_used(engine, function):
    returns, calls = threading.Event(), []

    def make(_):
        calls.append(1)
        returns.wait(60)
        return VALUE, LATER

    function(make)
    engine.tokens.call()
    engine.clock.now += 10.0
    engine.tokens.pass_on(engine.client)
    assert engine.client.failures == [
        "oauth.callback=tokens_of_test:make has not returned after 10 s"
    ]
    engine.client.failures.clear()
    returns.set()
    engine.tokens.call()  # the client asks again
    assert engine.pass_on_until_told().tokens
    assert calls == [1]

"""What becomes of the user's function for tokens: a token, or the reason why there is none."""

from __future__ import annotations

import importlib
import sys
import threading
import time
import types
from types import SimpleNamespace

import pytest
from another_python import run_python
from fake_client import FakeClient
from fake_clock import FakeClock

from spark_kafka_sink.clients.oauth_token import LatestCalls, TokenFunction, shared_token
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import AuthenticationFailed, TokenUnavailable
from spark_kafka_sink.secret import Secret

CONFIGURATION = "planted-secret-configuration"
VALUE = "planted-secret-token"
# Beyond the longest run of all tests: it is reckoned when they are collected.
LATER = time.time() + 86_400


class Login:
    """One client of a process; ``another`` makes the others."""

    def __init__(self, configuration=CONFIGURATION, process=None):
        self.clock, self.calls = process or (FakeClock(), LatestCalls())
        self.client = FakeClient()
        settings = (("sasl.oauthbearer.config", Secret(configuration)),)
        self.tokens = TokenFunction(
            ClientSettings(settings, "tokens_of_test:make"), self.clock, self.calls
        )

    def another(self, configuration=CONFIGURATION):
        return Login(configuration, (self.clock, self.calls))

    def pass_on_until_answered(self):
        deadline = Deadline(60)
        while not (self.client.tokens or self.client.token_failures):
            assert not deadline.expired
            self.tokens.pass_on(self.client)
            time.sleep(0.001)  # the function runs in a thread of its own
        return self.client

    def ask(self):
        """Ask for a token as the client does; returns it, or why there is none."""
        self.client.tokens.clear()
        self.client.token_failures.clear()
        self.tokens.call()
        client = self.pass_on_until_answered()
        return client.tokens[0][0] if client.tokens else client.token_failures[0]


@pytest.fixture
def login():
    return Login()


@pytest.fixture
def function(monkeypatch):
    """Makes a function the one that the option names."""

    def function(make):
        module = types.ModuleType("tokens_of_test")
        module.make = make
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return function


@pytest.fixture
def numbered(function):
    """A function that returns another token at each call; its calls are in the list."""
    calls = []

    def make(_):
        calls.append(f"{VALUE}-{len(calls)}")
        return calls[-1], time.time() + 1000

    function(make)
    return calls


def test_nothing_is_passed_on_before_a_token_is_needed(login, function):
    function(lambda _: pytest.fail("called"))
    login.tokens.pass_on(login.client)
    assert (login.client.tokens, login.client.token_failures) == ([], [])


@pytest.mark.parametrize(
    ("more", "principal", "extensions"),
    [
        ((), "", {}),
        (("alice",), "alice", {}),
        (("alice", {"cluster": "c"}), "alice", {"cluster": "c"}),
    ],
)
def test_what_the_function_returns_reaches_the_client(login, function, more, principal, extensions):
    tokens_made = []

    def make(configuration):
        tokens_made.append(configuration)
        return (VALUE, LATER, *more)

    function(make)
    login.tokens.call()
    client = login.pass_on_until_answered()
    assert client.tokens == [(VALUE, int(LATER * 1000), principal, extensions)]
    assert tokens_made == [CONFIGURATION]
    login.tokens.pass_on(client)
    assert len(client.tokens) == 1


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (VALUE, "it has to return the token and its expiry"),
        ((VALUE,), "it has to return the token and its expiry"),
        ((b"bytes", LATER), "the token is not a string"),
        ((f"{VALUE}\n\x00", LATER), "the token is not a string"),
        (("", LATER), "the token is not a string"),
        ((VALUE, "soon"), "the expiry is not a number of seconds"),
        ((VALUE, None), "the expiry is not a number of seconds"),
        ((VALUE, float("nan")), "the expiry is not a number of seconds"),
        ((VALUE, LATER * 1000), "the expiry is in milliseconds; return seconds"),
        ((VALUE, LATER, None, ["x"]), "the extensions are not a dict"),
    ],
)
def test_a_function_that_returns_something_else_is_named(login, function, returned, reason):
    function(lambda _: returned)
    login.tokens.call()
    (failure,) = login.pass_on_until_answered().token_failures
    assert failure.startswith(f"oauth.callback=tokens_of_test:make: {reason}")
    assert VALUE not in failure
    assert type(login.tokens.failure) is AuthenticationFailed


def test_an_error_of_the_function_is_named_without_its_configuration(login, function):
    def make(configuration):
        raise RuntimeError(f"refused {configuration}\nand more")

    function(make)
    login.tokens.call()
    (failure,) = login.pass_on_until_answered().token_failures
    assert failure == "oauth.callback=tokens_of_test:make raised RuntimeError: refused [hidden]"
    assert type(login.tokens.failure) is TokenUnavailable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "401 Client Error: for url: https://svc:pw123@idp.example/token?client_secret=pw123",
            "401 Client Error: for url: https://idp.example/token",
        ),
        ("invalid_client: {'id': 'a', 'pass': 'hunter/22'}", "{'id': 'a', 'pass': '[hidden]'}"),
        ("Max retries exceeded with url: /t?pass=hunter%2F22", "url: /t?pass=[hidden]"),
    ],
)
@pytest.mark.parametrize(
    "configuration", ["id=a pass=hunter/22", 'id: a, {"pass": "hunter/22"}', "x;pass&hunter/22"]
)
def test_an_error_of_the_function_shows_no_part_of_its_configuration_and_no_secret_of_a_url(
    function, text, shown, configuration
):
    def make(_):
        raise RuntimeError(text)

    function(make)
    assert Login(configuration).ask().endswith(shown)


def test_a_function_that_cannot_be_imported_is_named(login):
    login.tokens.call()
    (failure,) = login.pass_on_until_answered().token_failures
    assert "raised ModuleNotFoundError: No module named 'tokens_of_test'" in failure
    assert type(login.tokens.failure) is AuthenticationFailed


def test_a_function_that_lacks_a_package_needs_more_than_a_restart(login, function):
    function(lambda _: importlib.import_module("no_such_signer"))
    assert "No module named 'no_such_signer'" in login.ask()
    assert type(login.tokens.failure) is AuthenticationFailed


@pytest.fixture
def hanging(function):
    """The function hangs until ``returns`` is set; ``calls``: its arguments."""
    hanging = SimpleNamespace(returns=threading.Event(), calls=[])

    def make(configuration):
        hanging.calls.append(configuration)
        hanging.returns.wait(60)
        return VALUE, LATER

    function(make)
    return hanging


def test_a_function_that_hangs_is_named_and_its_late_token_is_used(login, hanging):
    login.tokens.call()
    login.clock.now += 10.0
    login.tokens.pass_on(login.client)
    assert login.client.token_failures == [
        "oauth.callback=tokens_of_test:make has not returned after 10 s"
    ]
    assert type(login.tokens.failure) is TokenUnavailable
    login.client.token_failures.clear()
    hanging.returns.set()
    login.tokens.call()  # the client asks again
    assert login.pass_on_until_answered().tokens
    assert login.tokens.failure is None
    assert len(hanging.calls) == 1


# --- several clients of a process -----------------------------------------------------------------


def test_clients_share_a_token_until_80_percent_of_its_life_is_over(login, numbered):
    assert login.ask() == f"{VALUE}-0"
    login.clock.now += 790.0
    assert login.another().ask() == f"{VALUE}-0"
    login.clock.now += 11.0
    assert login.another().ask() == f"{VALUE}-1"
    # The first client asks too, now that librdkafka's share of the life is over.
    assert login.ask() == f"{VALUE}-1"
    assert len(numbered) == 2


def test_clients_that_ask_during_a_call_wait_for_it(login, hanging):
    clients = [login, login.another(), login.another()]
    for client in clients:
        client.tokens.call()
    hanging.returns.set()
    assert [client.pass_on_until_answered().tokens[0][0] for client in clients] == [VALUE] * 3
    assert len(hanging.calls) == 1


def test_a_client_that_asks_again_never_gets_the_token_that_it_has(login, numbered):
    assert [login.ask(), login.ask()] == [f"{VALUE}-0", f"{VALUE}-1"]


def test_another_configuration_has_its_own_tokens(login, function):
    function(lambda configuration: (f"of-{configuration}", LATER))
    assert login.ask() == f"of-{CONFIGURATION}"
    assert login.another("other").ask() == "of-other"


def test_another_function_has_its_own_tokens(login, numbered):
    login.ask()
    other = TokenFunction(
        ClientSettings((("sasl.oauthbearer.config", CONFIGURATION),), "no_module:make"),
        login.clock,
        login.calls,
    )
    login.client.tokens.clear()
    login.tokens = other
    assert "No module named 'no_module'" in login.ask()


def test_the_failure_of_a_call_is_not_kept(login, function):
    def fails(_):
        raise SystemExit("the token service is closed")

    function(fails)
    assert "raised SystemExit: the token service is closed" in login.ask()
    function(lambda _: (VALUE, LATER))
    assert login.another().ask() == VALUE


def test_a_token_that_has_expired_already_is_not_shared(login, function):
    tokens = iter([(VALUE, time.time() - 1), (f"{VALUE}-1", LATER)])
    function(lambda _: next(tokens))
    assert [login.ask(), login.another().ask()] == [VALUE, f"{VALUE}-1"]


def test_a_call_that_hangs_holds_up_no_client_that_asks_later(login, function):
    begun, returns, calls = threading.Event(), threading.Event(), []

    def make(_):
        calls.append(1)
        if len(calls) == 1:
            begun.set()
            returns.wait(60)
            return "late", LATER
        return VALUE, LATER

    function(make)
    login.tokens.call()
    assert begun.wait(60)
    login.clock.now += 10.0
    assert login.another().ask() == VALUE
    # So the first client does not go on waiting either.
    assert login.ask() == VALUE
    assert len(calls) == 2
    returns.set()


def test_no_other_client_gets_a_token_that_brokers_reject(login, numbered):
    rejected = login.ask()
    login.tokens.discard()
    others = [login.another().ask(), login.another().ask()]
    assert (rejected, others) == (f"{VALUE}-0", [f"{VALUE}-1"] * 2)
    # The first client's next errors are about the token that it has.
    login.tokens.discard()
    assert login.another().ask() == f"{VALUE}-1"


def test_a_token_that_brokers_reject_is_replaced_at_once_but_once_in_five_seconds(login, numbered):
    login.ask()
    for number, seconds in [(1, 0.0), (2, 5.0)]:
        login.client.tokens.clear()
        login.clock.now += seconds
        for _ in range(3):
            login.tokens.replace()
        login.pass_on_until_answered()
        assert login.client.tokens[0][0] == f"{VALUE}-{number}"
        login.tokens.replace()
        login.tokens.pass_on(login.client)
        assert len(numbered) == number + 1
    login.clock.now += 5.0  # the last rejection is not forgotten
    login.client.tokens.clear()
    assert login.pass_on_until_answered().tokens[0][0] == f"{VALUE}-3"


def test_a_rejected_token_that_others_have_replaced_needs_no_call(login, numbered):
    other = login.another()
    assert login.ask() == other.ask() == f"{VALUE}-0"
    for client in (login, other):
        client.client.tokens.clear()
        client.tokens.replace()
        assert client.pass_on_until_answered().tokens[0][0] == f"{VALUE}-1"
    assert len(numbered) == 2


def test_a_client_without_a_token_replaces_none(login, function):
    function(lambda _: pytest.fail("called"))
    login.tokens.replace()
    login.tokens.pass_on(login.client)
    assert not login.tokens.is_pending


def test_before_a_client_has_a_token_it_discards_none(login, numbered):
    login.ask()
    login.another().tokens.discard()
    assert login.another().ask() == f"{VALUE}-0"


def test_clients_of_confluent_kafka_share_the_token_too(numbered):
    settings = (("sasl.oauthbearer.config", Secret("of confluent_kafka")),)
    login = ClientSettings(settings, "tokens_of_test:make")
    value, expiry, principal, extensions = shared_token(login)
    assert (value, principal, extensions) == (f"{VALUE}-0", "", {})
    assert 0 < expiry - time.time() <= 1000
    assert shared_token(login)[0] == value


def test_no_repr_shows_tokens_or_their_configuration(login, numbered):
    login.ask()
    call = login.tokens._received
    seen = repr([login.tokens, vars(login.tokens), vars(login.calls), call, vars(call)])
    assert "planted-secret" not in seen


FORKING = """
import os, sys, time, types
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.clients import oauth_token

module = sys.modules["tokens_of_test"] = types.ModuleType("tokens_of_test")
module.make = lambda _: (f"made-by-{os.getpid()}", time.time() + 900)

class Client:
    token = ""
    def set_token(self, token, *_):
        self.token = token

def ask():
    tokens = oauth_token.TokenFunction(ClientSettings((), "tokens_of_test:make"))
    client, deadline = Client(), Deadline(50)
    tokens.call()
    while not client.token and not deadline.expired:
        tokens.pass_on(client)
    assert client.token == f"made-by-{os.getpid()}", client.token
    return tokens

# As another thread might, at the moment of the fork.
with ask()._latest_calls._lock:
    child = os.fork()
    if child == 0:
        ask()
        os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_fork_has_its_own_tokens_even_if_it_happens_during_a_call():
    run_python("-c", FORKING)

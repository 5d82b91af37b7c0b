"""Tokens that librdkafka fetches, over http and https, and what is said without one."""

from __future__ import annotations

import re
import socket
import ssl
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import trustme
from http_stub import served
from token_endpoint import token_endpoint
from token_functions import unsecured_jwt

from spark_kafka_sink.clients import local_files
from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.clients.sockets import Server
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver import preflight
from spark_kafka_sink.errors import AuthenticationFailed, BrokerUnavailable, TokenUnavailable
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import BrokerError
from spark_kafka_sink.tools.doctor import connectivity
from spark_kafka_sink.tools.doctor.check_context import CheckContext

URL = "kafka.sasl.oauthbearer.token.endpoint.url"
CLIENT = ("kafka.sasl.oauthbearer.client.id", "kafka.sasl.oauthbearer.client.secret")
LOGGED_IN = "no token was missing"


def options(url, **more):
    return {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.client.id": "me",
        "kafka.sasl.oauthbearer.client.secret": "hunter2",
        URL: url,
        **more,
    }


def authenticate(sink_options):
    with preflight.authenticated(sink_options):
        pass


def login_error(url, **more):
    """What a client without a token raises; with one, it only finds no broker, and this is None."""
    settings = parse(options(url, **more)).producer.client
    session = Session(Client, settings)
    session.client.describe_cluster(30)
    deadline = Deadline(30)
    errors = []
    while not errors and not deadline.expired:
        events = session.poll(deadline.slice(0.1))
        errors = [event for event in events if isinstance(event, BrokerError)]
    session.client.close(Deadline(5))
    (error,) = errors[:1]
    return None if error.code == ErrorCode.TRANSPORT else session.login_error(error)


def log_in(url, **more):
    """What a client says without a token."""
    error = login_error(url, **more)
    return LOGGED_IN if error is None else str(error)


def jwt(**claims):
    return unsecured_jwt({"sub": "me", "exp": int(time.time()) + 600, **claims})


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def endpoint(authority):
    """Serves over TLS as that name."""

    def served(name="127.0.0.1"):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(tls)
        return token_endpoint(jwt, tls)

    return served


@pytest.fixture
def bundle(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def trust(monkeypatch):
    """Makes a file or folder what this machine trusts."""

    def install(path):
        monkeypatch.setattr(local_files, "ca_certificates", lambda: str(path))

    return install


@pytest.mark.parametrize("location", [{}, {"kafka.https.ca.location": "probe"}])
@pytest.mark.parametrize("is_folder", [False, True])
def test_the_authorities_of_the_machine_are_trusted(location, is_folder, endpoint, bundle, trust):
    trust(bundle.parent if is_folder else bundle)
    with endpoint() as url:
        assert log_in(url, **location) == LOGGED_IN


def test_the_options_for_https_may_name_a_file_a_folder_or_a_text(endpoint, bundle, trust):
    trust("/none")
    (bundle.parent / "a folder").mkdir()
    one_line = bundle.parent / "line.pem"
    one_line.write_text(bundle.read_text().replace("\n", " "))
    with endpoint() as url:
        for location in (bundle, bundle.parent, one_line):
            assert log_in(url, **{"kafka.https.ca.location": str(location)}) == LOGGED_IN
        assert log_in(url, **{"kafka.https.ca.pem": one_line.read_text()}) == LOGGED_IN


def test_untrusted_certificates_are_named_with_the_way_out(endpoint, bundle, trust, tmp_path):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    trust(other)
    with endpoint() as url:
        assert re.search(f"from {url}: .*Set kafka.https.ca.location to a PEM file", log_in(url))
    trust(bundle)
    with endpoint("login.example.org") as url:
        assert "Connect with a host name that the certificate contains" in log_in(url)


def test_a_url_with_the_wrong_scheme_is_named_with_the_way_out(endpoint, trust, bundle):
    trust(bundle)
    with endpoint() as url:
        plain = url.replace("https://", "http://")
        assert re.search(f"from {plain}: .*begin the URL with https://", log_in(plain))
    with token_endpoint(jwt) as url:
        secure = url.replace("http://", "https://")
        assert re.search(f"from {secure}: .*or begin it with http://", log_in(secure))


NAME = "kafka.sasl.oauthbearer.sub.claim.name"


@pytest.mark.parametrize(
    ("token", "more", "advice"),
    [
        (jwt, {}, LOGGED_IN),
        (lambda: jwt(sub=None, client_id="me"), {NAME: "client_id"}, LOGGED_IN),
        (lambda: "opaque-123", {}, "Set oauth.callback, a function that fetches the token"),
        (lambda: "a.b.c", {}, "Set oauth.callback, a function that fetches the token"),
        (lambda: "", {}, "Set oauth.callback, a function that fetches the token"),
        (
            lambda: unsecured_jwt({"sub": "me"}),
            {},
            "Let the provider add exp, a number; or set oau",
        ),
        (lambda: jwt(exp=None), {}, "Let the provider add exp, a number; or set oauth.callback"),
        (lambda: jwt(exp="soon"), {}, "Let the provider add exp, a number; or set oauth.callback"),
        (lambda: jwt(exp=1), {}, "Check the clocks of this machine and of the provider"),
        (lambda: unsecured_jwt({"exp": 9e9}), {}, f"Set {NAME} to a claim that it has"),
        (jwt, {NAME: "azp"}, f"Set {NAME} to a claim that it has"),
    ],
)
def test_a_token_that_the_client_cannot_use_is_named_with_the_way_out(token, more, advice):
    with token_endpoint(token) as url:
        said = log_in(url, **more)
    assert re.search(advice, said), said


def test_an_endpoint_that_does_not_answer_is_named():
    assert f"Check that {URL} is right, and reachable" in log_in("http://127.0.0.1:1/token")


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (400, {"error": "invalid_scope"}, AuthenticationFailed),
        (401, {"error": "invalid_client"}, AuthenticationFailed),
        (404, "not here (503)", AuthenticationFailed),
        (200, {"access_token": "opaque-123"}, AuthenticationFailed),
        (505, {"error": "invalid_client (401)"}, TokenUnavailable),
        (505, "a page of a proxy" * 200, TokenUnavailable),  # its log line lacks the status
    ],
)
def test_what_the_endpoint_answers_says_whether_it_may_give_a_token_later(status, content, error):
    with served(lambda *_: (status, content)) as url:
        assert type(login_error(f"{url}/token")) is error


def test_a_log_level_of_the_user_does_not_hide_the_status():
    with served(lambda *_: (505, "")) as url:
        error = login_error(f"{url}/token", **{"kafka.log_level": "0"})
    assert type(error) is TokenUnavailable


def test_the_driver_goes_on_when_the_endpoint_works_again():
    """The client repeats a request after HTTP 503, but reads both answers as one."""
    answers = [(503, {"error": "temporarily_unavailable"})]

    def answer(*_):
        return answers.pop() if answers else (200, {"access_token": jwt()})

    with served(answer) as url:
        sink_options = parse(options(f"{url}/token"))
        with pytest.raises(TokenUnavailable) as raised:
            authenticate(sink_options)
        with pytest.raises(BrokerUnavailable):
            authenticate(sink_options)
    assert not raised.value.is_permanent
    assert f"Check that {URL} is right, and reachable" in str(raised.value)


def test_the_driver_names_an_endpoint_that_is_away_for_now():
    with pytest.raises(TokenUnavailable, match="no token for the login at"):
        authenticate(parse(options("http://127.0.0.1:1/token")))


def test_the_driver_names_an_endpoint_that_gives_no_token_in_time():
    """The client asks again, for a minute, after HTTP 503."""
    with (
        served(lambda *_: (503, "")) as url,
        pytest.raises(TokenUnavailable, match=f"from {url}/token: it has given none within 3 s"),
    ):
        authenticate(parse(options(f"{url}/token", **{"kafka.max.block.ms": "3000"})))


def test_brokers_that_do_not_answer_after_a_token_are_named():
    with socket.create_server(("127.0.0.1", 0)) as silent, token_endpoint(jwt) as url:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        more = {"kafka.max.block.ms": "3000", "kafka.bootstrap.servers": servers}
        with pytest.raises(BrokerUnavailable, match=f"no broker answered at {servers}"):
            authenticate(parse(options(url, **more)))


def test_no_log_line_shows_the_query_of_a_token_endpoint(caplog):
    said = log_in("http://127.0.0.1:1/token?sig=hunter3")
    assert "from http://127.0.0.1:1/token: " in said
    # Not caplog.text: PySpark's loggers may have made its format JSON, which escapes quotes.
    assert any('"http://127.0.0.1:1/token"' in message for message in caplog.messages)
    assert "hunter" not in said + caplog.text


def test_a_proxy_of_the_system_does_not_show_its_password(caplog, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://me:hunter3/x@127.0.0.1:1")
    said = log_in("https://127.0.0.1:1/token")
    assert "Unsupported proxy syntax" in said
    assert "hunter" not in said + caplog.text


def finding_of_doctor(url, seconds=30, **more):
    changed = options(url, topic="t", **more)
    sink_options = {name: value for name, value in changed.items() if value is not None}
    deadline = Deadline(seconds)
    context = CheckContext(sink_options, False, None, deadline, parsed=parse(sink_options))
    context.servers = [Server("127.0.0.1", 1)]
    (finding,) = connectivity.login(context)
    context.close()
    return f"{finding.message}. {finding.advice}"


def test_doctor_says_the_same():
    with token_endpoint(lambda: "opaque-123") as url:
        assert finding_of_doctor(url) == log_in(url)


def test_doctor_names_an_endpoint_that_gives_no_token_in_time():
    with served(lambda *_: (503, "")) as url:
        assert f"Check that {URL} is right, and reachable" in finding_of_doctor(url, seconds=2)


def test_doctor_names_a_function_that_gives_no_token_in_time(monkeypatch):
    released = threading.Event()
    module = SimpleNamespace(make=lambda _: released.wait(60))
    monkeypatch.setitem(sys.modules, "slow_tokens", module)
    more = dict.fromkeys((URL, *CLIENT))
    said = finding_of_doctor("", seconds=1, **more, **{"oauth.callback": "slow_tokens:make"})
    released.set()
    assert (
        "no token for the login at 127.0.0.1:1: oauth.callback=slow_tokens:make has given" in said
    )
    assert "Correct oauth.callback" in said


def test_a_proxy_between_client_and_endpoint_is_named_with_its_variable(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    monkeypatch.setenv("http_proxy", f"http://me:planted@127.0.0.1:{dead}")
    with token_endpoint(unsecured_jwt) as url:
        error = login_error(url)
    assert f"from {url} (through the proxy of the environment variable http_proxy)" in str(error)
    assert "planted" not in str(error)
